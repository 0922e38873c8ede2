//! Requirements at run time: from CRM's messages to documents of the API.

use oprc_grpc::deployment as wire;
use oprc_rest::{
    NfrChange, NfrCompliance, NfrDecision, NfrObserved, NfrSamples, OomKills, Recommendation,
    RequirementCompliance,
};

/// The condition type that says whether CRM measures requirements.
pub const NFR_OBSERVED: &str = "NfrObserved";

pub(super) fn compliance(it: wire::NfrCompliance) -> NfrCompliance {
    let requirements = it.requirements.into_iter().map(|it| RequirementCompliance {
        requirement: it.requirement,
        state: it.state,
        since: it.since,
        required: known(it.required),
        observed: known(it.observed),
        reason: it.reason,
        error_budget: known(it.error_budget),
    });
    // JSON has no NaN.
    let decided = |it: &wire::NfrDecision| it.current.is_finite() && it.target.is_finite();
    let decisions = it.decisions.into_iter().filter(decided).map(|it| NfrDecision {
        dimension: it.dimension,
        mode: it.mode,
        current: it.current,
        target: it.target,
        basis: it.basis,
        waits_for: it.waits_for,
        next_change_at: it.next_change_at,
        template: it.template,
    });
    NfrCompliance {
        throughput_actual: known(it.throughput_actual),
        latency_p50: known(it.latency_p50_ms),
        latency_p95: known(it.latency_p95_ms),
        latency_p99: known(it.latency_p99_ms),
        availability_actual: known(it.availability_actual),
        cpu_cores: known(it.cpu_cores),
        memory_bytes: known(it.memory_bytes),
        instances: it.instances,
        observed_at: it.observed_at,
        requirements: requirements.collect(),
        decisions: decisions.collect(),
        samples: it.samples.map(samples),
    }
}

fn known(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite())
}

fn samples(it: wire::NfrSamples) -> NfrSamples {
    let values = |all: Vec<f64>| all.into_iter().map(|value| known(Some(value))).collect();
    NfrSamples {
        start: it.start,
        step_seconds: it.step_seconds,
        throughput: values(it.throughput),
        latency_p95: values(it.latency_p95_ms),
    }
}

pub(super) fn recommendations(all: Vec<wire::Recommendation>) -> Vec<Recommendation> {
    let recommendation = |it: wire::Recommendation| Recommendation {
        component: it.component,
        dimension: it.dimension,
        target: it.target,
        limit: known(it.limit),
        basis: it.basis,
        confidence: known(it.confidence),
        generation: it.generation,
        min: known(it.min),
        max: known(it.max),
        since: it.since,
        stopped: it.stopped,
        template: it.template,
    };
    all.into_iter().map(recommendation).collect()
}

pub(super) fn history(all: Vec<wire::NfrChange>) -> Vec<NfrChange> {
    let change = |it: wire::NfrChange| NfrChange {
        at: it.at,
        component: it.component,
        dimension: it.dimension,
        from: it.from,
        to: it.to,
        basis: it.basis,
        template: it.template,
    };
    all.into_iter().map(change).collect()
}

pub(super) fn oom_kills(all: Vec<wire::OomKills>) -> Vec<OomKills> {
    let kills = |it: wire::OomKills| OomKills {
        function: it.function,
        at: it.at,
        count: it.count,
        limit: known(it.limit),
    };
    all.into_iter().map(kills).collect()
}

pub(super) fn observed(conditions: &[wire::Condition]) -> Option<NfrObserved> {
    let condition = conditions.iter().find(|it| it.r#type == NFR_OBSERVED)?;
    Some(NfrObserved {
        measured: condition.status == "True",
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        since: condition.last_transition_time.clone(),
    })
}
