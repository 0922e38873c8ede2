//! Checks of the Kubernetes API of a cluster.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, api::PostParams};
use oprc_rest::Cluster;

use super::checks::{Checks, Outcome};
use crate::{
    contexts::Context,
    kube::{KubeArgs, connect, with_timeout},
    output::join_non_empty,
};

/// Plural of the CRD that CRM needs.
const CLASS_RUNTIMES: &str = "classruntimes";
/// APIs that are optional: name, API group and hint if the group is missing.
const OPTIONAL_APIS: [(&str, &str, &str); 2] = [
    (
        "Knative Serving",
        "serving.knative.dev",
        "install Knative Serving, or use the template k8s_deployment",
    ),
    (
        "Prometheus Operator",
        "monitoring.coreos.com",
        "install the Prometheus Operator to get a ServiceMonitor for each class",
    ),
];
/// Permissions that `logs`, `status --pods` and `invoke` need: verb, resource and subresource.
const PERMISSIONS: [(&str, &str, &str); 3] =
    [("list", "pods", ""), ("get", "pods", "log"), ("get", "services", "proxy")];

/// Checks the Kubernetes API of a cluster if there is direct access to it.
pub(super) async fn check_kubernetes(
    checks: &mut Checks,
    cluster: &Cluster,
    access: &KubeArgs,
    context: &Context,
) {
    let client = match connect(access, context, &cluster.name).await {
        Ok(client) => client,
        Err(error) => {
            let text = "no direct access to the Kubernetes API";
            let hint = "needed only for `logs`, `status --pods` and `invoke`";
            return checks.push(Outcome::Warning, text, &format!("{error:#}"), hint);
        }
    };
    let texts = ("Kubernetes API reachable", "Kubernetes API not reachable");
    let groups = with_timeout(client.list_api_groups()).await;
    let Some(groups) = checks.require(texts, groups, "check the kubeconfig") else { return };
    let kinds = with_timeout(client.list_api_group_resources("oaas.io/v1alpha1")).await;
    let found = kinds.is_ok_and(|it| it.resources.iter().any(|it| it.name == CLASS_RUNTIMES));
    let texts = ("CRDs installed", "CRDs not installed");
    let missing = format!("missing: {CLASS_RUNTIMES}");
    let hint = "kubectl apply --server-side -f k8s/crds";
    checks.expect(found, Outcome::Error, texts, &missing, hint);
    for (name, api, hint) in OPTIONAL_APIS {
        let found = groups.groups.iter().any(|it| it.name == api);
        let failed = format!("{name} API not installed in this cluster");
        let texts = (format!("{name} API installed"), failed);
        let missing = format!("missing API group {api}");
        checks.expect(found, Outcome::Warning, texts, &missing, hint);
    }
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client);
    for (verb, resource, subresource) in PERMISSIONS {
        let action = format!("{verb} {}", join_non_empty(&[resource, subresource], "/"));
        let review = access_review(verb, resource, subresource);
        let response = with_timeout(reviews.create(&PostParams::default(), &review)).await;
        let allowed = response.ok().and_then(|it| it.status).is_some_and(|it| it.allowed);
        let texts = (format!("permission to {action}"), format!("no permission to {action}"));
        let hint = "needed for `logs`, `status --pods` and `invoke`; request a Role for it";
        checks.expect(allowed, Outcome::Warning, texts, "", hint);
    }
}

fn access_review(verb: &str, resource: &str, subresource: &str) -> SelfSubjectAccessReview {
    let attributes = ResourceAttributes {
        verb: Some(verb.to_owned()),
        resource: Some(resource.to_owned()),
        subresource: Some(subresource.to_owned()).filter(|it| !it.is_empty()),
        ..ResourceAttributes::default()
    };
    SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    }
}
