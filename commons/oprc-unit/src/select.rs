//! Selects the template of a class: hard constraints rule templates out, then the requested template
//! wins, then the highest score.

// The derived schemas repeat the types in places that can't be reached.
#![allow(unreachable_pub)]

use std::collections::BTreeMap;

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::{
    class::{Rejection, RejectionReason, ValidClass, ValidFunction},
    platform::{Platform, Profile},
};

/// Selected template with the reason for its selection.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct SelectionStatus {
    /// Name of the selected template.
    pub template: String,
    /// Profile whose sizes and defaults apply.
    pub profile: String,
    /// Number of the generation for which the template was selected.
    pub generation: i64,
    /// Basis of the selection: the request, the highest score or the default, as text.
    pub basis: String,
    /// Score of each template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub scores: Vec<TemplateScore>,
}

/// Score of a template for a class.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct TemplateScore {
    /// Name of the template.
    pub template: String,
    /// Mean score of all applicable criteria, 0 to 10. Omitted if none applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// Score of each applicable criterion, 0 to 10, by name of the criterion.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rows: BTreeMap<String, f64>,
    /// Why the template cannot be used, as text. Omitted if it can be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<String>,
}

/// How the functions of a class run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Template {
    /// A Job for each function.
    Job,
    /// A Deployment and a Service for each function.
    K8sDeployment,
    /// A Knative Service for each function.
    Knative,
    /// The best shape for each function.
    Unified,
}

impl Template {
    /// All templates, sorted by name.
    pub const ALL: [Self; 4] = [Self::Job, Self::K8sDeployment, Self::Knative, Self::Unified];
    /// Templates that are scored; others must be requested.
    const SCORED: [Self; 3] = [Self::K8sDeployment, Self::Knative, Self::Unified];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::K8sDeployment => "k8s_deployment",
            Self::Knative => "knative",
            Self::Unified => "unified",
        }
    }

    /// Whether the template can be configured as the default.
    pub fn can_be_default(name: &str) -> bool {
        Self::parse(name).is_some_and(|template| Self::SCORED.contains(&template))
    }

    /// Parses a name or alias.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "deployment" | "k8s-deployment" | "k8s_deployment" => Some(Self::K8sDeployment),
            _ => Self::ALL.into_iter().find(|template| template.as_str() == name),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    pub template: Template,
    /// The profile whose sizes and defaults apply.
    pub profile: Profile,
    /// The reason for the selection.
    pub basis: String,
    pub scores: Vec<TemplateScore>,
}

impl Selection {
    pub fn status(&self, generation: i64) -> SelectionStatus {
        SelectionStatus {
            template: self.template.as_str().to_owned(),
            profile: self.profile.as_str().to_owned(),
            generation,
            basis: self.basis.clone(),
            scores: self.scores.clone(),
        }
    }
}

/// Selects a template. The `previous` selection for the same generation is kept while it is usable,
/// so that a template that becomes available later doesn't move a running class.
pub fn select(
    class: &ValidClass,
    platform: &Platform,
    previous: Option<&SelectionStatus>,
) -> Result<Selection, Rejection> {
    let scores: Vec<TemplateScore> =
        Template::SCORED.into_iter().map(|it| score(it, class, platform)).collect();
    if let Some(requested) = &class.template {
        return select_requested(requested, class, platform, scores);
    }
    let profile = class.profile;
    if let Some(previous) = previous
        && previous.generation == class.identity.generation
        && let Some(template) = Template::parse(&previous.template)
        && rejection(template, class, platform).is_none()
    {
        return Ok(Selection {
            template,
            profile,
            basis: previous.basis.clone(),
            scores: previous.scores.clone(),
        });
    }
    let default = platform.default_template.as_deref().and_then(Template::parse);
    let default = default.unwrap_or(Template::K8sDeployment);
    let usable = || {
        let scored = Template::SCORED.into_iter().zip(&scores);
        scored.filter(|(_, it)| it.rejected.is_none())
    };
    let best = usable().max_by(|(left, left_score), (right, right_score)| {
        let value = |it: &TemplateScore| it.score.unwrap_or(0.0);
        value(left_score)
            .total_cmp(&value(right_score))
            .then((*left == default).cmp(&(*right == default)))
            .then(right.as_str().cmp(left.as_str()))
    });
    let Some((best, _)) = best else { return Err(no_suitable_template(&scores)) };
    let scored = scores.iter().any(|it| it.score.is_some());
    let (template, basis) = if scored {
        (best, "highest score".to_owned())
    } else if usable().any(|(template, _)| template == default) {
        (default, "default template, because no scored requirement is set".to_owned())
    } else {
        (best, "first usable template, because no scored requirement is set".to_owned())
    };
    Ok(Selection { template, profile, basis, scores })
}

fn select_requested(
    requested: &str,
    class: &ValidClass,
    platform: &Platform,
    scores: Vec<TemplateScore>,
) -> Result<Selection, Rejection> {
    let template = match Profile::parse(requested) {
        Some(_) => Template::K8sDeployment,
        None => Template::parse(requested).ok_or_else(|| {
            let names: Vec<_> = Template::ALL.iter().map(|it| it.as_str()).collect();
            Rejection::precondition(
                RejectionReason::UnknownTemplate,
                "selected_template",
                format!(
                    "unknown template {requested:?}; templates: {}; profiles: {}",
                    names.join(", "),
                    Profile::NAMES.join(", ")
                ),
            )
        })?,
    };
    if let Some(why) = rejection(template, class, platform) {
        let message = format!("{} was requested, but {why}", template.as_str());
        return Err(Rejection::precondition(
            RejectionReason::TemplateRejected,
            "selected_template",
            message,
        ));
    }
    Ok(Selection {
        template,
        profile: class.profile,
        basis: format!("{requested} was requested"),
        scores,
    })
}

fn no_suitable_template(scores: &[TemplateScore]) -> Rejection {
    let rejected = |it: &TemplateScore| Some(format!("{}: {}", it.template, it.rejected.as_ref()?));
    let reasons: Vec<String> = scores.iter().filter_map(rejected).collect();
    Rejection::precondition(
        RejectionReason::NoSuitableTemplate,
        "constraints.hard_latency_ms",
        format!("no template satisfies the constraints: {}", reasons.join("; ")),
    )
}

/// Why a template can't be used.
fn rejection(template: Template, class: &ValidClass, platform: &Platform) -> Option<String> {
    match template {
        Template::Job => class
            .functions
            .iter()
            .find(|it| !it.task)
            .map(|function| format!("function {:?} isn't of type TASK", function.key)),
        Template::K8sDeployment => latency_rejection(class, |_| platform.floors.k8s_deployment),
        Template::Knative if !platform.features.knative => {
            Some("Knative is disabled (features.knative)".to_owned())
        }
        Template::Knative if !platform.knative => {
            Some("Knative Serving isn't installed in the cluster".to_owned())
        }
        Template::Knative => knative_rejection(class, platform)
            .or_else(|| latency_rejection(class, |function| knative_floor(function, platform))),
        Template::Unified => latency_rejection(class, |function| match shape(function, platform) {
            Shape::Knative => knative_floor(function, platform),
            Shape::Deployment | Shape::Job => platform.floors.k8s_deployment,
        }),
    }
}

fn knative_rejection(class: &ValidClass, platform: &Platform) -> Option<String> {
    class.functions.iter().find_map(|function| {
        let why = knative_incompatibility(function, platform)?;
        Some(format!("function {:?} {why}", function.key))
    })
}

/// Ports of the proxy that Knative runs next to each container.
const KNATIVE_PORTS: [i32; 6] = [8008, 8012, 8013, 8022, 9090, 9091];
/// Variables that Knative sets.
const KNATIVE_VARIABLES: [&str; 3] = ["K_CONFIGURATION", "K_REVISION", "K_SERVICE"];

/// Why a function can't run on Knative.
fn knative_incompatibility(function: &ValidFunction, platform: &Platform) -> Option<String> {
    if function.mounts.iter().any(|mount| mount.claim.is_some()) {
        return Some("mounts a volume claim, which Knative doesn't support".to_owned());
    }
    if KNATIVE_PORTS.contains(&function.port) {
        return Some(format!("listens on port {}, which Knative reserves", function.port));
    }
    let set = |name: &&str| function.env.iter().any(|variable| variable.name == **name);
    if let Some(name) = KNATIVE_VARIABLES.iter().find(|name| set(name)) {
        return Some(format!("sets the variable {name}, which Knative reserves"));
    }
    let max = platform.knative_timeout.as_secs();
    let seconds = function.timeout_seconds().and_then(|it| u64::try_from(it).ok());
    seconds.is_some_and(|seconds| seconds > max).then(|| {
        format!(
            "has a timeout of {} ms, but Knative allows at most {max} s \
             (templates.knative_max_timeout)",
            function.timeout_ms.unwrap_or_default()
        )
    })
}

fn latency_rejection(class: &ValidClass, floor: impl Fn(&ValidFunction) -> i32) -> Option<String> {
    class.functions.iter().find_map(|function| {
        let (hard, floor) = (function.hard_latency?, floor(function));
        (floor > hard).then(|| {
            format!(
                "its latency is at least {floor} ms, but function {:?} has a hard limit of {hard} ms",
                function.key
            )
        })
    })
}

fn knative_floor(function: &ValidFunction, platform: &Platform) -> i32 {
    let min = function.min_scale.max(function.required_instances);
    if min.is_some_and(|min| min >= 1) && !function.standby {
        platform.floors.knative_warm
    } else {
        platform.floors.knative_cold
    }
}

/// Scores of Knative, a Deployment and `unified` for a low and a high throughput.
const LOW: [f64; 3] = [9.0, 6.0, 8.0];
const HIGH: [f64; 3] = [4.0, 9.0, 7.0];

/// Scores a template by the criteria that apply to the class.
fn score(template: Template, class: &ValidClass, platform: &Platform) -> TemplateScore {
    let own = |[knative, deployment, unified]: [f64; 3]| match template {
        Template::Knative => knative,
        Template::K8sDeployment | Template::Job => deployment,
        Template::Unified => unified,
    };
    let mut rows = BTreeMap::new();
    let mut add = |name: &str, value: f64| rows.insert(name.to_owned(), value);
    let functions = &class.functions;
    match functions.iter().filter_map(|it| it.throughput).max() {
        Some(..100) => add("throughput below 100", own(LOW)),
        Some(100..=1000) => add("throughput from 100 to 1000", f64::midpoint(own(LOW), own(HIGH))),
        Some(1001..) => add("throughput above 1000", own(HIGH)),
        None => None,
    };
    match functions.iter().filter_map(|it| it.latency).min() {
        Some(..50) => add("latency below 50 ms", own([3.0, 9.0, 6.0])),
        Some(50..=500) => add("latency from 50 to 500 ms", own([8.0, 9.0, 8.0])),
        _ => None,
    };
    if functions.iter().any(ValidFunction::is_cost_bound) {
        add("cost", own([9.0, 3.0, 6.0]));
    }
    if functions.iter().any(ValidFunction::is_bursty) {
        add("burst", own([9.0, 5.0, 8.0]));
    }
    if functions.iter().any(ValidFunction::is_steady) {
        add("steady", own([5.0, 9.0, 7.0]));
    }
    let count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
    let score = (count > 0).then(|| rows.values().sum::<f64>() / f64::from(count));
    TemplateScore {
        template: template.as_str().to_owned(),
        score,
        rows,
        rejected: rejection(template, class, platform),
    }
}

/// The kind of workload of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A Deployment with a Service.
    Deployment,
    /// A Knative Service.
    Knative,
    /// A Job.
    Job,
}

impl Shape {
    /// The name of the corresponding template.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => Template::K8sDeployment.as_str(),
            Self::Knative => Template::Knative.as_str(),
            Self::Job => Template::Job.as_str(),
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        [Self::Deployment, Self::Knative, Self::Job].into_iter().find(|it| it.as_str() == name)
    }
}

/// The shape that follows from the declaration of a function.
pub fn shape_under(template: Template, function: &ValidFunction, platform: &Platform) -> Shape {
    match template {
        Template::K8sDeployment => Shape::Deployment,
        Template::Knative => Shape::Knative,
        Template::Job => Shape::Job,
        Template::Unified => shape(function, platform),
    }
}

/// The shape of a function for which another one may have been `decided` by its load.
pub fn shape_with(
    template: Template,
    function: &ValidFunction,
    platform: &Platform,
    decided: Option<Shape>,
) -> Shape {
    decided
        .filter(|it| alternative_shape(template, function, platform) == Some(*it))
        .unwrap_or_else(|| shape_under(template, function, platform))
}

/// The shape that a function may have instead of the declared one, under `unified`. None if the
/// declaration or the platform leaves no choice.
pub fn alternative_shape(
    template: Template,
    function: &ValidFunction,
    platform: &Platform,
) -> Option<Shape> {
    if template != Template::Unified {
        return None;
    }
    let is_fast = |limit: Option<i32>, floor: i32| limit.is_none_or(|limit| limit >= floor);
    match shape(function, platform) {
        Shape::Knative => is_fast(function.hard_latency, platform.floors.k8s_deployment)
            .then_some(Shape::Deployment),
        Shape::Deployment => {
            // A cold start must meet the required latency, too. Knative has no circuit breaker.
            let fits = can_be_knative(function, platform)
                && is_fast(function.latency, knative_floor(function, platform))
                && !function.circuit_breaker;
            fits.then_some(Shape::Knative)
        }
        Shape::Job => None,
    }
}

/// The best shape of a function: Knative for bursts and low cost, a Deployment for low latency and
/// steady load.
fn shape(function: &ValidFunction, platform: &Platform) -> Shape {
    let prefers_knative = function.is_bursty() || function.is_cost_bound();
    if prefers_knative && can_be_knative(function, platform) {
        Shape::Knative
    } else {
        Shape::Deployment
    }
}

fn can_be_knative(function: &ValidFunction, platform: &Platform) -> bool {
    platform.can_knative()
        && function.latency.is_none_or(|latency| latency >= 50)
        && function.hard_latency.is_none_or(|hard| hard >= knative_floor(function, platform))
        && knative_incompatibility(function, platform).is_none()
}

#[cfg(test)]
#[path = "select_tests.rs"]
mod tests;
