//! Out-of-memory kills, from the status of pods.
//!
//! Status has the time of the last kill that is known: a later one is new, for any process. So each
//! kill is reported once, except that one within the same second as the last known is left out.

use k8s_openapi::jiff::Timestamp;
use oprc_nfr::resources::{OomKills, Resource};

use super::{ClassInput, Enforced, seconds};
use crate::{
    cache::OomKill,
    crd::OomKillStatus,
    reason::Reason,
    reconcile::{EventRecord, scaling::FunctionScaling},
    signals::{PodRef, is_same_image},
};

const DAY: f64 = 86_400.0;
/// Seconds for which a kill is kept in status.
const KEPT: f64 = 7.0 * DAY;
/// Seconds after which a kill isn't reported any more. Pods have their last one for as long as they
/// exist.
const REPORTED: f64 = DAY;

/// Adds new kills to status, and removes old ones.
pub(super) fn update(enforced: &mut Enforced, input: &ClassInput<'_>) {
    // Without functions the specification is rejected, or the class gets no recommendations.
    if input.scaling.is_empty() {
        return;
    }
    enforced.oom_kills.retain(|it| {
        let exists = input.scaling.iter().any(|scaling| scaling.key == it.function);
        exists && input.age(it.at.0) <= KEPT
    });
    for scaling in input.scaling {
        let stored = enforced.oom_kills.iter().position(|it| it.function == scaling.key);
        let known = stored.map(|at| enforced.oom_kills.remove(at));
        let mut kills = new_kills(input, scaling, known.as_ref());
        kills.sort_by_key(|(_, kill)| kill.at);
        let reported = kills.iter().map(|(pod, kill)| event(&scaling.key, pod, kill));
        enforced.new_kills.extend(reported);
        enforced.oom_kills.extend(merge(known, scaling, &kills));
    }
    enforced.oom_kills.sort_by(|left, right| left.function.cmp(&right.function));
}

/// What a recommendation of memory takes into account. `peak` counts if there was no limit.
pub(super) fn evidence(
    enforced: &Enforced,
    input: &ClassInput<'_>,
    scaling: &FunctionScaling,
    peak: Option<f64>,
) -> Option<OomKills> {
    let known = last_kill(enforced, scaling)?;
    Some(OomKills {
        count: u32::try_from(known.count).unwrap_or(1),
        at: known.limit.or(peak)?,
        age: input.age(known.at.0),
    })
}

/// The last kill of an instance of this image and with these resources.
pub(super) fn last_kill<'a>(
    enforced: &'a Enforced,
    scaling: &FunctionScaling,
) -> Option<&'a OomKillStatus> {
    let mut all = enforced.oom_kills.iter();
    all.find(|it| it.function == scaling.key && it.made_for == scaling.made_for)
}

fn new_kills<'a>(
    input: &ClassInput<'a>,
    scaling: &FunctionScaling,
    known: Option<&OomKillStatus>,
) -> Vec<&'a (PodRef, OomKill)> {
    let is_new = |at: Timestamp| match known {
        Some(known) => at > known.at.0,
        None => input.age(at) <= REPORTED,
    };
    let kills = input.oom_kills.iter().filter(|(pod, kill)| {
        pod.component.key() == scaling.key
            && is_same_image(&pod.image, &scaling.image)
            && is_new(kill.at)
    });
    kills.collect()
}

fn merge(
    known: Option<OomKillStatus>,
    scaling: &FunctionScaling,
    kills: &[&(PodRef, OomKill)],
) -> Option<OomKillStatus> {
    let Some((_, last)) = kills.last() else { return known };
    // Kills of another version only say until when they were reported.
    let same = known.filter(|it| it.made_for == scaling.made_for);
    let count = same.as_ref().map_or(0, |it| it.count);
    #[allow(clippy::cast_precision_loss)]
    let limits = kills.iter().filter_map(|(_, kill)| kill.limit).map(|bytes| bytes as f64);
    let limit = limits.chain(same.and_then(|it| it.limit)).reduce(f64::max);
    Some(OomKillStatus {
        function: scaling.key.clone(),
        at: seconds(last.at),
        count: count.saturating_add(i32::try_from(kills.len()).unwrap_or(i32::MAX)),
        limit,
        made_for: scaling.made_for.clone(),
    })
}

fn event(function: &str, pod: &PodRef, kill: &OomKill) -> EventRecord {
    #[allow(clippy::cast_precision_loss)]
    let limit = kill.limit.map(|bytes| Resource::Memory.show(bytes as f64));
    let limit = limit.map_or_else(|| "no limit".to_owned(), |limit| format!("limit {limit}"));
    let note = format!("{function}: pod {} was out of memory at {} ({limit})", pod.name, kill.at);
    EventRecord { warning: true, reason: Reason::OOMKilled, note }
}
