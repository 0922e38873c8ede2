//! What a node stores on its disk about the members of the grid.
//!
//! etcd must never start a second time as one of the first members without the data of the first time: it
//! would vote again and could elect a leader that lacks acknowledged writes. Before its first
//! start, a node therefore announces the incarnation of its disk to all other first members, which store it.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

const FILE: &str = "member.json";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RosterRecord {
    /// Identifies the disk: another one has another incarnation.
    pub(crate) incarnation: String,
    /// The address of the first node, which identifies the grid.
    #[serde(default)]
    pub(crate) grid: String,
    /// The id of the own member in etcd, once it is known.
    #[serde(default)]
    pub(crate) member_id: Option<u64>,
    /// With how many members the grid begins, once it is known.
    #[serde(default)]
    pub(crate) initial: Option<u32>,
    /// Whether etcd may have been started as one of the first members.
    #[serde(default)]
    pub(crate) has_bootstrapped: bool,
    /// Whether etcd has run, so that it must have data.
    #[serde(default)]
    pub(crate) has_run: bool,
    /// Whether the node was added to a grid that existed.
    #[serde(default)]
    pub(crate) has_joined: bool,
    /// The incarnations of the other first members, by name.
    #[serde(default)]
    pub(crate) incarnations: BTreeMap<String, String>,
}

/// The announcement of a node before its first start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) name: String,
    pub(crate) incarnation: String,
    /// How many members the grid begins with, in the view of the node.
    pub(crate) initial: u32,
}

/// What another node knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HelloReply {
    /// The first incarnation that the node has announced to this node.
    pub(crate) incarnation: String,
    pub(crate) initial: Option<u32>,
    /// Whether this node was added to a grid that existed.
    pub(crate) has_joined: bool,
    /// Whether etcd may have been started with `initial` members.
    #[serde(default)]
    pub(crate) has_bootstrapped: bool,
}

impl HelloReply {
    /// The number of members that the node has started with.
    pub(crate) fn fixed_initial(&self) -> Option<u32> {
        self.initial.filter(|_| self.has_bootstrapped)
    }
}

/// A [`RosterRecord`] in a file.
#[derive(Debug)]
pub(crate) struct Roster {
    folder: PathBuf,
    record: Mutex<RosterRecord>,
}

impl Roster {
    /// Reads the file, or creates one with a new incarnation. A folder with data of another grid is an
    /// error, because its members would be looked for in vain.
    pub(crate) fn open(folder: &Path, grid: &str) -> io::Result<Self> {
        let record: RosterRecord = match fs::read(folder.join(FILE)) {
            Ok(text) => serde_json::from_slice(&text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let incarnation = oprc_observability::correlation::new_id();
                let grid = grid.to_owned();
                let record = RosterRecord { incarnation, grid, ..RosterRecord::default() };
                save(folder, &record)?;
                record
            }
            Err(error) => return Err(error),
        };
        if record.grid != grid {
            let reason =
                format!("it has data of the grid at {}, this one is at {grid}", record.grid);
            return Err(io::Error::other(reason));
        }
        Ok(Self { folder: folder.to_owned(), record: Mutex::new(record) })
    }

    pub(crate) fn get(&self) -> RosterRecord {
        self.record.lock().clone()
    }

    /// Changes the record. It is on disk when this returns.
    pub(crate) fn update(
        &self,
        change: impl FnOnce(&mut RosterRecord),
    ) -> io::Result<RosterRecord> {
        let mut record = self.record.lock();
        let mut changed = record.clone();
        change(&mut changed);
        if changed != *record {
            save(&self.folder, &changed)?;
            *record = changed.clone();
        }
        Ok(changed)
    }

    /// Remembers the first incarnation of another node. The smallest initial number of members wins until
    /// this node has started.
    pub(crate) fn hello(&self, hello: &Hello) -> io::Result<HelloReply> {
        let Hello { name, incarnation, initial } = hello;
        let record = self.update(|record| {
            let known = &mut record.incarnations;
            known.entry(name.clone()).or_insert_with(|| incarnation.clone());
            if !record.has_bootstrapped && record.initial.is_none_or(|own| *initial < own) {
                record.initial = Some(*initial);
            }
        })?;
        let recorded = record.incarnations.get(name).unwrap_or(incarnation).clone();
        let RosterRecord { initial, has_joined, has_bootstrapped, .. } = record;
        Ok(HelloReply { incarnation: recorded, initial, has_joined, has_bootstrapped })
    }
}

/// Replaces the file by a complete one.
fn save(folder: &Path, record: &RosterRecord) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let unfinished = folder.join("member.new");
    let mut file = File::create(&unfinished)?;
    file.write_all(&serde_json::to_vec(record)?)?;
    file.sync_all()?;
    fs::rename(&unfinished, folder.join(FILE))?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(incarnation: &str, initial: u32) -> Hello {
        Hello { name: "g-1".to_owned(), incarnation: incarnation.to_owned(), initial }
    }

    #[test]
    fn remembers_the_first_incarnation_of_a_node() {
        let folder = tempfile::tempdir().unwrap();
        let roster = Roster::open(folder.path(), "g").unwrap();
        assert_eq!(roster.hello(&hello("a", 3)).unwrap().incarnation, "a");
        let own = roster.get();
        drop(roster);
        let roster = Roster::open(folder.path(), "g").unwrap();
        assert_eq!(roster.get(), own);
        assert_eq!(roster.hello(&hello("b", 3)).unwrap().incarnation, "a");
        let other = tempfile::tempdir().unwrap();
        assert_ne!(Roster::open(other.path(), "g").unwrap().get().incarnation, own.incarnation);
        let error = Roster::open(folder.path(), "h").unwrap_err().to_string();
        assert_eq!(error, "it has data of the grid at g, this one is at h");
    }

    #[test]
    fn the_smallest_number_of_members_wins_until_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let roster = Roster::open(folder.path(), "g").unwrap();
        for (told, expected) in [(5, 5), (3, 3), (7, 3)] {
            assert_eq!(roster.hello(&hello("a", told)).unwrap().initial, Some(expected));
        }
        roster.update(|record| record.has_bootstrapped = true).unwrap();
        assert_eq!(roster.hello(&hello("a", 1)).unwrap().initial, Some(3));
    }
}
