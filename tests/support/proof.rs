//! Long suites: `make prove` runs all rounds and writes the results into `docs/proof.md`; `make
//! test` runs a sample.

use std::{fmt::Write as _, fs, path::PathBuf, sync::Mutex, time::Instant};

use crate::workspace;

/// Names the file for the results; if it is set, all rounds run.
const VARIABLE: &str = "OPRC_PROVE";
const HEAD: &str = "# Fault-injection test results\n\nResults of the last run of `make prove`. Each row is the last successful run of one suite.\n\n| suite | rounds | result | duration |\n| --- | --- | --- | --- |\n";

pub struct Proof {
    suite: &'static str,
    pub rounds: usize,
    started: Instant,
}

/// Starts a suite of `full` rounds, of which `make test` runs `sample`.
pub fn begin(suite: &'static str, sample: usize, full: usize) -> Proof {
    let rounds = if file().is_some() { full } else { sample };
    Proof { suite, rounds, started: Instant::now() }
}

/// Whether all rounds run, not a sample.
pub fn whole() -> bool {
    file().is_some()
}

fn file() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).map(|file| workspace().join(file))
}

impl Proof {
    /// Ends a suite that passed, and replaces its row in the file.
    pub fn held(self, result: &str) {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let Some(file) = file() else { return };
        let _guard = ONE_AT_A_TIME.lock().unwrap();
        let before = fs::read_to_string(&file).unwrap_or_default();
        let prefix = format!("| {} |", self.suite);
        let mut rows: Vec<_> =
            before.lines().skip(HEAD.lines().count()).filter(|row| row.starts_with('|')).collect();
        rows.retain(|row| !row.starts_with(&prefix));
        let own = format!(
            "{prefix} {} | {result} | {} s |",
            self.rounds,
            self.started.elapsed().as_secs()
        );
        rows.push(&own);
        rows.sort_unstable();
        let mut text = HEAD.to_owned();
        for row in rows {
            writeln!(text, "{row}").unwrap();
        }
        fs::write(file, text).unwrap();
    }
}
