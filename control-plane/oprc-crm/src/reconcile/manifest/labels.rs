//! Labels, annotations and owner references of a class's objects.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::Resource as _;
use oprc_unit::names;

use super::{Context, FunctionPlan};
use crate::crd::ClassRuntime;

/// Label: the class that an object belongs to.
pub const OWNER: &str = "oaas.io/owner";
/// Label and annotation: the deployment id of the class; the annotation has it unabridged.
pub const DEPLOYMENT_ID: &str = "oaas.io/deployment-id";
/// Label: the function that an object belongs to.
pub const FUNCTION: &str = "oaas.io/function";
/// Label: `function` or `odgm`.
pub const COMPONENT: &str = "oaas.io/component";
/// Label: the shape that an object belongs to, or `odgm`.
pub const TEMPLATE: &str = "oaas.io/template";
/// Label: the partition that a unit holds.
pub const PARTITION: &str = "oaas.io/partition";
/// Label: the replica of that partition.
pub const PARTITION_REPLICA: &str = "oaas.io/partition-replica";
/// Annotation: a hash of the object's desired spec.
pub const SPEC_HASH: &str = "oaas.io/spec-hash";
/// Annotation of a Secret: the DNS name of its certificate.
pub const DNS_NAME: &str = "oaas.io/dns-name";
/// Annotation of a Secret: when its certificate is to be renewed.
pub const RENEW_AFTER: &str = "oaas.io/renew-after";
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`COMPONENT`] and [`TEMPLATE`] on objects of the data grid.
pub const ODGM_COMPONENT: &str = oprc_unit::replication::ODGM;

pub(crate) type Labels = BTreeMap<String, String>;

fn map(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

impl Context<'_> {
    pub(crate) fn function_selector(&self, plan: &FunctionPlan) -> Labels {
        let base = &self.class.identity.base;
        // While the shape changes, both workloads exist; the selectors must not overlap.
        let template = plan.shape.as_str();
        map(&[("app", base), (OWNER, base), (FUNCTION, &plan.label), (TEMPLATE, template)])
    }

    /// Not `app=<class>`, which selects functions.
    pub(crate) fn odgm_selector(&self) -> Labels {
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

    pub(crate) fn function_labels(&self, plan: &FunctionPlan) -> Labels {
        self.common(self.function_selector(plan), "function", plan.shape.as_str())
    }

    pub(crate) fn odgm_labels(&self) -> Labels {
        self.common(self.odgm_selector(), ODGM_COMPONENT, ODGM_COMPONENT)
    }

    pub(crate) fn scrape_function(&self, port: i32) -> Labels {
        self.scrape(port, self.class.telemetry.metrics_path.as_deref())
    }

    /// Annotations for Prometheus.
    pub(crate) fn scrape(&self, port: i32, path: Option<&str>) -> Labels {
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

    pub(crate) fn meta(&self, name: &str, mut labels: Labels) -> ObjectMeta {
        let identity = &self.class.identity;
        // Pods and claims don't have them: a change must not recreate either.
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

pub(crate) fn selector(labels: Labels) -> LabelSelector {
    LabelSelector { match_labels: Some(labels), match_expressions: None }
}
