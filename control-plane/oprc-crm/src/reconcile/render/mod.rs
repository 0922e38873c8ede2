//! From a class and its template to the objects that are to be. One builder file for each kind.

mod autoscaler;
mod deployment;
mod disruption_budget;
mod job;
mod knative;
mod labels;
mod odgm;
mod pod;
mod service;
mod stamp;

use serde::Serialize;
use serde_json::Value;

use oprc_unit::{Platform, Selection, Shape, ValidClass, ValidFunction, names, shape_under};

use crate::kinds::Kind;

pub use self::labels::{
    COMPONENT, DEPLOYMENT_ID, FUNCTION, MANAGED_BY, ODGM_COMPONENT, OWNER, PARTITION,
    PARTITION_REPLICA, TEMPLATE, WANTED,
};

/// The port of the data grid's HTTP and gRPC server.
const GRID_PORT: i32 = 8081;
/// The variable that tells a function that its class has a data grid.
pub const ODGM_ENABLED: &str = "ODGM_ENABLED";

/// An object that is to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Everything that we say about it.
    pub object: Value,
    /// Whether it is a run to completion: its pods are settled with it, and once it has completed it
    /// isn't made again.
    pub runs_once: bool,
    /// Whether it is only made when the data grid is ready.
    pub waits_for_odgm: bool,
    /// Whether its pods use the data grid.
    pub runs_with_odgm: bool,
}

/// A function as it is to run.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionPlan {
    /// Its key.
    pub key: String,
    /// The value of its label.
    pub label: String,
    /// What it runs as.
    pub shape: Shape,
    /// The workload's name.
    pub workload: String,
    /// Where it answers, as far as that is known beforehand.
    pub url: Option<String>,
    /// How many instances must be there.
    pub min: i32,
    /// How many there may be; more than `min` means that they vary.
    pub max: i32,
    /// Whether an autoscaler of ours says how many there are.
    pub autoscaled: bool,
    /// A limit on calls at once that this shape doesn't enforce.
    pub unenforced_concurrency: Option<i32>,
}

impl FunctionPlan {
    /// Whether there are, or may come to be, several instances.
    pub fn is_many(&self) -> bool {
        self.min > 1 || (self.autoscaled && self.max > 1)
    }
}

/// A data grid as it is to run.
#[derive(Clone, Debug, PartialEq)]
pub struct OdgmWanted {
    /// The workload's kind.
    pub kind: Kind,
    /// The workload's name.
    pub workload: String,
    /// Where it answers.
    pub service: String,
    /// How many nodes.
    pub replicas: i32,
    /// How many of them must answer before functions are begun.
    pub needed: i32,
}

/// Everything that is to be for a class.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// Objects, in the order in which they are written.
    pub objects: Vec<Wanted>,
    /// Functions.
    pub functions: Vec<FunctionPlan>,
    /// The data grid.
    pub odgm: Option<OdgmWanted>,
}

/// What every builder needs.
pub(super) struct Context<'a> {
    class: &'a ValidClass,
    environment: &'a Platform,
    selection: &'a Selection,
}

/// Renders a class.
pub fn render(class: &ValidClass, selection: &Selection, environment: &Platform) -> Desired {
    let context = Context { class, environment, selection };
    let functions: Vec<_> = class.functions.iter().map(|it| context.plan(it)).collect();
    let mut objects = Vec::new();
    let odgm =
        class.odgm.as_ref().map(|plan| odgm::objects(&context, plan, &functions, &mut objects));
    for (function, plan) in class.functions.iter().zip(&functions) {
        match plan.shape {
            Shape::Deployment => {
                objects.push(service::of_function(&context, plan));
                objects.push(deployment::deployment(&context, function, plan));
                if plan.autoscaled {
                    objects.push(autoscaler::autoscaler(&context, plan));
                }
                if plan.is_many() {
                    objects.push(disruption_budget::of_function(&context, plan));
                }
            }
            Shape::Knative => objects.push(knative::service(&context, function, plan)),
            Shape::Job => objects.push(job::job(&context, function, plan)),
        }
    }
    objects.iter_mut().for_each(stamp::stamp);
    Desired { objects, functions, odgm }
}

impl Context<'_> {
    /// Sizes of the profile that the class has: CRM's own as they are configured, another's as
    /// they are.
    fn sized(&self) -> std::borrow::Cow<'_, Platform> {
        if self.selection.profile == self.environment.profile {
            std::borrow::Cow::Borrowed(self.environment)
        } else {
            std::borrow::Cow::Owned(Platform::of(self.selection.profile))
        }
    }

    fn plan(&self, function: &ValidFunction) -> FunctionPlan {
        let identity = &self.class.identity;
        let (base, key) = (&identity.base, function.name_key.as_deref());
        let shape = shape_under(self.selection.template, function, self.environment);
        let namespace = &identity.namespace;
        let (min, max) = bounds(function, shape, self.selection.profile.function_replicas());
        let workload = match shape {
            Shape::Deployment => names::function(base, key),
            Shape::Knative => names::knative(base, key),
            Shape::Job => names::job(base, key, identity.generation),
        };
        // Nobody calls a Job.
        let url = (shape != Shape::Job).then(|| format!("http://{workload}.{namespace}.svc"));
        FunctionPlan {
            key: function.key.clone(),
            label: names::label(&function.key),
            shape,
            workload,
            url,
            min,
            max,
            autoscaled: shape == Shape::Deployment && max > min && self.environment.features.hpa,
            unenforced_concurrency: function.max_concurrency.filter(|_| shape == Shape::Deployment),
        }
    }
}

/// How many instances a function has at least and at most.
fn bounds(function: &ValidFunction, shape: Shape, profile: i32) -> (i32, i32) {
    match shape {
        Shape::Job => (1, 1),
        // Nothing, for Knative, means without a bound.
        Shape::Knative => (
            if function.standby { 0 } else { function.min_scale.unwrap_or(0) },
            function.max_scale.unwrap_or(0),
        ),
        Shape::Deployment => {
            let by_load = function.throughput.map(|rps| (rps / 1000).max(1).saturating_mul(2));
            let max = function.max_scale;
            let min = match (function.min_scale, max) {
                (Some(min), _) => min.max(1),
                (None, _) if function.standby => 1,
                (None, max) => profile.min(max.unwrap_or(profile)),
            };
            // A floor of its own without a ceiling is a fixed number.
            let ceiling = max.or(if function.min_scale.is_some() { None } else { by_load });
            (min, ceiling.unwrap_or(min).max(min))
        }
    }
}

/// An object as we say it is to be. Our own types always serialise; what is left out of a type is
/// left out of the object.
fn wanted(kind: Kind, name: &str, object: &impl Serialize) -> Wanted {
    let mut object = serde_json::to_value(object).unwrap_or_default();
    if let Some(map) = object.as_object_mut() {
        map.insert("apiVersion".to_owned(), kind.api_version().into());
        map.insert("kind".to_owned(), kind.kind.to_string().into());
        map.remove("status");
    }
    Wanted {
        kind,
        name: name.to_owned(),
        object,
        runs_once: false,
        waits_for_odgm: false,
        runs_with_odgm: false,
    }
}
