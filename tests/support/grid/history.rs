//! What clients did and what they got. A checker finds out whether one order of all operations explains
//! it.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    process::Command,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Map, Value};
use tempfile::NamedTempFile;
use tokio::sync::watch;

use crate::workspace;

/// A history that takes longer to check has too many operations that run at once.
const CHECK_TIMEOUT: Duration = Duration::from_mins(1);

/// An operation of a client on an object, as the checker reads it.
#[derive(Clone, Debug, Serialize)]
pub struct Operation {
    pub client: usize,
    pub object: String,
    #[serde(rename = "operation")]
    pub kind: Kind,
    pub args: Args,
    /// None if the outcome is unknown: it may happen at any time after the call, or never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Response>,
    /// Nanoseconds since the begin of the history.
    pub call: u64,
    #[serde(rename = "return")]
    pub returned: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Create,
    Put,
    Patch,
    Delete,
    Increment,
    Get,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Args {
    /// Of create and put; of patch, where null removes a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<u64>,
    /// The version that a write expects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Response {
    pub outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Ok,
    Absent,
    /// The object doesn't have the expected version, or exists although it must not.
    Changed,
}

impl From<Outcome> for Response {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, version: None, state: None, count: None }
    }
}

#[derive(Debug)]
pub struct History {
    began: Instant,
    operations: Mutex<Vec<Operation>>,
    len: watch::Sender<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// With the number of operations.
    Linearizable(String),
    /// With the object and the operations that no order explains.
    Illegal(String),
}

impl Default for History {
    fn default() -> Self {
        Self { began: Instant::now(), operations: Mutex::default(), len: watch::Sender::new(0) }
    }
}

impl History {
    pub fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap()
    }

    pub fn record(&self, operation: Operation) {
        self.operations.lock().push(operation);
        self.len.send_modify(|it| *it += 1);
    }

    /// Waits for this many operations.
    pub async fn reaches(&self, len: usize) {
        let _ = self.len.subscribe().wait_for(|it| *it >= len).await;
    }

    /// The state that a client read last.
    pub fn last_read(&self, object: &str) -> Option<Map<String, Value>> {
        let operations = self.operations.lock();
        let read = operations.iter().rev().find(|it| it.kind == Kind::Get && it.object == object);
        read?.result.as_ref()?.state.clone()
    }

    pub fn len(&self) -> usize {
        self.operations.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Operations with an unknown outcome.
    pub fn unknown(&self) -> usize {
        self.operations.lock().iter().filter(|it| it.result.is_none()).count()
    }

    /// Acknowledged writes of an object.
    pub fn writes(&self, object: &str) -> usize {
        let is_write = |it: &&Operation| {
            let is_done = it.result.as_ref().is_some_and(|it| it.outcome == Outcome::Ok);
            it.object == object && it.kind != Kind::Get && is_done
        };
        self.operations.lock().iter().filter(is_write).count()
    }

    /// The sums of the increments of each object: those that were acknowledged, and those whose outcome
    /// is unknown.
    pub fn increments(&self) -> BTreeMap<String, (u64, u64)> {
        let mut sums = BTreeMap::<_, (u64, u64)>::new();
        for it in self.operations.lock().iter().filter(|it| it.kind == Kind::Increment) {
            let (acknowledged, unknown) = sums.entry(it.object.clone()).or_default();
            let by = it.args.by.unwrap_or_default();
            match &it.result {
                None => *unknown += by,
                Some(result) if result.outcome == Outcome::Ok => *acknowledged += by,
                Some(_) => {}
            }
        }
        sums
    }

    /// Asserts that the history is linearizable. Returns the checker's summary. Keeps the history
    /// otherwise.
    pub fn assert_linearizable(&self, name: &str) -> String {
        match self.check() {
            Verdict::Linearizable(summary) => summary,
            Verdict::Illegal(excerpt) => {
                let folder = workspace().join("target/histories");
                fs::create_dir_all(&folder).unwrap();
                let path = folder.join(format!("{name}.jsonl"));
                fs::write(&path, self.lines().join("\n")).unwrap();
                panic!("{}: {excerpt}", path.display())
            }
        }
    }

    pub fn check(&self) -> Verdict {
        check(&self.lines())
    }

    fn lines(&self) -> Vec<String> {
        self.operations.lock().iter().map(|it| serde_json::to_string(it).unwrap()).collect()
    }
}

/// Checks the lines of a history. Panics if that takes too long, because nothing is shown then.
pub fn check(lines: &[String]) -> Verdict {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(lines.join("\n").as_bytes()).unwrap();
    let checked = Command::new(oprc_sandbox::linearizability_checker().expect("the checker"))
        .arg(format!("-timeout={}s", CHECK_TIMEOUT.as_secs()))
        .arg(file.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&checked.stdout).trim().to_owned();
    match checked.status.code() {
        Some(0) => Verdict::Linearizable(text),
        Some(1) => Verdict::Illegal(text),
        code => {
            let error = String::from_utf8_lossy(&checked.stderr);
            panic!("the checker ended with status {code:?}: {text} {error}")
        }
    }
}
