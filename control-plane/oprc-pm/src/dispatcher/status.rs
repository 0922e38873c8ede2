//! The status of deployments and units as the API reports it (docs/reference/states.md).

use oprc_grpc::deployment::{ClassRuntime, FunctionState};
use oprc_rest::{Condition, Contact, DeploymentStatus, FunctionStatus, GridStatus, UnitStatus};
use oprc_unit::Phase;

use super::{CallBackoff, nfr};
use crate::{
    crm_client::{Clusters, observed_unit},
    rollout::{
        DeploymentRecord, ObservedUnit, UnitKey, UnitRecord, condition, is_available, is_current,
    },
    state::VersionedUnit,
};

pub fn status(
    record: &DeploymentRecord,
    units: &[VersionedUnit],
    clusters: &Clusters,
    call_backoff: &CallBackoff,
) -> DeploymentStatus {
    let (mut all, mut counted) = (Vec::new(), Vec::new());
    for (key, stored) in units {
        let unit = unit_status(key, &stored.record, clusters, call_backoff);
        // Units that are being deleted count only if the whole deployment is.
        if stored.record.desired || record.is_deleting() {
            counted.push(unit.clone());
        }
        all.push(unit);
    }
    let (condition, message) = condition(&record.stage, &counted);
    DeploymentStatus {
        condition,
        message,
        revision: record.revision.clone(),
        since: record.stage_since.to_string(),
        available: counted.iter().filter(|unit| is_available(unit)).count(),
        units_total: counted.len(),
        units: all,
    }
}

pub fn unit_status(
    key: &UnitKey,
    record: &UnitRecord,
    clusters: &Clusters,
    call_backoff: &CallBackoff,
) -> UnitStatus {
    let (cluster, id) = key;
    let cache = clusters.client(cluster).map(|client| client.class_cache());
    let contact = cache.as_ref().map_or(Contact::Unconfigured, |cache| cache.contact());
    let class = cache.as_ref().and_then(|cache| cache.class(id, record.object_namespace()));
    let reported = class.map(|class| class_status(cluster, class, contact)).unwrap_or_default();
    let mut unit = UnitStatus {
        id: id.clone(),
        cluster: cluster.clone(),
        environment: record.environment.clone(),
        class: record.class.clone(),
        contact,
        current: class.is_some_and(|class| is_current(record, &observed_unit(class))),
        ..reported
    };
    if unit.namespace.is_empty() {
        unit.namespace.clone_from(&record.namespace);
    }
    if !record.desired {
        unit.condition = Condition::Deleted;
    } else if !unit.current {
        // The report is about another spec than the desired one.
        unit.condition = if class.is_some() { Condition::Deploying } else { Condition::Pending };
    }
    if let Some(why) = call_backoff.rejection(key, record) {
        unit.condition = Condition::Down;
        "Rejected".clone_into(&mut unit.reason);
        unit.message = why;
    } else if !unit.current
        && let Some(error) = call_backoff.last_error(key, record)
    {
        unit.message = error;
    }
    unit
}

/// The status of a class as its cluster reports it.
pub fn class_status(cluster: &str, class: &ClassRuntime, contact: Contact) -> UnitStatus {
    let status = class.status.clone().unwrap_or_default();
    let nfr_observed = nfr::observed(&status.conditions);
    let text = |text: String| Some(text).filter(|text| !text.is_empty());
    let functions = status.functions.into_iter().map(|function| FunctionStatus {
        condition: function_condition(function.condition()),
        unit: class.deployment_id.clone(),
        cluster: cluster.to_owned(),
        invocation_url: text(function.public_url).or(text(function.invocation_url.clone())),
        cluster_url: text(function.invocation_url),
        error_msg: text(function.error_msg),
        odgm_connection_status: text(function.odgm_connection_status),
        nfr_compliance: function.nfr_compliance.map(nfr::compliance),
        key: function.key,
    });
    UnitStatus {
        id: class.deployment_id.clone(),
        cluster: cluster.to_owned(),
        environment: class.environment.clone(),
        namespace: class.namespace.clone(),
        class: class.class.clone(),
        condition: unit_condition(&observed_unit(class)),
        reason: status.reason,
        message: status.message,
        template: status.selection.map(|it| it.template).unwrap_or_default(),
        current: true,
        contact,
        since: status
            .conditions
            .into_iter()
            .find(|condition| condition.r#type == status.phase)
            .map_or(status.last_updated, |condition| condition.last_transition_time),
        functions: functions.collect(),
        odgm: status.odgm.map(|grid| GridStatus {
            service: grid.service,
            ready: grid.ready,
            replicas: grid.replicas,
            collections: grid.collections.into_iter().map(|it| it.name).collect(),
        }),
        nfr_observed,
        nfr_recommendations: nfr::recommendations(status.nfr_recommendations),
        last_applied_recommendations: nfr::recommendations(status.last_applied_recommendations),
        last_applied_at: text(status.last_applied_at),
        nfr_history: nfr::history(status.nfr_history),
        oom_kills: nfr::oom_kills(status.oom_kills),
        phase: status.phase,
    }
}

fn unit_condition(unit: &ObservedUnit) -> Condition {
    if unit.deleting {
        return Condition::Deleted;
    }
    match unit.phase {
        Phase::Pending => Condition::Pending,
        Phase::Applying | Phase::Progressing => Condition::Deploying,
        // The status is about an earlier generation.
        Phase::Available | Phase::Degraded if unit.current_phase().is_none() => {
            Condition::Deploying
        }
        Phase::Available => Condition::Running,
        Phase::Degraded => Condition::Down,
        Phase::Deleting => Condition::Deleted,
    }
}

fn function_condition(state: FunctionState) -> Condition {
    match state {
        FunctionState::FunctionRunning => Condition::Running,
        FunctionState::FunctionDeploying => Condition::Deploying,
        FunctionState::FunctionDown => Condition::Down,
        FunctionState::FunctionDeleted => Condition::Deleted,
        FunctionState::FunctionPending | FunctionState::Unspecified => Condition::Pending,
    }
}

#[cfg(test)]
mod tests {
    use oprc_grpc::deployment::{
        self as wire, Condition as WireCondition, NfrChange, NfrCompliance, NfrDecision,
        NfrSamples, OomKills, Recommendation, RequirementCompliance, Status,
    };
    use serde_json::{Value, json};

    use super::{super::NFR_OBSERVED, *};

    fn condition(phase: &str, generation: i64, deleting: bool) -> Condition {
        let status =
            Status { phase: phase.to_owned(), observed_generation: 1, ..Status::default() };
        let class =
            ClassRuntime { generation, deleting, status: Some(status), ..ClassRuntime::default() };
        unit_condition(&observed_unit(&class))
    }

    #[test]
    fn maps_phases_to_conditions() {
        for (phase, expected) in [
            ("", Condition::Pending),
            ("Pending", Condition::Pending),
            ("Applying", Condition::Deploying),
            ("Progressing", Condition::Deploying),
            ("Available", Condition::Running),
            ("Degraded", Condition::Down),
            ("Deleting", Condition::Deleted),
        ] {
            assert_eq!(condition(phase, 1, false), expected, "{phase}");
            assert_eq!(condition(phase, 1, true), Condition::Deleted, "{phase}");
        }
        assert_eq!(condition("Available", 2, false), Condition::Deploying);
        let unreported = observed_unit(&ClassRuntime::default());
        assert_eq!(unit_condition(&unreported), Condition::Pending);
    }

    fn document(status: Status) -> Value {
        let class = ClassRuntime { status: Some(status), ..ClassRuntime::default() };
        serde_json::to_value(class_status("east", &class, Contact::Fresh)).unwrap()
    }

    const AT: &str = "2026-11-17T12:00:00Z";

    #[test]
    fn reports_measurements_of_functions() {
        let at = AT.to_owned();
        let compliance = NfrCompliance {
            throughput_actual: Some(20.0),
            latency_p95_ms: Some(250.0),
            latency_p99_ms: Some(f64::NAN),
            observed_at: at.clone(),
            requirements: vec![RequirementCompliance {
                requirement: "latency".to_owned(),
                state: "violated".to_owned(),
                since: at.clone(),
                required: Some(100.0),
                observed: Some(250.0),
                error_budget: Some(0.0),
                ..RequirementCompliance::default()
            }],
            decisions: vec![NfrDecision {
                dimension: "replicas".to_owned(),
                mode: "enforce".to_owned(),
                current: 3.0,
                target: 5.0,
                basis: "p95".to_owned(),
                waits_for: "cooldown".to_owned(),
                next_change_at: at.clone(),
                template: String::new(),
            }],
            samples: Some(NfrSamples {
                start: at,
                step_seconds: 15.0,
                throughput: vec![20.0, f64::NAN],
                latency_p95_ms: vec![f64::NAN, 250.0],
            }),
            instances: Some(3),
            ..NfrCompliance::default()
        };
        let function = wire::FunctionStatus {
            key: "cart".to_owned(),
            nfr_compliance: Some(compliance),
            ..wire::FunctionStatus::default()
        };
        let status = document(Status { functions: vec![function], ..Status::default() });
        let expected = json!({
            "throughputActual": 20.0, "latencyP95": 250.0, "observedAt": AT, "instances": 3,
            "requirements": [{
                "requirement": "latency", "state": "violated", "since": AT,
                "required": 100.0, "observed": 250.0, "errorBudget": 0.0,
            }],
            "decisions": [{
                "dimension": "replicas", "mode": "enforce", "current": 3.0, "target": 5.0,
                "basis": "p95", "waitsFor": "cooldown", "nextChangeAt": AT,
            }],
            "samples": {
                "start": AT, "stepSeconds": 15.0,
                "throughput": [20.0, null], "latencyP95": [null, 250.0],
            },
        });
        assert_eq!(status["functions"][0]["nfrCompliance"], expected);
    }

    #[test]
    fn reports_the_connection_of_functions_to_the_data_grid() {
        let function = |connection: &str| wire::FunctionStatus {
            odgm_connection_status: connection.to_owned(),
            ..wire::FunctionStatus::default()
        };
        let functions = vec![function("WaitingForDataGrid"), function("")];
        let status = document(Status { functions, ..Status::default() });
        assert_eq!(status["functions"][0]["odgmConnectionStatus"], "WaitingForDataGrid");
        assert_eq!(status["functions"][1].get("odgmConnectionStatus"), None);
    }

    #[test]
    fn reports_recommendations_and_changes() {
        let recommendation = Recommendation {
            component: "cart".to_owned(),
            dimension: "replicas".to_owned(),
            target: 5.0,
            basis: "p95".to_owned(),
            confidence: None,
            generation: Some(7),
            min: Some(1.0),
            max: Some(50.0),
            since: AT.to_owned(),
            stopped: "no effect".to_owned(),
            limit: None,
            template: "knative".to_owned(),
        };
        let applied = Recommendation {
            confidence: Some(0.0),
            generation: None,
            limit: Some(6.0),
            ..recommendation.clone()
        };
        let kills =
            OomKills { function: "cart".to_owned(), at: AT.to_owned(), count: 3, limit: Some(4.0) };
        let unlimited = OomKills { limit: None, ..kills.clone() };
        let status = document(Status {
            conditions: vec![WireCondition {
                r#type: NFR_OBSERVED.to_owned(),
                status: "False".to_owned(),
                reason: "NoData".to_owned(),
                message: "cart".to_owned(),
                last_transition_time: AT.to_owned(),
                ..WireCondition::default()
            }],
            nfr_recommendations: vec![recommendation],
            last_applied_recommendations: vec![applied],
            last_applied_at: AT.to_owned(),
            nfr_history: vec![NfrChange {
                at: AT.to_owned(),
                component: "cart".to_owned(),
                dimension: "replicas".to_owned(),
                from: 0.0,
                to: 3.0,
                basis: "p95".to_owned(),
                template: String::new(),
            }],
            oom_kills: vec![kills, unlimited],
            ..Status::default()
        });
        let recommended = json!({
            "component": "cart", "dimension": "replicas", "target": 5.0, "basis": "p95",
            "generation": 7, "min": 1.0, "max": 50.0, "since": AT, "stopped": "no effect",
            "template": "knative",
        });
        assert_eq!(status["nfrRecommendations"], json!([recommended]));
        let applied = &status["lastAppliedRecommendations"][0];
        assert_eq!(applied["confidence"], 0.0, "zero is a value");
        assert_eq!(applied.get("generation"), None);
        assert_eq!(applied["limit"], 6.0);
        assert_eq!(status["lastAppliedAt"], AT);
        let change = json!({
            "at": AT, "component": "cart", "dimension": "replicas", "from": 0.0, "to": 3.0,
            "basis": "p95",
        });
        assert_eq!(status["nfrHistory"], json!([change]));
        let kills = json!([
            {"function": "cart", "at": AT, "count": 3, "limit": 4.0},
            {"function": "cart", "at": AT, "count": 3},
        ]);
        assert_eq!(status["oomKills"], kills);
        let observed =
            json!({"measured": false, "reason": "NoData", "message": "cart", "since": AT});
        assert_eq!(status["nfrObserved"], observed);
    }

    #[test]
    fn a_crm_that_measures_nothing_gives_absent_fields() {
        let function = wire::FunctionStatus { key: "cart".to_owned(), ..Default::default() };
        let status = document(Status { functions: vec![function], ..Status::default() });
        for field in [
            "nfrObserved",
            "nfrRecommendations",
            "lastAppliedRecommendations",
            "lastAppliedAt",
            "nfrHistory",
            "oomKills",
        ] {
            assert_eq!(status.get(field), None, "{field}");
        }
        assert_eq!(status["functions"][0].get("nfrCompliance"), None);
    }
}
