//! Labels, annotations and owners of everything that is made for a class.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::Resource as _;
use oprc_unit::names;

use super::{Context, FunctionPlan};
use crate::crd::ClassRuntime;

/// The class that an object belongs to.
pub const OWNER: &str = "oaas.io/owner";
/// The id that the class was deployed under; as an annotation, in full.
pub const DEPLOYMENT_ID: &str = "oaas.io/deployment-id";
/// The function that an object belongs to.
pub const FUNCTION: &str = "oaas.io/function";
/// What an object is part of: a function, or the data grid.
pub const COMPONENT: &str = "oaas.io/component";
/// The template that brought an object about.
pub const TEMPLATE: &str = "oaas.io/template";
/// The part of its class's data that a unit has.
pub const PARTITION: &str = "oaas.io/partition";
/// Which copy of that part.
pub const PARTITION_REPLICA: &str = "oaas.io/partition-replica";
/// The annotation with a digest of what is wanted of an object.
pub const WANTED: &str = "oaas.io/wanted";
/// Who made it.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The component label of the data grid.
pub const ODGM_COMPONENT: &str = "odgm";

type Labels = BTreeMap<String, String>;

fn map(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

impl Context<'_> {
    /// What a function's pods are found by.
    pub(super) fn function_selector(&self, plan: &FunctionPlan) -> Labels {
        let base = &self.class.identity.base;
        // During a change of template both are there: neither may take the other's pods for its own.
        let template = plan.shape.as_str();
        map(&[("app", base), (OWNER, base), (FUNCTION, &plan.label), (TEMPLATE, template)])
    }

    /// What the data grid's pods are found by: not by `app=<class>`, which is for functions.
    pub(super) fn odgm_selector(&self) -> Labels {
        let base = &self.class.identity.base;
        map(&[("app", &names::odgm(base)), (OWNER, base), (COMPONENT, ODGM_COMPONENT)])
    }

    fn common(&self, mut labels: Labels, component: &str, template: &str) -> Labels {
        labels.extend(map(&[
            (COMPONENT, component),
            (TEMPLATE, template),
            (DEPLOYMENT_ID, &names::label(&self.class.identity.deployment_id)),
            (MANAGED_BY, "oprc-crm"),
        ]));
        labels
    }

    /// Labels of everything that belongs to a function.
    pub(super) fn function_labels(&self, plan: &FunctionPlan) -> Labels {
        self.common(self.function_selector(plan), "function", plan.shape.as_str())
    }

    /// Labels of everything that belongs to the data grid.
    pub(super) fn odgm_labels(&self) -> Labels {
        self.common(self.odgm_selector(), ODGM_COMPONENT, ODGM_COMPONENT)
    }

    /// Tells Prometheus where a function's metrics are.
    pub(super) fn scrape_function(&self, port: i32) -> Labels {
        self.scrape(port, self.class.telemetry.metrics_path.as_deref())
    }

    /// Tells Prometheus where metrics are.
    pub(super) fn scrape(&self, port: i32, path: Option<&str>) -> Labels {
        if self.class.telemetry.metrics == Some(false) {
            return Labels::new();
        }
        let path = path.unwrap_or("/metrics");
        map(&[
            ("prometheus.io/scrape", "true"),
            ("prometheus.io/port", &port.to_string()),
            ("prometheus.io/path", path),
        ])
    }

    /// Metadata of an object of the class.
    pub(super) fn meta(&self, name: &str, mut labels: Labels) -> ObjectMeta {
        let identity = &self.class.identity;
        // Not of pods and claims: neither may be made anew for it.
        if let Some(part) = &self.class.partition {
            labels.extend(map(&[
                (PARTITION, &part.partition_id.to_string()),
                (PARTITION_REPLICA, &part.replica_id.to_string()),
            ]));
        }
        ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(identity.namespace.clone()),
            labels: Some(labels),
            annotations: Some(map(&[(DEPLOYMENT_ID, &identity.deployment_id)])),
            owner_references: Some(vec![OwnerReference {
                api_version: ClassRuntime::api_version(&()).into_owned(),
                kind: ClassRuntime::kind(&()).into_owned(),
                name: identity.name.clone(),
                uid: identity.uid.clone(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        }
    }
}

/// A selector of labels.
pub(super) fn selector(labels: Labels) -> LabelSelector {
    LabelSelector { match_labels: Some(labels), match_expressions: None }
}
