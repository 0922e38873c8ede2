//! Ids that sort by creation time (TSID).

use std::sync::atomic::{AtomicU64, Ordering};

/// The greatest id created or observed.
static LAST: AtomicU64 = AtomicU64::new(0);

/// A new id, greater than all that this process has created or observed before. The library alone
/// guarantees that neither within a millisecond nor after the clock was set back.
pub(crate) fn new_id() -> String {
    let created = tsid::create_tsid().number();
    let before = LAST.fetch_max(created, Ordering::Relaxed);
    let number = if created > before { created } else { LAST.fetch_add(1, Ordering::Relaxed) + 1 };
    tsid::TSID::from(number).to_string()
}

/// Makes later ids greater than one that another process has created.
pub(crate) fn observe(id: &str) {
    if let Ok(id) = tsid::TSID::try_from(id) {
        LAST.fetch_max(id.number(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_ids_are_greater_than_those_of_a_clock_that_was_ahead() {
        let ahead = tsid::TSID::from(tsid::create_tsid().number() + (3_600_000 << 22)).to_string();
        observe(&ahead);
        observe("no id at all");
        assert!(new_id() > ahead);
    }

    #[test]
    fn ids_sort_by_creation() {
        let ids: Vec<_> = (0..10_000).map(|_| new_id()).collect();
        assert!(ids.is_sorted_by(|one, next| one < next));
    }
}
