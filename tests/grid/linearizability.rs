//! Random operations of many clients under faults are linearizable, and each acknowledged increment is
//! counted once.

use std::fmt::{Display, Formatter, Result};

use oprc_tests::grid::{
    nemesis::{Fault, inject},
    nodes::Nodes,
    workload::Workload,
};

/// Faults of one history.
const FAULTS: usize = 3;

/// What the histories of a suite showed.
#[derive(Default)]
pub(crate) struct Totals {
    operations: usize,
    unknown: usize,
    increments: u64,
}

impl Display for Totals {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        let Self { operations, unknown, increments } = self;
        write!(
            formatter,
            "{operations} operations, {unknown} with unknown outcome; increments to {increments}, each counted once"
        )
    }
}

/// Records a history with the faults of a seed, and checks it.
pub(crate) async fn check_history(nodes: &Nodes, faults: &[Fault], seed: u64, totals: &mut Totals) {
    let workload = Workload::new(seed, nodes.urls());
    let history = workload
        .run(nodes.functions.calls(), async |history| {
            inject(nodes, history, seed, faults, FAULTS).await;
        })
        .await;
    history.assert_linearizable(&format!("seed-{seed}"));
    totals.increments += workload.assert_counts(&history);
    totals.operations += history.len();
    totals.unknown += history.unknown();
}
