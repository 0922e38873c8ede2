//! Companions: programs such as PM that the cluster's supervisor starts, restarts and stops.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use serde::{Deserialize, Serialize};

use crate::{Error, Result, component::Component, files, spec::check_name};

/// A program that runs along with a cluster. Secrets must be passed in files that only their owner can
/// read, not in arguments or variables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Companion {
    /// Its name as a component of the cluster.
    pub name: String,
    pub program: PathBuf,
    pub args: Vec<String>,
    /// Added to the environment of the supervisor.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

impl Companion {
    pub(crate) fn component(&self) -> Component {
        let component = Component::on_host(&self.name, &self.program, self.args.clone());
        Component { env: self.env.clone(), ..component }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    #[serde(flatten)]
    companion: Companion,
    /// Identifies the build of the program.
    #[serde(default, rename = "stamp")]
    fingerprint: String,
}

/// Size and modification time of a program, which is faster than hashing it.
fn fingerprint(program: &Path) -> String {
    let Ok(metadata) = fs::metadata(program) else { return String::new() };
    let modified = metadata.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    format!("{} {}", metadata.len(), modified.unwrap_or_default().as_nanos())
}

fn companions_folder(folder: &Path) -> PathBuf {
    folder.join("companions")
}

/// All companions of the cluster in a folder, sorted by name.
pub(crate) fn load(folder: &Path) -> Vec<Companion> {
    stored(folder).into_iter().map(|it| it.companion).collect()
}

/// Whether the same companion is stored, with an unchanged program.
pub(crate) fn is_stored(folder: &Path, companion: &Companion) -> bool {
    let fingerprint = fingerprint(&companion.program);
    stored(folder).iter().any(|it| it.companion == *companion && it.fingerprint == fingerprint)
}

/// Skips unreadable files.
fn stored(folder: &Path) -> Vec<Stored> {
    let files = fs::read_dir(companions_folder(folder)).into_iter().flatten().flatten();
    // Ignores drafts of an interrupted write.
    let complete = |file: &fs::DirEntry| file.path().extension().is_some_and(|it| it == "json");
    let mut all: Vec<Stored> = files
        .filter(complete)
        .filter_map(|file| serde_json::from_slice(&fs::read(file.path()).ok()?).ok())
        .collect();
    all.sort_by(|one, other| one.companion.name.cmp(&other.companion.name));
    all
}

/// Stores a companion, so that it starts with the cluster.
pub(crate) fn save(folder: &Path, companion: &Companion) -> Result<()> {
    check_name(&companion.name)?;
    let place = companions_folder(folder);
    let stored =
        Stored { companion: companion.clone(), fingerprint: fingerprint(&companion.program) };
    let store = || {
        fs::create_dir_all(&place)?;
        let file = place.join(format!("{}.json", companion.name));
        files::write_atomically(&file, &serde_json::to_vec(&stored)?)
    };
    store().map_err(Error::path("storing a companion in", &place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_companions_are_loaded() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(load(folder.path()), []);
        let mut pm =
            Companion { name: "pm".into(), program: "/bin/a".into(), args: vec![], env: [].into() };
        save(folder.path(), &pm).unwrap();
        pm.args.push("--now".to_owned());
        save(folder.path(), &pm).unwrap();
        fs::write(companions_folder(folder.path()).join("broken.json"), "{").unwrap();
        let draft = serde_json::to_vec(&pm).unwrap();
        fs::write(companions_folder(folder.path()).join("pm.json.new"), draft).unwrap();
        assert_eq!(load(folder.path()), [pm.clone()]);
        pm.name = "../up".to_owned();
        assert!(save(folder.path(), &pm).is_err());
    }

    #[test]
    fn detects_a_rebuilt_program() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("pm");
        fs::write(&program, "one").unwrap();
        let pm = Companion { name: "pm".into(), program, args: vec![], env: [].into() };
        assert!(!is_stored(folder.path(), &pm));
        save(folder.path(), &pm).unwrap();
        assert!(is_stored(folder.path(), &pm));
        fs::write(&pm.program, "another").unwrap();
        assert!(!is_stored(folder.path(), &pm));
        // A file without a fingerprint counts as changed.
        let before = serde_json::to_vec(&pm).unwrap();
        fs::write(companions_folder(folder.path()).join("pm.json"), before).unwrap();
        assert!(!is_stored(folder.path(), &pm));
        assert_eq!(load(folder.path()), [pm]);
    }
}
