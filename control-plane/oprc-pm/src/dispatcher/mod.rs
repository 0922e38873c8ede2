//! Brings every cluster to what is stored. It goes by what is and what should be, never by what was
//! done before, so that it may end after any step and be begun anew.
//!
//! `unit`, `stage`, `transition` and `condition` decide, and do nothing; `drive` calls clusters, and
//! `settle` moves deployments on.

mod condition;
mod drive;
mod room;
mod settle;
mod stage;
mod transition;
mod troubles;
mod unit;

#[cfg(test)]
mod model;

use std::{sync::Arc, time::Duration};

use futures::future::{join, join_all};
use oprc_cp_storage::{Ownership, Store};
use tokio::sync::watch;

pub use self::{
    condition::{condition, is_available},
    room::check_room,
    stage::{Limits, Outlook, Transition, UnitView, goes_back, outlook},
    transition::{Next, Units, former_of, perform, units_of},
    troubles::Troubles,
    unit::{Kept, Outcome, Seen, Sight, Step, after, is_current, is_good, sight, step},
};
use crate::{
    clusters::Clusters,
    deployments::{Book, Events, KeptUnit},
};

/// How long after a call that wasn't answered a CRM may still do it: a little longer than a CRM gives
/// its API server.
pub const UNSURE: Duration = Duration::from_secs(12);

/// Brings clusters to what is stored.
pub struct Dispatcher {
    /// Where it is stored.
    pub store: Store,
    /// That nobody else does it.
    pub ownership: Arc<Ownership>,
    /// What is stored.
    pub book: Arc<Book>,
    /// The clusters.
    pub clusters: Arc<Clusters>,
    /// What went wrong lately.
    pub troubles: Arc<Troubles>,
    /// Who is told.
    pub events: Arc<Events>,
    /// How long things may take.
    pub limits: Limits,
}

impl Dispatcher {
    /// Brings all clusters to what is stored. Never returns; dropping it ends it.
    pub async fn run(&self) {
        // Who drives a cluster waits for what is known of others, where it is all or nothing.
        let woken = watch::Sender::new(());
        let drives = self.clusters.links().map(|link| self.drive(link, woken.subscribe()));
        join(join_all(drives), self.settle(&woken)).await;
    }

    /// What is known of units.
    fn views<'a>(&self, units: &'a [KeptUnit]) -> Vec<UnitView<'a>> {
        let view = |(key, kept): &'a KeptUnit| {
            let record = kept.record.as_ref();
            let (seen, away_since) = match self.clusters.link(&key.0) {
                Some(link) => {
                    let observed = link.observed();
                    (observed.seen(&key.1, record.place()), observed.away_since())
                }
                None => (Seen::Unknown, None),
            };
            let refused = self.troubles.refused(key, record);
            UnitView { cluster: &key.0, id: &key.1, record, seen, refused, away_since }
        };
        units.iter().map(view).collect()
    }
}
