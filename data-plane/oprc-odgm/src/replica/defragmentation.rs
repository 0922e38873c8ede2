//! Which member defragments its file: one at a time, as the leader orders.
//!
//! A member serves nothing while its file is written again. The leader orders the next one when no other
//! runs and all members are ready, so that a majority serves meanwhile. It can't keep a record in the store,
//! which may accept no writes: members report with pings whether they need it and whether they do it.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use oprc_cp_storage::{EtcdAdmin, EtcdStatus};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{Replica, file_size::SpaceReport};

/// Of a defragmentation and of a compaction. etcd doesn't end them when its client does.
pub(crate) const SPACE_DEADLINE: Duration = Duration::from_mins(10);
/// How long a leader waits for orders of the former one to arrive, and for the reports of all members.
const SETTLE_TIME: Duration = Duration::from_secs(5);
/// The shortest time between two defragmentations of a file.
const DEFRAGMENT_INTERVAL: Duration = Duration::from_mins(5);
/// While writes of callers are refused.
const URGENT_DEFRAGMENT_INTERVAL: Duration = Duration::from_mins(1);

/// What the leader sends to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DefragmentOrder {
    /// The id of the leader's member.
    pub(super) leader: u64,
    pub(super) term: u64,
}

impl DefragmentOrder {
    /// Whether the member of this state has the same leader.
    fn is_valid(&self, status: &EtcdStatus) -> bool {
        status.leader == Some(self.leader) && status.term == self.term
    }
}

/// Another member, as the leader sees it.
#[derive(Clone, Debug)]
pub(super) struct MemberSpace {
    pub(super) name: String,
    pub(super) is_ready: bool,
    pub(super) space: SpaceReport,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextDefragmentation<'a> {
    Nothing,
    Other(&'a str),
    /// That of the leader. With other members, one of them has to be the leader first: a leader that serves
    /// nothing would be replaced by an election.
    Own,
}

/// What the leader orders now. `is_refusing` if callers can't write: then members needn't be ready, because
/// one that doesn't come back must not keep the others from freeing space.
pub(super) fn next_defragmentation(
    own: SpaceReport,
    others: &[MemberSpace],
    is_refusing: bool,
) -> NextDefragmentation<'_> {
    // All members have the same data. Pages that etcd has freed count as used until its next write, and there
    // is none while writes are refused.
    let has_room = is_refusing && (own.has_room || others.iter().any(|it| it.space.has_room));
    let is_needed = |it: &SpaceReport| it.needs_defragmentation || (has_room && it.is_large);
    let is_running = own.is_defragmenting || others.iter().any(|it| it.space.is_defragmenting);
    let is_safe = is_refusing || others.iter().all(|it| it.is_ready);
    let other = others.iter().find(|it| is_needed(&it.space));
    match other {
        _ if is_running || !is_safe => NextDefragmentation::Nothing,
        Some(other) => NextDefragmentation::Other(&other.name),
        None if is_needed(&own) => NextDefragmentation::Own,
        None => NextDefragmentation::Nothing,
    }
}

/// Since when this node is the leader of a term.
#[derive(Debug, Default)]
pub(super) struct Leadership {
    since: Option<(u64, Instant)>,
}

impl Leadership {
    /// `term` is none unless this node is the leader. Returns whether it has been for long enough.
    pub(super) fn is_settled(&mut self, term: Option<u64>, now: Instant) -> bool {
        let is_same = |it: &(u64, Instant)| Some(it.0) == term;
        self.since = self.since.filter(is_same).or_else(|| term.map(|term| (term, now)));
        self.since.is_some_and(|it| now.duration_since(it.1) >= SETTLE_TIME)
    }
}

/// The defragmentation of the own file.
#[derive(Debug, Default)]
pub(super) struct OwnDefragmentation {
    is_running: AtomicBool,
    ended: Mutex<Option<Instant>>,
}

/// Ends on drop.
struct RunningDefragmentation<'a>(&'a OwnDefragmentation);

impl OwnDefragmentation {
    fn begin(&self) -> Option<RunningDefragmentation<'_>> {
        let was_running = self.is_running.swap(true, Ordering::AcqRel);
        (!was_running).then_some(RunningDefragmentation(self))
    }
}

impl Drop for RunningDefragmentation<'_> {
    fn drop(&mut self) {
        self.0.is_running.store(false, Ordering::Release);
    }
}

impl Replica {
    /// What this node reports to the others about its file.
    pub(crate) fn space_report(&self) -> SpaceReport {
        let is_defragmenting = self.defragmentation.is_running.load(Ordering::Acquire);
        let Some(file) = self.cluster.file_size() else {
            return SpaceReport { is_defragmenting, ..SpaceReport::default() };
        };
        let (is_out_of_space, is_reserve_used) =
            (self.cluster.is_out_of_space(), file.is_reserve_used());
        let is_urgent = is_out_of_space || is_reserve_used;
        let least = if is_urgent { URGENT_DEFRAGMENT_INTERVAL } else { DEFRAGMENT_INTERVAL };
        let is_recent = self.defragmentation.ended.lock().is_some_and(|it| it.elapsed() < least);
        let needs_defragmentation = file.needs_defragmentation(is_out_of_space) && !is_recent;
        let (is_large, has_room) = (file.is_large() && !is_recent, !file.is_low_on_space());
        SpaceReport { is_reserve_used, needs_defragmentation, is_defragmenting, is_large, has_room }
    }

    pub(super) fn other_members(&self) -> Vec<MemberSpace> {
        let member = |name: String| MemberSpace {
            is_ready: self.peers.is_ready(&name),
            space: self.peers.space(&name),
            name,
        };
        self.cluster.others().into_iter().map(member).collect()
    }

    /// Defragments the own file, unless the order is outdated. `admin` may have a short deadline.
    pub(crate) async fn defragment(
        &self,
        admin: &EtcdAdmin,
        order: &DefragmentOrder,
    ) -> Result<(), String> {
        let running = self.defragmentation.begin();
        let _running = running.ok_or("the file is being defragmented already")?;
        let status = admin.status().await.map_err(|error| error.to_string())?;
        if !order.is_valid(&status) {
            return Err("the order is not from the present leader".to_owned());
        }
        let EtcdStatus { bytes, bytes_in_use, .. } = status;
        tracing::info!(bytes, bytes_in_use, "defragmenting etcd");
        let done = admin.with_deadline(SPACE_DEADLINE).defragment().await;
        *self.defragmentation.ended.lock() = Some(Instant::now());
        done.map_err(|error| error.to_string())
    }

    /// Has another member defragment its file, and waits until it has.
    pub(super) async fn order_defragmentation(
        &self,
        name: &str,
        order: &DefragmentOrder,
    ) -> Result<(), String> {
        let record = self.record_of(name).ok_or_else(|| format!("{name} has no index"))?;
        tracing::info!(node = name, "ordering a member to defragment its file");
        let ordered = self.client.call(&record.address, "/defragment", order, SPACE_DEADLINE);
        ordered.await.map_err(|error| format!("{name}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: SpaceReport = SpaceReport {
        is_reserve_used: false,
        needs_defragmentation: false,
        is_defragmenting: false,
        is_large: false,
        has_room: true,
    };
    /// Doesn't know yet that most of its file is unused.
    const LARGE: SpaceReport = SpaceReport { is_large: true, has_room: false, ..FINE };
    const NEEDS: SpaceReport = SpaceReport { needs_defragmentation: true, ..FINE };
    const RUNS: SpaceReport = SpaceReport { is_defragmenting: true, ..FINE };

    fn others(spaces: [(bool, SpaceReport); 2]) -> Vec<MemberSpace> {
        let names = ["g-1", "g-2"].into_iter().zip(spaces);
        let member = |(name, (is_ready, space)): (&str, _)| MemberSpace {
            name: name.to_owned(),
            is_ready,
            space,
        };
        names.map(member).collect()
    }

    #[test]
    fn one_member_at_a_time_is_defragmented_and_the_leader_last() {
        use NextDefragmentation::{Nothing, Other, Own};
        for (own, first, second, is_refusing, expected) in [
            (NEEDS, (true, NEEDS), (true, NEEDS), false, Other("g-1")),
            (NEEDS, (true, FINE), (true, NEEDS), false, Other("g-2")),
            (NEEDS, (true, FINE), (true, FINE), false, Own),
            (FINE, (true, FINE), (true, FINE), false, Nothing),
            // Another one runs; a former leader may have ordered it.
            (NEEDS, (true, RUNS), (true, NEEDS), false, Nothing),
            (NEEDS, (true, NEEDS), (false, RUNS), true, Nothing),
            (RUNS, (true, NEEDS), (true, NEEDS), true, Nothing),
            // Two members would be a minority.
            (NEEDS, (true, NEEDS), (false, FINE), false, Nothing),
            (NEEDS, (false, FINE), (true, NEEDS), true, Other("g-2")),
            // What another one has shows that there is room.
            (FINE, (true, LARGE), (true, FINE), true, Other("g-1")),
            (LARGE, (true, FINE), (true, FINE), true, Own),
            (FINE, (true, LARGE), (true, FINE), false, Nothing),
            (LARGE, (true, LARGE), (true, LARGE), true, Nothing),
        ] {
            let others = others([first, second]);
            let next = next_defragmentation(own, &others, is_refusing);
            assert_eq!(next, expected, "{own:?} {others:?} {is_refusing}");
        }
        assert_eq!(next_defragmentation(NEEDS, &[], false), Own);
    }

    #[test]
    fn orders_of_former_leaders_are_refused() {
        let order = DefragmentOrder { leader: 1, term: 3 };
        let status = |leader, term| EtcdStatus {
            id: 2,
            leader,
            is_learner: false,
            term,
            index: 1,
            bytes: 1,
            bytes_in_use: 1,
            errors: Vec::new(),
        };
        assert!(order.is_valid(&status(Some(1), 3)));
        for (leader, term) in [(Some(2), 4), (Some(1), 4), (None, 3)] {
            assert!(!order.is_valid(&status(leader, term)), "{leader:?} {term}");
        }
    }

    #[test]
    fn a_new_leader_waits_before_its_first_order() {
        let (mut leadership, start) = (Leadership::default(), Instant::now());
        assert!(!leadership.is_settled(Some(1), start));
        assert!(leadership.is_settled(Some(1), start + SETTLE_TIME));
        assert!(!leadership.is_settled(None, start + SETTLE_TIME));
        assert!(!leadership.is_settled(Some(2), start + SETTLE_TIME));
        assert!(!leadership.is_settled(Some(3), start + 2 * SETTLE_TIME));
        assert!(leadership.is_settled(Some(3), start + 3 * SETTLE_TIME));
    }

    #[test]
    fn a_file_is_defragmented_once_at_a_time() {
        let own = OwnDefragmentation::default();
        let running = own.begin().unwrap();
        assert!(own.begin().is_none());
        drop(running);
        assert!(own.begin().is_some());
    }
}
