//! Whether CRM measures the requirements of a class, and what to do if it doesn't.

use oprc_rest::{ClassRuntime, Cluster, Contact};
use oprc_unit::spec::EnforcementMode;

/// Capability of a cluster whose CRM reads Prometheus.
const PROMETHEUS: &str = "prometheus";
/// Reasons of the condition `NfrObserved`.
pub(crate) const PROMETHEUS_UNAVAILABLE: &str = "PrometheusUnavailable";
pub(crate) const PROMETHEUS_DISABLED: &str = "PrometheusDisabled";
pub(crate) const NO_DATA: &str = "NoData";

/// Why there are no measurements of a class. Each has a description and a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unmeasured {
    /// PM no longer knows the cluster.
    ClusterNotConfigured,
    /// PM isn't connected to the cluster.
    ClusterUnreachable,
    /// CRM reads no Prometheus.
    NotConfigured,
    /// CRM doesn't report whether it reads Prometheus.
    MaybeNotConfigured,
    /// CRM would read Prometheus, but the cluster lacks the CRDs of the Prometheus Operator.
    MissingCrds,
    /// Prometheus doesn't respond to CRM.
    Unreachable,
    /// The enforcement mode of the class is `off`.
    ModeOff,
    /// The status says that CRM measures it, but the replica that PM asks has no measurements.
    NotLeader,
    NotYet,
}

impl Unmeasured {
    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::ClusterNotConfigured => {
                "its cluster is no longer configured in the package manager"
            }
            Self::ClusterUnreachable => "its cluster is unreachable",
            Self::NotConfigured => "CRM reads no Prometheus",
            Self::MaybeNotConfigured => "CRM reports no measurements",
            Self::MissingCrds => "the CRDs of the Prometheus Operator are missing",
            Self::Unreachable => "CRM cannot read Prometheus",
            Self::ModeOff => "its enforcement mode is off",
            Self::NotLeader => "only the leader of CRM measures",
            Self::NotYet => "CRM has not reported measurements yet",
        }
    }

    pub(crate) fn hint(self) -> &'static str {
        match self {
            Self::ClusterNotConfigured => "add the cluster to OPRC_PM_CRM_CLUSTERS of PM",
            Self::ClusterUnreachable => "see `oprc cluster list` and `oprc check`",
            Self::NotConfigured => {
                "set prometheus.url of CRM, and features.prometheus if it is off"
            }
            Self::MaybeNotConfigured => {
                "set prometheus.url of CRM; if it is set, update CRM or see its logs"
            }
            Self::MissingCrds => {
                "install the Prometheus Operator, or set prometheus.scrape_kind of CRM to none if \
                 scraping is arranged elsewhere"
            }
            Self::Unreachable => {
                "check prometheus.url of CRM, its credentials, and NetworkPolicies between them"
            }
            Self::ModeOff => "set enforcement.mode of the deployment to OBSERVE or ENFORCE",
            Self::NotLeader => {
                "retry in a minute; if that doesn't help, the package manager is connected to another \
                 replica than the leader: see the Lease in the namespace of CRM"
            }
            Self::NotYet => "retry in a minute (nfr.interval of CRM); only its leader measures",
        }
    }
}

/// The time of the latest measurement of the class. None if the replica of CRM that PM asks has none.
pub(crate) fn observed_at(class: &ClassRuntime) -> Option<&str> {
    let measured = class.unit.functions.iter().filter_map(|it| it.nfr_compliance.as_ref());
    measured.map(|it| it.observed_at.as_str()).filter(|it| !it.is_empty()).max()
}

/// Whether CRM of the cluster reads Prometheus, if it reports that.
pub(crate) fn reads_prometheus(cluster: &Cluster) -> Option<bool> {
    cluster.capabilities.get(PROMETHEUS).copied()
}

/// Why the class has no measurements; none if it has. `cluster` is that of the class if PM knows it,
/// and `mode` the enforcement mode if it is known.
pub(crate) fn unmeasured(
    class: &ClassRuntime,
    cluster: Option<&Cluster>,
    mode: Option<EnforcementMode>,
) -> Option<Unmeasured> {
    if observed_at(class).is_some() {
        return None;
    }
    let reads_prometheus = cluster.and_then(reads_prometheus);
    let observed = class.unit.nfr_observed.as_ref();
    Some(match (class.unit.contact, observed) {
        (Contact::Unconfigured, _) => Unmeasured::ClusterNotConfigured,
        (Contact::Stale | Contact::Unknown, _) => Unmeasured::ClusterUnreachable,
        _ if mode == Some(EnforcementMode::Off) => Unmeasured::ModeOff,
        _ if reads_prometheus == Some(false) => Unmeasured::NotConfigured,
        (Contact::Fresh, Some(it)) if it.reason == PROMETHEUS_UNAVAILABLE => {
            Unmeasured::Unreachable
        }
        (Contact::Fresh, Some(it)) if it.reason == PROMETHEUS_DISABLED => {
            if reads_prometheus.is_some() {
                Unmeasured::MissingCrds
            } else {
                Unmeasured::NotConfigured
            }
        }
        (Contact::Fresh, Some(_)) => Unmeasured::NotLeader,
        (Contact::Fresh, None) if reads_prometheus.is_none() => Unmeasured::MaybeNotConfigured,
        (Contact::Fresh, None) => Unmeasured::NotYet,
    })
}

#[cfg(test)]
mod tests {
    use oprc_rest::{FunctionStatus, NfrCompliance, NfrObserved};

    use super::*;

    fn class(contact: Contact, reason: &str) -> ClassRuntime {
        let mut class = ClassRuntime::default();
        class.unit.contact = contact;
        class.unit.functions = vec![FunctionStatus::default()];
        class.unit.nfr_observed = (!reason.is_empty())
            .then(|| NfrObserved { reason: reason.to_owned(), ..NfrObserved::default() });
        class
    }

    fn cluster(prometheus: Option<bool>) -> Cluster {
        let capabilities = prometheus.map(|it| (PROMETHEUS.to_owned(), it)).into_iter().collect();
        Cluster { capabilities, ..Cluster::default() }
    }

    #[test]
    fn each_cause_is_distinguished() {
        let fresh = |reason: &str| class(Contact::Fresh, reason);
        let why = |class: &ClassRuntime, prometheus: Option<bool>| {
            unmeasured(class, Some(&cluster(prometheus)), None).unwrap()
        };
        assert_eq!(why(&fresh(""), Some(false)), Unmeasured::NotConfigured);
        assert_eq!(why(&fresh(""), None), Unmeasured::MaybeNotConfigured);
        assert_eq!(why(&fresh(""), Some(true)), Unmeasured::NotYet);
        assert_eq!(why(&fresh(PROMETHEUS_UNAVAILABLE), Some(true)), Unmeasured::Unreachable);
        assert_eq!(why(&fresh(PROMETHEUS_DISABLED), Some(false)), Unmeasured::NotConfigured);
        assert_eq!(why(&fresh(PROMETHEUS_DISABLED), None), Unmeasured::NotConfigured);
        assert_eq!(why(&fresh(PROMETHEUS_DISABLED), Some(true)), Unmeasured::MissingCrds);
        assert_eq!(why(&fresh("Measured"), None), Unmeasured::NotLeader);
        let gone = class(Contact::Unconfigured, "");
        assert_eq!(why(&gone, Some(true)), Unmeasured::ClusterNotConfigured);
        let away = class(Contact::Unknown, "Measured");
        assert_eq!(why(&away, Some(true)), Unmeasured::ClusterUnreachable);
        let off = unmeasured(&fresh(""), None, Some(EnforcementMode::Off));
        assert_eq!(off, Some(Unmeasured::ModeOff));
        let mut measured = fresh("NoData");
        let at = |at: &str| NfrCompliance { observed_at: at.to_owned(), ..Default::default() };
        measured.unit.functions[0].nfr_compliance = Some(at(""));
        assert_eq!(unmeasured(&measured, None, None), Some(Unmeasured::NotLeader));
        measured.unit.functions[0].nfr_compliance = Some(at("2026-11-16T12:00:00Z"));
        assert_eq!(unmeasured(&measured, None, None), None);
    }
}
