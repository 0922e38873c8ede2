//! Checks of the package manager, and of what it reports about a cluster.

use oprc_rest::{Cluster, Health, Page};
use serde::de::IgnoredAny;

use super::checks::{Checks, Outcome};
use crate::client::Client;

/// Capabilities that CRM reports: key, name and hint if it is missing.
const CAPABILITIES: [(&str, &str, &str); 3] = [
    ("odgm", "data grid (ODGM)", "set features.odgm in CRM to enable stateful classes"),
    ("knative", "Knative", "install Knative Serving to enable scale to zero"),
    (
        "hpa",
        "autoscaling (HPA)",
        "set features.hpa in CRM and install metrics-server to enable autoscaling",
    ),
];

/// Returns the clusters of the package manager if it lists them.
pub(super) async fn check_package_manager(
    checks: &mut Checks,
    client: &Client,
) -> Option<Vec<Cluster>> {
    let server = client.server();
    let texts = (format!("{server} responds"), format!("{server} does not respond"));
    let hint = "check that oprc-pm is running and its address with `oprc context list`";
    checks.require(texts, client.text("/health/live").await, hint)?;
    let texts = ("ready to serve requests", "not ready to serve requests");
    let hint =
        "see the logs of oprc-pm: the store may be unavailable, or another replica is leader";
    checks.require(texts, client.text("/health/ready").await, hint);
    let texts = ("credentials accepted", "credentials not accepted");
    let hint = "use a valid token: --token-file, or `oprc context set NAME --token-file FILE`";
    checks.require(texts, client.get::<Page<IgnoredAny>>("/packages?limit=1").await, hint)?;
    let texts = ("cluster list retrieved", "cannot list clusters");
    checks.require(texts, client.list("/clusters").await, "see the logs of oprc-pm")
}

/// Checks what the package manager reports about a cluster.
pub(super) fn check_crm(checks: &mut Checks, cluster: &Cluster) {
    let (severity, failed) = match cluster.health {
        Health::Unreachable => (Outcome::Error, "CRM is unreachable"),
        Health::Healthy | Health::Degraded => (Outcome::Warning, "CRM is degraded"),
    };
    let (healthy, texts) = (cluster.health == Health::Healthy, ("CRM is healthy", failed));
    let hint =
        "check that oprc-crm is running there, and its address, token and certificates in PM";
    checks.expect(healthy, severity, texts, &cluster.message, hint);
    if cluster.health == Health::Unreachable {
        return;
    }
    let (ready, all) = cluster.ready_nodes.zip(cluster.nodes).unwrap_or_default();
    let texts = ("all nodes are ready", format!("only {ready} of {all} nodes are ready"));
    checks.expect(ready >= all, Outcome::Warning, texts, "", "see `kubectl get nodes`");
    for (key, name, hint) in CAPABILITIES {
        let available = cluster.capabilities.get(key).copied().unwrap_or_default();
        let texts = (format!("{name} available"), format!("{name} not available in this cluster"));
        checks.expect(available, Outcome::Warning, texts, "", hint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreachable_clusters_are_errors_and_missing_capabilities_warnings() {
        let mut checks = Checks::default();
        check_crm(&mut checks, &Cluster { name: "east".to_owned(), ..Cluster::default() });
        assert_eq!(checks.failed(), 1);
        let mut checks = Checks::default();
        check_crm(&mut checks, &Cluster { health: Health::Healthy, ..Cluster::default() });
        assert_eq!(checks.failed(), 0);
        let knative = checks.all.iter().find(|it| it.description.contains("Knative")).unwrap();
        assert_eq!(knative.description, "Knative not available in this cluster");
        assert_eq!(knative.result, Outcome::Warning);
    }
}
