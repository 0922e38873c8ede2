//! Which template a class gets, and why: hard constraints, then what was asked for, then the score.

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
    /// Name of the template.
    pub template: String,
    /// Profile whose sizes and defaults apply.
    pub profile: String,
    /// Generation for which the template was selected.
    pub generation: i64,
    /// Reason for the selection.
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
    /// Mean of all criteria that apply, 0 to 10. Omitted if none applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// Value of each criterion that applies, 0 to 10.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rows: BTreeMap<String, f64>,
    /// Reason why the template cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<String>,
}

/// A shape that a class's functions can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Template {
    /// A Job for each function.
    Job,
    /// A Deployment and a Service for each function.
    K8sDeployment,
    /// A Knative Service for each function.
    Knative,
    /// For each function what suits it.
    Unified,
}

impl Template {
    /// All templates, by name.
    pub const ALL: [Self; 4] = [Self::Job, Self::K8sDeployment, Self::Knative, Self::Unified];
    /// Those that requirements can choose from.
    const SCORED: [Self; 3] = [Self::K8sDeployment, Self::Knative, Self::Unified];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::K8sDeployment => "k8s_deployment",
            Self::Knative => "knative",
            Self::Unified => "unified",
        }
    }

    /// Whether a template of that name can be what classes get that nothing speaks for.
    pub fn can_be_default(name: &str) -> bool {
        Self::parse(name).is_some_and(|template| Self::SCORED.contains(&template))
    }

    /// The template of that name or alias.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "deployment" | "k8s-deployment" | "k8s_deployment" => Some(Self::K8sDeployment),
            _ => Self::ALL.into_iter().find(|template| template.as_str() == name),
        }
    }
}

/// The template that was chosen, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    /// The template.
    pub template: Template,
    /// The profile whose sizes are used.
    pub profile: Profile,
    /// Why, in one sentence.
    pub basis: String,
    /// What each template was worth.
    pub scores: Vec<TemplateScore>,
}

impl Selection {
    /// What the status says of it.
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

/// Chooses a template. What was chosen for this generation before is kept for as long as it can
/// be: a template that appears later doesn't move a class that runs.
pub fn select(
    class: &ValidClass,
    platform: &Platform,
    before: Option<&SelectionStatus>,
) -> Result<Selection, Rejection> {
    let scores: Vec<TemplateScore> =
        Template::SCORED.into_iter().map(|it| score(it, class, platform)).collect();
    if let Some(asked) = &class.template {
        return asked_for(asked, class, platform, scores);
    }
    let profile = class.profile;
    if let Some(before) = before
        && before.generation == class.identity.generation
        && let Some(template) = Template::parse(&before.template)
        && rejection(template, class, platform).is_none()
    {
        return Ok(Selection {
            template,
            profile,
            basis: before.basis.clone(),
            scores: before.scores.clone(),
        });
    }
    let possible: Vec<Template> = Template::SCORED
        .into_iter()
        .filter(|&template| rejection(template, class, platform).is_none())
        .collect();
    let default = platform
        .default_template
        .as_deref()
        .and_then(Template::parse)
        .unwrap_or(Template::K8sDeployment);
    let best = possible.iter().copied().max_by(|&left, &right| {
        let value = |template: Template| {
            let found = scores.iter().find(|it| it.template == template.as_str());
            found.and_then(|it| it.score).unwrap_or(0.0)
        };
        value(left)
            .total_cmp(&value(right))
            .then((left == default).cmp(&(right == default)))
            .then(right.as_str().cmp(left.as_str()))
    });
    let Some(best) = best else { return Err(nothing_fits(class, platform)) };
    let scored = scores.iter().any(|it| it.score.is_some());
    let (template, basis) = if scored {
        (best, "the best score".to_owned())
    } else if possible.contains(&default) {
        (default, "the default, as no requirement speaks for any".to_owned())
    } else {
        (best, "the first that can be, as no requirement speaks for any".to_owned())
    };
    Ok(Selection { template, profile, basis, scores })
}

fn asked_for(
    asked: &str,
    class: &ValidClass,
    platform: &Platform,
    scores: Vec<TemplateScore>,
) -> Result<Selection, Rejection> {
    let template = match Profile::parse(asked) {
        Some(_) => Template::K8sDeployment,
        None => Template::parse(asked).ok_or_else(|| {
            let names: Vec<_> = Template::ALL.iter().map(|it| it.as_str()).collect();
            Rejection::precondition(
                RejectionReason::UnknownTemplate,
                "selected_template",
                format!(
                    "there is no template {asked:?}; there are: {}, and the profiles {}",
                    names.join(", "),
                    Profile::NAMES.join(", ")
                ),
            )
        })?,
    };
    if let Some(why) = rejection(template, class, platform) {
        let message = format!("{} was asked for, but {why}", template.as_str());
        return Err(Rejection::precondition(
            RejectionReason::TemplateRejected,
            "selected_template",
            message,
        ));
    }
    Ok(Selection {
        template,
        profile: class.profile,
        basis: format!("{asked} was asked for"),
        scores,
    })
}

fn nothing_fits(class: &ValidClass, platform: &Platform) -> Rejection {
    let reasons: Vec<String> = Template::SCORED
        .into_iter()
        .filter_map(|it| Some(format!("{}: {}", it.as_str(), rejection(it, class, platform)?)))
        .collect();
    Rejection::precondition(
        RejectionReason::NoSuitableTemplate,
        "constraints.hard_latency_ms",
        format!("no template can meet the constraints: {}", reasons.join("; ")),
    )
}

/// Why a template can't be.
fn rejection(template: Template, class: &ValidClass, platform: &Platform) -> Option<String> {
    match template {
        Template::Job => class
            .functions
            .iter()
            .find(|it| !it.task)
            .map(|function| format!("function {:?} isn't of type TASK", function.key)),
        Template::K8sDeployment => too_slow(class, |_| platform.floors.k8s_deployment),
        Template::Knative if !platform.features.knative => {
            Some("Knative is switched off (features.knative)".to_owned())
        }
        Template::Knative if !platform.knative => {
            Some("the cluster has no Knative Serving".to_owned())
        }
        Template::Knative => refused_by_knative(class, platform)
            .or_else(|| too_slow(class, |function| knative_floor(function, platform))),
        Template::Unified => too_slow(class, |function| match shape(function, platform) {
            Shape::Knative => knative_floor(function, platform),
            Shape::Deployment | Shape::Job => platform.floors.k8s_deployment,
        }),
    }
}

fn refused_by_knative(class: &ValidClass, platform: &Platform) -> Option<String> {
    class.functions.iter().find_map(|function| {
        let why = knative_refuses(function, platform)?;
        Some(format!("function {:?} {why}", function.key))
    })
}

/// Ports of the proxy that Knative puts beside each container.
const KNATIVE_PORTS: [i32; 6] = [8008, 8012, 8013, 8022, 9090, 9091];
/// Variables that Knative sets itself.
const KNATIVE_VARIABLES: [&str; 3] = ["K_CONFIGURATION", "K_REVISION", "K_SERVICE"];

/// Why Knative wouldn't take a function, where it wouldn't.
fn knative_refuses(function: &ValidFunction, platform: &Platform) -> Option<String> {
    if function.mounts.iter().any(|mount| mount.claim.is_some()) {
        return Some("mounts a volume claim, which Knative doesn't".to_owned());
    }
    if KNATIVE_PORTS.contains(&function.port) {
        return Some(format!("listens on port {}, which Knative needs itself", function.port));
    }
    let set = |name: &&str| function.env.iter().any(|variable| variable.name == **name);
    if let Some(name) = KNATIVE_VARIABLES.iter().find(|name| set(name)) {
        return Some(format!("has a variable {name}, which Knative sets itself"));
    }
    let most = platform.knative_timeout.as_secs();
    let seconds = function.timeout_seconds().and_then(|it| u64::try_from(it).ok());
    seconds.is_some_and(|seconds| seconds > most).then(|| {
        format!(
            "has a timeout of {} ms, and Knative takes {most} s at most \
             (templates.knative_max_timeout)",
            function.timeout_ms.unwrap_or_default()
        )
    })
}

fn too_slow(class: &ValidClass, floor: impl Fn(&ValidFunction) -> i32) -> Option<String> {
    class.functions.iter().find_map(|function| {
        let (hard, floor) = (function.hard_latency?, floor(function));
        (floor > hard).then(|| {
            format!(
                "it can't promise less than {floor} ms, and function {:?} has a hard limit of {hard} ms",
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

/// What throughput is worth to Knative, a plain workload and both, where it is low and high.
const LOW: [f64; 3] = [9.0, 6.0, 8.0];
const HIGH: [f64; 3] = [4.0, 9.0, 7.0];

/// The rows of the matrix that apply to a class, and what each is worth to a template.
fn score(template: Template, class: &ValidClass, platform: &Platform) -> TemplateScore {
    let [knative, plain, unified] = [0, 1, 2];
    let column = match template {
        Template::Knative => knative,
        Template::K8sDeployment | Template::Job => plain,
        Template::Unified => unified,
    };
    let mut rows = BTreeMap::new();
    let mut add = |name: &str, values: [f64; 3]| {
        if let Some(&value) = values.get(column) {
            rows.insert(name.to_owned(), value);
        }
    };
    let functions = &class.functions;
    match functions.iter().filter_map(|it| it.throughput).max() {
        Some(..100) => add("throughput below 100", LOW),
        Some(1001..) => add("throughput above 1000", HIGH),
        Some(_) => {
            let [low, high] = [LOW, HIGH];
            let mean = std::array::from_fn(|at| {
                f64::midpoint(
                    low.get(at).copied().unwrap_or(0.0),
                    high.get(at).copied().unwrap_or(0.0),
                )
            });
            add("throughput from 100 to 1000", mean);
        }
        None => {}
    }
    match functions.iter().filter_map(|it| it.latency).min() {
        Some(..50) => add("latency below 50 ms", [3.0, 9.0, 6.0]),
        Some(50..=500) => add("latency from 50 to 500 ms", [8.0, 9.0, 8.0]),
        _ => {}
    }
    if functions.iter().any(ValidFunction::is_cost_bound) {
        add("cost", [9.0, 3.0, 6.0]);
    }
    if functions.iter().any(ValidFunction::is_bursty) {
        add("burst", [9.0, 5.0, 8.0]);
    }
    if functions.iter().any(ValidFunction::is_steady) {
        add("steady", [5.0, 9.0, 7.0]);
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

/// What one function runs as.
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
    /// The template that is named after it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => Template::K8sDeployment.as_str(),
            Self::Knative => Template::Knative.as_str(),
            Self::Job => Template::Job.as_str(),
        }
    }
}

/// What a function runs as under a template.
pub fn shape_under(template: Template, function: &ValidFunction, platform: &Platform) -> Shape {
    match template {
        Template::K8sDeployment => Shape::Deployment,
        Template::Knative => Shape::Knative,
        Template::Job => Shape::Job,
        Template::Unified => shape(function, platform),
    }
}

/// What suits a function by itself: bursts and cost go to Knative, latency and steadiness don't.
fn shape(function: &ValidFunction, platform: &Platform) -> Shape {
    let knative = platform.can_knative()
        && (function.is_bursty() || function.is_cost_bound())
        && function.latency.is_none_or(|latency| latency >= 50)
        && function.hard_latency.is_none_or(|hard| hard >= knative_floor(function, platform))
        && knative_refuses(function, platform).is_none();
    if knative { Shape::Knative } else { Shape::Deployment }
}

#[cfg(test)]
#[path = "select_tests.rs"]
mod tests;
