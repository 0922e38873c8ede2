//! Metrics: each documented one exists, and follows a class from creation to deletion.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use oprc_tests::{
    TestNamespace,
    class::{delete, deploy, hello, spec_of, wait_available, wait_degraded, wait_deleted},
    crm::{Crm, Options},
    eventually,
    fixture::with_crm,
    http::get_ok,
    workspace,
};
use serde_json::json;

use crate::server::RESPONSE_TIMEOUT;

/// All metrics with their labels; a histogram by its count.
const METRICS: [(&str, &[&str]); 13] = [
    ("crm_deployments_total", &["environment", "template", "status"]),
    ("crm_deployment_duration_seconds", &["environment", "template"]),
    ("crm_deployment_failures_total", &["environment", "reason"]),
    ("crm_active_deployments", &["environment"]),
    ("crm_template_usage", &["environment", "template"]),
    ("crm_reconciliation_duration_seconds", &["result"]),
    ("crm_reconciliations_running", &[]),
    ("crm_queue_depth", &[]),
    ("crm_requeues_total", &[]),
    ("crm_grpc_requests_total", &["method", "code"]),
    ("crm_api_requests_total", &["verb", "code"]),
    ("crm_enforcement_frozen", &[]),
    ("crm_leading", &[]),
];

/// Those of a CRM that reads metrics of functions.
pub(crate) const NFR_METRICS: [(&str, &[&str]); 6] = [
    ("crm_function_throughput", &["environment", "function_key"]),
    ("crm_function_latency_seconds", &["environment", "function_key", "quantile"]),
    ("crm_nfr_violations_total", &["environment", "function_key", "type"]),
    ("crm_constraint_breaches_total", &["constraint", "environment", "function_key"]),
    ("crm_analyzer_pass_duration_seconds", &["result"]),
    ("crm_analyzer_queries_total", &["query", "result"]),
];

/// Metrics of classes that are enforced.
const ENFORCEMENT_METRICS: [&str; 4] = [
    "crm_enforcement_actions_total",
    "crm_enforcement_applied",
    "crm_enforcement_recommended",
    "crm_enforcement_held",
];

pub(crate) type Series = (String, BTreeMap<String, String>);
pub(crate) type Samples = BTreeMap<Series, f64>;

/// The present samples of a CRM.
pub(crate) async fn samples(crm: &Crm) -> Result<Samples, String> {
    let text = get_ok(&format!("{}/metrics", crm.url)).await?;
    let all = text.lines().filter(|line| !line.starts_with('#') && !line.contains("_bucket{"));
    Ok(all.filter_map(sample).collect())
}

fn sample(line: &str) -> Option<(Series, f64)> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let labels = labels.strip_suffix('}')?.split(',').filter(|label| !label.is_empty());
    let labels = labels.map(|label| {
        let (name, value) = label.split_once('=').unwrap();
        (name.to_owned(), value.trim_matches('"').to_owned())
    });
    let name = name.strip_suffix("_count").unwrap_or(name);
    Some(((name.to_owned(), labels.collect()), value.parse().ok()?))
}

/// The value of a series, or 0.
pub(crate) fn of_series(samples: &Samples, name: &str, labels: &[(&str, &str)]) -> f64 {
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    samples.get(&(name.to_owned(), labels.collect())).copied().unwrap_or_default()
}

/// Panics if there is no series with these labels.
pub(crate) fn assert_series(samples: &Samples, name: &str, labels: &[&str]) {
    let labels: BTreeSet<&str> = labels.iter().copied().collect();
    let same = samples.keys().any(|(other, other_labels)| {
        other == name && other_labels.keys().map(String::as_str).eq(labels.iter().copied())
    });
    assert!(same, "no {name} with {labels:?}: {samples:#?}");
}

/// The names of metrics in the tables below a folder of the documentation.
fn documented(folder: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            names.extend(documented(&path));
        } else if path.extension().is_some_and(|it| it == "md") {
            let text = fs::read_to_string(path).unwrap();
            let rows = text.lines().filter_map(|line| line.strip_prefix("| `crm_"));
            names.extend(rows.map(|row| format!("crm_{}", row.split('`').next().unwrap())));
        }
    }
    names
}

#[tokio::test]
async fn metrics_follow_a_class_from_creation_to_deletion() {
    let listed = METRICS.iter().chain(&NFR_METRICS).map(|(name, _)| *name);
    let listed: BTreeSet<String> = listed.chain(ENFORCEMENT_METRICS).map(str::to_owned).collect();
    assert_eq!(documented(&workspace().join("docs/reference")), listed);
    with_crm(&Options::default(), async |ns: &TestNamespace, crm: &Crm| {
        let mut spec = spec_of(&[hello("greet")]);
        spec["target_environment"] = json!("prod");
        spec["selected_template"] = json!("k8s_deployment");
        let mut broken = spec.clone();
        broken["functions"][0]["image"] = json!("oprc.local/nobody-has-this:1");
        deploy(&crm.client, "counted", &broken).await.unwrap();
        wait_degraded(ns, "counted", "ImagePullFailed").await;
        let failing = samples(crm).await.unwrap();
        let active = of_series(&failing, "crm_active_deployments", &[("environment", "prod")]);
        assert!(active < 1.0, "a class that failed is not active: {failing:#?}");
        deploy(&crm.client, "counted", &spec).await.unwrap();
        wait_available(ns, "counted").await;

        let prod = ("environment", "prod");
        let by_template = [prod, ("template", "k8s_deployment")];
        let transitions = |samples: &Samples, status: &str| {
            let labels = [by_template[0], by_template[1], ("status", status)];
            of_series(samples, "crm_deployments_total", &labels)
        };
        // Metrics are updated after the status is written.
        let reported = eventually("the class to be counted", RESPONSE_TIMEOUT, || async {
            let reported = samples(crm).await?;
            if transitions(&reported, "ACTIVE") > 0.0 {
                Ok(reported)
            } else {
                Err(format!("{reported:#?}"))
            }
        })
        .await;
        for (name, labels) in METRICS {
            assert_series(&reported, name, labels);
        }
        // Pods of the first specification may exist when the second is reconciled.
        let failed = [prod, ("reason", "ImagePullFailed")];
        assert!(
            of_series(&reported, "crm_deployment_failures_total", &failed) > 0.0,
            "{reported:#?}"
        );
        assert!(
            transitions(&reported, "PENDING") > 0.0 && transitions(&reported, "FAILED") > 0.0,
            "{reported:#?}"
        );
        let exactly = |name: &str, labels: &[(&str, &str)]| {
            let value = of_series(&reported, name, labels);
            assert!((value - 1.0).abs() < f64::EPSILON, "{name} {labels:?}: {reported:#?}");
        };
        // Only the second change became Available.
        exactly("crm_deployment_duration_seconds", &by_template);
        exactly("crm_active_deployments", &[prod]);
        exactly("crm_template_usage", &by_template);
        exactly("crm_leading", &[]);

        delete(&crm.client, "counted").await.unwrap();
        wait_deleted(ns, "counted").await;
        eventually("the class to be counted as deleted", RESPONSE_TIMEOUT, || async {
            let reported = samples(crm).await?;
            let deleted = (transitions(&reported, "DELETED") - 1.0).abs() < f64::EPSILON;
            let absent = of_series(&reported, "crm_active_deployments", &[prod]) < 1.0;
            if deleted && absent { Ok(()) } else { Err(format!("{reported:#?}")) }
        })
        .await;
    })
    .await;
}
