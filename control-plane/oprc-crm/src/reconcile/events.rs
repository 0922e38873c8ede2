//! The Events of a reconcile.

use super::diff::Apply;
use crate::{
    crd::{ClassRuntimeStatus, DATA_GRID_STORAGE_PRESSURE, Phase},
    reason::Reason,
};

/// A Kubernetes Event to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRecord {
    pub warning: bool,
    pub reason: Reason,
    pub note: String,
}

impl EventRecord {
    fn normal(reason: Reason, note: String) -> Self {
        Self { warning: false, reason, note }
    }
}

pub(super) fn applied(applies: &[Apply]) -> EventRecord {
    let names: Vec<String> =
        applies.iter().map(|it| format!("{} {}", it.desired.kind, it.desired.name)).collect();
    EventRecord::normal(Reason::Applied, format!("applied {}", names.join(", ")))
}

/// The Events of a status write. With `applied`, another Event names the applied objects, and one for
/// the start of the rollout is redundant.
pub(super) fn of_status(
    old: Option<&ClassRuntimeStatus>,
    status: &ClassRuntimeStatus,
    selection: Option<&oprc_unit::Selection>,
    applied: bool,
) -> Vec<EventRecord> {
    let mut events = Vec::new();
    let former = old.and_then(|old| old.selection.as_ref()).map(|it| it.template.as_str());
    if let Some(selection) = selection.filter(|it| former != Some(it.template.as_str())) {
        let note = format!("{}: {}", selection.template.as_str(), selection.basis);
        events.push(EventRecord::normal(Reason::TemplateSelected, note));
    }
    let was_low = old.is_some_and(|old| old.is_true(DATA_GRID_STORAGE_PRESSURE));
    let low = status.conditions.iter().find(|it| it.type_ == DATA_GRID_STORAGE_PRESSURE);
    events.extend(low.filter(|_| !was_low).map(|condition| EventRecord {
        warning: true,
        reason: Reason::DataGridStorageLow,
        note: condition.message.clone(),
    }));
    let before = old.map(|old| old.phase).unwrap_or_default();
    let message = status.message.clone().unwrap_or_default();
    match status.phase {
        Phase::Degraded => {
            let changed = old.is_none_or(|old| old.reason != status.reason);
            if changed || before != Phase::Degraded {
                let reason = status.reason.as_deref().unwrap_or_default();
                let note = format!("{reason}: {message}");
                let rolled_back = reason == Reason::RolledBack.as_str();
                let reason = if rolled_back { Reason::RolledBack } else { Reason::Failed };
                events.push(EventRecord { warning: true, reason, note });
            }
        }
        _ if waits_for_quota(status) => {
            if old.is_none_or(|old| !waits_for_quota(old)) {
                let reason = Reason::QuotaExceeded;
                events.push(EventRecord { warning: true, reason, note: message });
            }
        }
        _ if before == status.phase => {}
        Phase::Available => events.push(EventRecord::normal(Reason::Available, message)),
        Phase::Deleting => events.push(EventRecord::normal(Reason::Deleting, message)),
        phase if applied || before.is_in_progress() && phase.is_in_progress() => {}
        _ => events.push(EventRecord::normal(Reason::Progressing, message)),
    }
    events
}

fn waits_for_quota(status: &ClassRuntimeStatus) -> bool {
    status.phase.is_in_progress()
        && status.reason.as_deref() == Some(Reason::QuotaExceeded.as_str())
}
