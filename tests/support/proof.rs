//! Long suites: `make prove` runs all of their rounds and writes what it saw into `docs/proof.md`;
//! `make test` runs a sample of them.

use std::{fmt::Write as _, fs, path::PathBuf, sync::Mutex, time::Instant};

use crate::workspace;

/// The variable that names the file to write, where the whole suite is to run.
const VARIABLE: &str = "OPRC_PROVE";
const HEAD: &str = "# Proof\n\nWhat the long suites saw when they ran last (`make prove`).\n\n| suite | rounds | seen | took |\n| --- | --- | --- | --- |\n";

/// One suite that is being run.
pub struct Proof {
    suite: &'static str,
    /// How many rounds it has this time.
    pub rounds: usize,
    begun: Instant,
}

/// Begins a suite of `full` rounds, of which `make test` runs `sample`.
pub fn begin(suite: &'static str, sample: usize, full: usize) -> Proof {
    let rounds = if file().is_some() { full } else { sample };
    Proof { suite, rounds, begun: Instant::now() }
}

/// Whether all of a suite is to run, not a sample.
pub fn whole() -> bool {
    file().is_some()
}

fn file() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).map(|file| workspace().join(file))
}

impl Proof {
    /// Ends a suite that held; what was seen goes into the file, in place of what was seen before.
    pub fn held(self, seen: &str) {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let Some(file) = file() else { return };
        let _guard = ONE_AT_A_TIME.lock().unwrap();
        let before = fs::read_to_string(&file).unwrap_or_default();
        let prefix = format!("| {} |", self.suite);
        let mut rows: Vec<_> =
            before.lines().skip(HEAD.lines().count()).filter(|row| row.starts_with('|')).collect();
        rows.retain(|row| !row.starts_with(&prefix));
        let own =
            format!("{prefix} {} | {seen} | {} s |", self.rounds, self.begun.elapsed().as_secs());
        rows.push(&own);
        rows.sort_unstable();
        let mut text = HEAD.to_owned();
        for row in rows {
            writeln!(text, "{row}").unwrap();
        }
        fs::write(file, text).unwrap();
    }
}
