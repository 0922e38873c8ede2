//! Runs of macros that this process continues.

use std::{collections::HashSet, sync::Arc};

use parking_lot::Mutex;

/// Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActiveRuns {
    runs: Arc<Mutex<HashSet<String>>>,
}

/// A run that nothing else continues until this is dropped.
#[derive(Debug)]
pub(crate) struct ActiveRun {
    runs: ActiveRuns,
    run: String,
}

impl ActiveRuns {
    /// None if the run is active already.
    pub(crate) fn claim(&self, run: &str) -> Option<ActiveRun> {
        let is_new = self.runs.lock().insert(run.to_owned());
        is_new.then(|| ActiveRun { runs: self.clone(), run: run.to_owned() })
    }
}

impl Drop for ActiveRun {
    fn drop(&mut self) {
        self.runs.runs.lock().remove(&self.run);
    }
}
