//! Random histories, compared with a map.

use std::{collections::BTreeMap, ops::Bound};

use bytes::Bytes;
use proptest::{
    collection::vec,
    option,
    prelude::{Strategy, any},
    prop_oneof,
    test_runner::{Config, TestCaseError, TestRunner},
};

use crate::{Change, Check, Entry, Error, Revision, Store, Transaction};

/// Keys with common prefixes.
const KEYS: [&str; 8] = ["a", "a/a", "a/b", "a/b/c", "ab", "b", "b/a", "b/é"];
const PREFIXES: [&str; 7] = ["", "a", "a/", "a/b", "b/", "b/é", "c"];

#[derive(Debug, Clone)]
enum Step {
    Commit { checks: Vec<(usize, CheckKind)>, changes: BTreeMap<usize, Option<Vec<u8>>> },
    Get(usize),
    Range { prefix: usize, after: Option<usize>, limit: usize },
}

/// A check whose version is only known when the step runs.
#[derive(Debug, Clone, Copy)]
enum CheckKind {
    Absent,
    Exists,
    Present,
    Older,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..KEYS.len();
    let check = prop_oneof![
        1 => proptest::prelude::Just(CheckKind::Absent),
        1 => proptest::prelude::Just(CheckKind::Exists),
        3 => proptest::prelude::Just(CheckKind::Present),
        1 => proptest::prelude::Just(CheckKind::Older),
    ];
    let changes =
        proptest::collection::btree_map(key.clone(), option::of(vec(any::<u8>(), 0..20)), 0..5);
    let commit = (vec((key.clone(), check), 0..3), changes);
    let range = (0..PREFIXES.len(), option::of(key.clone()), 1..10_usize);
    vec(
        prop_oneof![
            3 => commit.prop_map(|(checks, changes)| Step::Commit { checks, changes }),
            1 => key.prop_map(Step::Get),
            1 => range.prop_map(|(prefix, after, limit)| Step::Range { prefix, after, limit }),
        ],
        1..60,
    )
}

/// Runs random histories, each on a new store.
pub fn agree_with_a_map<T>(
    cases: u32,
    runtime: &tokio::runtime::Runtime,
    open: &impl AsyncFn(&str) -> (Store, T),
) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let number = std::cell::Cell::new(0);
    let outcome = TestRunner::new(config).run(&steps(), |steps| {
        number.set(number.get() + 1);
        runtime.block_on(async {
            let (store, _alive) = open(&format!("history-{}", number.get())).await;
            let outcome = replay(&store, steps).await;
            store.close().await;
            outcome.map_err(TestCaseError::fail)
        })
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

#[derive(Default)]
struct Model {
    entries: BTreeMap<String, (Revision, Bytes)>,
    newest: Revision,
}

impl Model {
    fn version(&self, key: &str) -> Option<Revision> {
        self.entries.get(key).map(|(version, _)| *version)
    }

    fn entry(&self, key: &str) -> Option<Entry> {
        let (version, value) = self.entries.get(key)?;
        Some(Entry { key: key.to_owned(), value: value.clone(), version: *version })
    }
}

/// Fails at the first step where the store differs from a map.
async fn replay(store: &Store, steps: Vec<Step>) -> Result<(), String> {
    let mut model = Model::default();
    let begin = store.list("").await.map_err(|error| error.to_string())?.revision;
    let mut watch = store.watch("", Some(begin)).await.map_err(|error| error.to_string())?;
    for step in steps {
        match step {
            Step::Get(key) => {
                let found = store.get(KEYS[key]).await;
                same(&found, &Ok(model.entry(KEYS[key])))?;
            }
            Step::Range { prefix, after, limit } => {
                let prefix = PREFIXES[prefix];
                let after = after.map(|key| KEYS[key]).filter(|key| key.starts_with(prefix));
                let from = after.map_or(Bound::Unbounded, Bound::Excluded);
                let mut expected = model.entries.range::<str, _>((from, Bound::Unbounded));
                let mut expected = expected.by_ref().filter(|(key, _)| key.starts_with(prefix));
                let entries: Vec<_> =
                    expected.by_ref().take(limit).filter_map(|(key, _)| model.entry(key)).collect();
                let more = expected.next().is_some();
                let page = store.range(prefix, after, limit).await;
                same(&page.map(|page| (page.entries, page.more)), &Ok((entries, more)))?;
            }
            Step::Commit { checks, changes } => {
                let mut transaction = Transaction::new();
                for (key, kind) in checks {
                    let key = KEYS[key];
                    let check = match (kind, model.version(key)) {
                        (CheckKind::Absent, _) | (CheckKind::Present, None) => Check::Absent,
                        (CheckKind::Exists, _) => Check::Exists,
                        (CheckKind::Present, Some(version)) => Check::Version(version),
                        (CheckKind::Older, version) => {
                            Check::Version(Revision(version.unwrap_or(model.newest).0 / 2))
                        }
                    };
                    transaction = transaction.check(key, check);
                }
                for (key, value) in changes {
                    transaction = match value {
                        Some(value) => transaction.put(KEYS[key], value),
                        None => transaction.delete(KEYS[key]),
                    };
                }
                let failing = transaction
                    .checks
                    .iter()
                    .find(|(key, check)| !check.holds(model.version(key)))
                    .map(|(key, _)| Error::Conflict {
                        key: key.clone(),
                        version: model.version(key),
                    });
                let changes = transaction.changes.clone();
                let done = store.commit(transaction).await;
                if let Some(conflict) = failing {
                    same(&done, &Err(conflict))?;
                    continue;
                }
                let revision = done.map_err(|error| error.to_string())?;
                let mut effect = Vec::new();
                for change in changes {
                    let changed = match &change {
                        Change::Put { key, value } => {
                            model.entries.insert(key.clone(), (revision, value.clone()));
                            true
                        }
                        Change::Delete { key } => model.entries.remove(key).is_some(),
                    };
                    if changed {
                        effect.push(change);
                    }
                }
                if effect.is_empty() {
                    continue;
                }
                if revision <= model.newest {
                    return Err(format!("revision {revision} after {}", model.newest));
                }
                model.newest = revision;
                let mut seen = watch.next().await.map_err(|error| error.to_string())?;
                seen.changes.sort_by(|one, other| one.key().cmp(other.key()));
                same(&(seen.revision, seen.changes), &(revision, effect))?;
            }
        }
    }
    Ok(())
}

fn same<T: PartialEq + std::fmt::Debug>(found: &T, expected: &T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{found:?} instead of {expected:?}")) }
}
