//! APIs that a cluster may lack. CRM detects them at start and while it runs; another one is one
//! more entry in [`OPTIONAL_APIS`].

use crate::kinds::{KNATIVE_SERVICE, Kind, POD_MONITOR, SERVICE_MONITOR};

/// Which optional APIs the cluster serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detected {
    pub knative: bool,
    /// Resource metrics, without which an autoscaler has nothing to scale by.
    pub metrics: bool,
    /// The kinds of the Prometheus Operator.
    pub service_monitors: bool,
    pub pod_monitors: bool,
}

/// The object whose state says whether an API is served.
pub(super) enum Evidence {
    CustomResourceDefinition,
    /// For APIs that an extension server serves.
    ApiService,
}

pub(super) struct OptionalApi {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    /// The resource that must be served, by its plural.
    pub(super) resource: &'static str,
    pub(super) evidence: Evidence,
    /// Objects of the API that CRM watches while it is served. CRM isn't ready before it knows
    /// whether they exist.
    pub(super) children: Option<Kind>,
    /// Tells the objects of the API from those of others with the same plural.
    prefix: &'static str,
    pub(super) detected: fn(&mut Detected) -> &mut bool,
}

pub(super) static OPTIONAL_APIS: [OptionalApi; 4] = [
    OptionalApi {
        group: "serving.knative.dev",
        version: "v1",
        resource: "services",
        evidence: Evidence::CustomResourceDefinition,
        children: Some(KNATIVE_SERVICE),
        prefix: "knative",
        detected: |detected| &mut detected.knative,
    },
    OptionalApi {
        group: "metrics.k8s.io",
        version: "v1beta1",
        resource: "pods",
        evidence: Evidence::ApiService,
        children: None,
        prefix: "metrics",
        detected: |detected| &mut detected.metrics,
    },
    OptionalApi {
        group: SERVICE_MONITOR.group,
        version: SERVICE_MONITOR.version,
        resource: SERVICE_MONITOR.plural,
        evidence: Evidence::CustomResourceDefinition,
        children: Some(SERVICE_MONITOR),
        prefix: "prometheus",
        detected: |detected| &mut detected.service_monitors,
    },
    OptionalApi {
        group: POD_MONITOR.group,
        version: POD_MONITOR.version,
        resource: POD_MONITOR.plural,
        evidence: Evidence::CustomResourceDefinition,
        children: Some(POD_MONITOR),
        prefix: "prometheus",
        detected: |detected| &mut detected.pod_monitors,
    },
];

impl OptionalApi {
    /// Whether it is of use only if CRM reads metrics from Prometheus.
    pub(super) fn is_for_metrics(&self) -> bool {
        self.group == SERVICE_MONITOR.group
    }

    pub(super) fn group_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// The name of the object that is the evidence.
    pub(super) fn evidence_name(&self) -> String {
        match self.evidence {
            Evidence::CustomResourceDefinition => format!("{}.{}", self.resource, self.group),
            Evidence::ApiService => format!("{}.{}", self.version, self.group),
        }
    }

    /// What the detection of this API is called in readiness reports.
    pub(super) fn detection(&self) -> String {
        format!("detection of {}", self.evidence_name())
    }
}

/// The API that a kind belongs to, if the cluster may lack it.
pub(super) fn api_of(kind: &Kind) -> Option<&'static OptionalApi> {
    OPTIONAL_APIS.iter().find(|api| api.group == kind.group)
}

/// What the watch on a kind is called in logs and readiness reports.
pub(super) fn watch_name(kind: &Kind) -> String {
    named(api_of(kind), kind.plural)
}

/// The same for the path of a request, which ends in the plural.
pub(super) fn watch_name_in(path: &str) -> String {
    let api = OPTIONAL_APIS.iter().find(|api| path.contains(&format!("/{}/", api.group)));
    named(api, path.rsplit('/').next().unwrap_or_default())
}

fn named(api: Option<&OptionalApi>, plural: &str) -> String {
    api.map_or_else(|| plural.to_owned(), |api| format!("{} {plural}", api.prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::SERVICE;

    #[test]
    fn evidence_is_named_as_the_api_server_names_it() {
        let names = OPTIONAL_APIS.each_ref().map(OptionalApi::evidence_name);
        let monitors = ["servicemonitors", "podmonitors"];
        let [services, pods] = monitors.map(|it| format!("{it}.monitoring.coreos.com"));
        let knative = "services.serving.knative.dev".to_owned();
        assert_eq!(names, [knative, "v1beta1.metrics.k8s.io".to_owned(), services, pods]);
    }

    #[test]
    fn knative_services_and_services_have_different_watches() {
        assert_eq!(watch_name(&SERVICE), "services");
        assert_eq!(watch_name(&KNATIVE_SERVICE), "knative services");
        let path = "/apis/serving.knative.dev/v1/namespaces/n/services";
        assert_eq!(watch_name_in(path), "knative services");
    }

    #[test]
    fn each_api_is_detected_by_itself() {
        for api in &OPTIONAL_APIS {
            let mut detected = Detected::default();
            *(api.detected)(&mut detected) = true;
            let Detected { knative, metrics, service_monitors, pod_monitors } = detected;
            let all = [knative, metrics, service_monitors, pod_monitors];
            assert_eq!(all.iter().filter(|it| **it).count(), 1, "{}", api.group);
        }
    }
}
