//! Checks whether requirements are measured and enforced.

use std::time::Duration;

use oprc_rest::{ClassRuntime, Cluster};

use super::checks::{Checks, Outcome};
use crate::{
    client::{Client, escape, filtered},
    measurement::{
        NO_DATA, PROMETHEUS_DISABLED, PROMETHEUS_UNAVAILABLE, Unmeasured, observed_at,
        reads_prometheus,
    },
    output::{duration, join_non_empty},
};

/// Older measurements are a problem of CRM: it measures every minute by default.
const MAX_MEASUREMENT_AGE: Duration = Duration::from_mins(5);

/// Checks whether CRM measures requirements and enforces them.
pub(super) async fn check_requirements(checks: &mut Checks, client: &Client, cluster: &Cluster) {
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

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use oprc_rest::{FunctionStatus, NfrCompliance, NfrObserved};

    use super::*;

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
