//! `oprc check`: checks the package manager and its clusters, with hints for each problem.

use std::{
    fmt::Write as _,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Result;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, api::PostParams};
use oprc_rest::{ClassRuntime, Cluster, Health, Page};
use serde::{Serialize, de::IgnoredAny};

use crate::{
    client::{Client, escape, filtered},
    connection::ApiArgs,
    contexts::Context,
    kube::{KubeArgs, connect, with_timeout},
    measurement::{
        NO_DATA, PROMETHEUS_DISABLED, PROMETHEUS_UNAVAILABLE, Unmeasured, observed_at,
        reads_prometheus,
    },
    output::{Format, Tone, duration, join_non_empty, note, paint, sanitize},
};

const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Older measurements are a problem of CRM: it measures every minute by default.
const MAX_MEASUREMENT_AGE: Duration = Duration::from_mins(5);
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
/// Permissions that `logs`, `status --pods` and `invoke` need: verb, resource and subresource.
const PERMISSIONS: [(&str, &str, &str); 3] =
    [("list", "pods", ""), ("get", "pods", "log"), ("get", "services", "proxy")];

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  oprc check\n  oprc check --wait 2m -o json")]
pub(crate) struct Command {
    /// Retry until all checks pass or the timeout expires, such as 30s or 5m.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    wait: Option<Duration>,
    /// Check only the package manager and what it reports, without access to clusters.
    #[arg(long)]
    no_clusters: bool,
    #[command(flatten)]
    access: KubeArgs,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Success,
    Warning,
    Error,
}

#[derive(Clone, Debug, Serialize)]
struct Check {
    group: String,
    description: String,
    result: Outcome,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    hint: String,
}

#[derive(Debug, Default)]
struct Checks {
    /// Group of the next checks.
    group: String,
    all: Vec<Check>,
}

impl Checks {
    fn push(&mut self, result: Outcome, description: impl Into<String>, message: &str, hint: &str) {
        self.all.push(Check {
            group: self.group.clone(),
            description: description.into(),
            result,
            message: message.trim().to_owned(),
            hint: hint.to_owned(),
        });
    }

    /// Adds `passed`, or `failed` with the severity, message and hint.
    fn expect(
        &mut self,
        passes: bool,
        severity: Outcome,
        (passed, failed): (impl Into<String>, impl Into<String>),
        message: &str,
        hint: &str,
    ) {
        if passes {
            self.push(Outcome::Success, passed, "", "");
        } else {
            self.push(severity, failed, message, hint);
        }
    }

    /// Adds an error if the result is one.
    fn require<T>(
        &mut self,
        texts: (impl Into<String>, impl Into<String>),
        result: Result<T>,
        hint: &str,
    ) -> Option<T> {
        let message = result.as_ref().err().map(|error| format!("{error:#}")).unwrap_or_default();
        // The hint of the check replaces that of the error.
        let message = message.split("\nhint:").next().unwrap_or_default();
        self.expect(result.is_ok(), Outcome::Error, texts, message, hint);
        result.ok()
    }

    fn failed(&self) -> usize {
        self.all.iter().filter(|check| check.result == Outcome::Error).count()
    }
}

pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    command.api.show.reject_formats(&[Format::Name, Format::Wide])?;
    let started = Instant::now();
    let checks = loop {
        let checks = check_all(&command).await?;
        let left = command.wait.and_then(|wait| wait.checked_sub(started.elapsed()));
        match left {
            Some(left) if checks.failed() > 0 => tokio::time::sleep(RETRY_INTERVAL.min(left)).await,
            _ => break checks,
        }
    };
    command.api.show.print_result(&checks.all, || render(&checks.all))?;
    match checks.failed() {
        0 => Ok(ExitCode::SUCCESS),
        failed => {
            note(&format!("{failed} of {} checks failed", checks.all.len()));
            Ok(ExitCode::FAILURE)
        }
    }
}

async fn check_all(command: &Command) -> Result<Checks> {
    let mut checks = Checks { group: "package manager".to_owned(), all: Vec::new() };
    let client = command.api.client().await;
    let texts = ("connection configured", "connection not configured correctly");
    let hint = "check the context with `oprc context list`";
    let Some(client) = checks.require(texts, client, hint) else { return Ok(checks) };
    let Some(clusters) = check_package_manager(&mut checks, &client).await else {
        return Ok(checks);
    };
    let context = command.api.connection.resolve()?;
    if clusters.is_empty() {
        let hint = "configure a cluster in PM (OPRC_PM_CRM_CLUSTERS)";
        "clusters".clone_into(&mut checks.group);
        checks.push(Outcome::Error, "no clusters configured", "", hint);
    }
    for cluster in &clusters {
        checks.group = format!("cluster {}", cluster.name);
        check_crm(&mut checks, cluster);
        if cluster.health != Health::Unreachable {
            check_requirements(&mut checks, &client, cluster).await;
        }
        if !command.no_clusters {
            check_kubernetes(&mut checks, cluster, &command.access, &context).await;
        }
    }
    Ok(checks)
}

/// Returns the clusters of the package manager if it lists them.
async fn check_package_manager(checks: &mut Checks, client: &Client) -> Option<Vec<Cluster>> {
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
fn check_crm(checks: &mut Checks, cluster: &Cluster) {
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

/// Checks whether CRM measures requirements and enforces them.
async fn check_requirements(checks: &mut Checks, client: &Client, cluster: &Cluster) {
    let path = filtered("/class-runtimes", &[("cluster", Some(&cluster.name))]);
    let mut classes: Vec<ClassRuntime> = match client.list(&path).await {
        Ok(classes) => classes,
        Err(error) => {
            let hint = "see the logs of oprc-pm";
            return checks.push(
                Outcome::Warning,
                "cannot list classes",
                &format!("{error:#}"),
                hint,
            );
        }
    };
    // The list has measurements of the last change of a class, a single class the latest.
    let measured =
        classes.iter_mut().find(|it| it.unit.nfr_observed.as_ref().is_some_and(|it| it.measured));
    if let Some(class) = measured {
        let path = format!("/class-runtimes/{}", escape(&class.id));
        let path = filtered(&path, &[("cluster", Some(&cluster.name))]);
        if let Ok(latest) = client.get(&path).await {
            *class = latest;
        }
    }
    check_measurement(checks, cluster, &classes);
    if let Some(enforces) = cluster.capabilities.get("nfr_enforcement") {
        let texts = (
            "enforcement of requirements available",
            "requirements are not enforced in this cluster",
        );
        let hint = "set features.nfr_enforcement in CRM to apply recommendations to classes in mode enforce";
        checks.expect(*enforces, Outcome::Warning, texts, "", hint);
    }
}

/// Distinguishes a Prometheus that isn't configured, isn't reachable, or has no series.
fn check_measurement(checks: &mut Checks, cluster: &Cluster, classes: &[ClassRuntime]) {
    let observed: Vec<_> =
        classes.iter().filter_map(|it| Some((it, it.unit.nfr_observed.as_ref()?))).collect();
    let with_reason = |reason: &str| {
        let found: Vec<_> = observed.iter().filter(|(_, it)| it.reason == reason).collect();
        found
    };
    let mut warn = |description: String, message: &str, hint: &str| {
        checks.push(Outcome::Warning, description, message, hint);
    };
    let unavailable = with_reason(PROMETHEUS_UNAVAILABLE);
    let no_data = with_reason(NO_DATA);
    let not_configured = reads_prometheus(cluster) == Some(false);
    if not_configured {
        let hint = Unmeasured::NotConfigured.hint();
        return warn(
            "Prometheus not configured in CRM; requirements are not measured".to_owned(),
            "",
            hint,
        );
    }
    if let Some((_, condition)) = with_reason(PROMETHEUS_DISABLED).first() {
        let cause = Unmeasured::MissingCrds;
        let description = format!("{}; requirements are not measured", cause.description());
        return warn(description, &condition.message, cause.hint());
    }
    if let Some((_, condition)) = unavailable.first() {
        let description =
            format!("Prometheus not reachable from CRM for {}", duration::age(&condition.since));
        return warn(description, &condition.message, Unmeasured::Unreachable.hint());
    }
    if let Some((class, condition)) = no_data.first() {
        let (count, all) = (no_data.len(), observed.len());
        let description = format!(
            "Prometheus reachable, but without series for {count} of {all} classes with requirements"
        );
        let message = join_non_empty(&[&class.unit.class, &condition.message], ": ");
        let hint = "check that Prometheus scrapes port proxy-metrics of the pods, and that `proxy` of the class isn't `never`";
        return warn(description, &message, hint);
    }
    if observed.is_empty() {
        if reads_prometheus(cluster).is_none() {
            let hint = Unmeasured::MaybeNotConfigured.hint();
            return warn("no class with requirements is measured".to_owned(), "", hint);
        }
        let description =
            "Prometheus configured in CRM; no class with requirements is measured yet";
        return checks.push(Outcome::Success, description, "", "");
    }
    let latest = classes.iter().filter_map(observed_at).max();
    let Some(latest) = latest else {
        return warn("no measurements from CRM".to_owned(), "", Unmeasured::NotLeader.hint());
    };
    let age = duration::elapsed(latest).unwrap_or_default();
    if age > MAX_MEASUREMENT_AGE {
        let description = format!("requirements measured {} ago", duration::short(age));
        return warn(
            description,
            "",
            "see the logs of the leading oprc-crm and its metric crm_analyzer_queries_total",
        );
    }
    let description =
        format!("requirements measured {} ago (classes: {})", duration::short(age), observed.len());
    checks.push(Outcome::Success, description, "", "");
}

/// Checks the Kubernetes API of a cluster if there is direct access to it.
async fn check_kubernetes(
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

fn render(checks: &[Check]) -> String {
    let mut text = String::new();
    let mut group = "";
    for check in checks {
        if check.group != group {
            let blank = if group.is_empty() { "" } else { "\n" };
            let title = sanitize(&check.group);
            let line = "-".repeat(title.chars().count());
            let _ = writeln!(text, "{blank}{title}\n{line}");
            group = &check.group;
        }
        let mark = match check.result {
            Outcome::Success => paint(Tone::Good, "√"),
            Outcome::Warning => paint(Tone::Fair, "‼"),
            Outcome::Error => paint(Tone::Bad, "×"),
        };
        let _ = writeln!(text, "{mark} {}", sanitize(&check.description));
        for (label, detail) in [("", &check.message), ("hint: ", &check.hint)] {
            if !detail.is_empty() {
                let _ = writeln!(text, "    {label}{}", sanitize(detail));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use oprc_rest::{FunctionStatus, NfrCompliance, NfrObserved};

    use super::*;

    #[test]
    fn groups_checks_and_prints_hints() {
        let mut checks = Checks { group: "a".to_owned(), all: Vec::new() };
        assert!(checks.require(("one", "not one"), Ok(()), "do nothing").is_some());
        checks.push(Outcome::Warning, "two", "not quite", "do this");
        assert_eq!(checks.failed(), 0);
        checks.group = "bc".to_owned();
        let error: Result<()> = Err(anyhow::anyhow!("no\nhint: other"));
        assert!(checks.require(("3", "no 3"), error, "do that").is_none());
        assert_eq!(checks.failed(), 1);
        let plain = anstream::adapter::strip_str(&render(&checks.all)).to_string();
        assert_eq!(
            plain,
            "a\n-\n√ one\n‼ two\n    not quite\n    hint: do this\n\n\
             bc\n--\n× no 3\n    no\n    hint: do that\n"
        );
    }

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

    #[test]
    fn distinguishes_why_requirements_are_not_measured() {
        let class = |reason: &str, age: Option<i64>| {
            let mut class = ClassRuntime::default();
            "Order".clone_into(&mut class.unit.class);
            class.unit.nfr_observed = Some(NfrObserved {
                measured: reason == "Measured",
                reason: reason.to_owned(),
                message: "why".to_owned(),
                since: Timestamp::now().to_string(),
            });
            class.unit.functions = vec![FunctionStatus {
                nfr_compliance: age.map(|age| NfrCompliance {
                    observed_at: (Timestamp::now() - SignedDuration::from_secs(age)).to_string(),
                    ..NfrCompliance::default()
                }),
                ..FunctionStatus::default()
            }];
            class
        };
        let found = |prometheus: Option<bool>, classes: &[ClassRuntime]| {
            let mut checks = Checks::default();
            let capabilities =
                prometheus.map(|it| ("prometheus".to_owned(), it)).into_iter().collect();
            check_measurement(
                &mut checks,
                &Cluster { capabilities, ..Cluster::default() },
                classes,
            );
            let [check] = checks.all.as_slice() else { panic!("{checks:?}") };
            assert_eq!(check.hint.is_empty(), check.result == Outcome::Success, "{check:?}");
            (check.result, check.description.clone())
        };
        let (measured, no_data) = (class("Measured", Some(12)), class("NoData", None));
        for (prometheus, classes, result, description) in [
            (Some(false), &[][..], Outcome::Warning, "Prometheus not configured in CRM"),
            (None, &[], Outcome::Warning, "no class with requirements is measured"),
            (Some(true), &[], Outcome::Success, "Prometheus configured in CRM"),
            (
                Some(true),
                &[measured.clone(), class("PrometheusUnavailable", None)],
                Outcome::Warning,
                "Prometheus not reachable from CRM for 0s",
            ),
            (
                Some(true),
                &[class("PrometheusDisabled", None)],
                Outcome::Warning,
                "the CRDs of the Prometheus Operator are missing; requirements are not measured",
            ),
            (
                None,
                &[measured.clone(), no_data],
                Outcome::Warning,
                "Prometheus reachable, but without series for 1 of 2 classes",
            ),
            (None, &[class("Measured", None)], Outcome::Warning, "no measurements from CRM"),
            (
                None,
                &[class("Measured", Some(3600))],
                Outcome::Warning,
                "requirements measured 60m ago",
            ),
            (None, &[measured], Outcome::Success, "requirements measured 12s ago (classes: 1)"),
        ] {
            let found = found(prometheus, classes);
            assert_eq!(found.0, result, "{found:?}");
            assert!(found.1.starts_with(description), "{found:?}");
        }
    }
}
