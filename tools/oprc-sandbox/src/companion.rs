//! Programs of others that run beside a cluster: kept running with it, and ended with it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use serde::{Deserialize, Serialize};

use crate::{Error, Result, components::Component, spec::check_name};

/// A program that is to run beside a cluster. What it is to keep secret belongs into files that
/// only its owner can read, neither among its arguments nor its variables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Companion {
    /// What it is called among the cluster's components.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// What it is started with.
    pub args: Vec<String>,
    /// Variables that it is given beside those of whoever made the cluster.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

impl Companion {
    pub(crate) fn component(&self) -> Component {
        let component = Component::on_host(&self.name, &self.program, self.args.clone());
        Component { env: self.env.clone(), ..component }
    }
}

/// A companion as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    #[serde(flatten)]
    companion: Companion,
    /// What tells its program from another that took its place.
    #[serde(default)]
    stamp: String,
}

/// The size of a program and when it was written: reading all of it would take longer.
fn stamp(program: &Path) -> String {
    let Ok(about) = fs::metadata(program) else { return String::new() };
    let written = about.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    format!("{} {}", about.len(), written.unwrap_or_default().as_nanos())
}

fn place(folder: &Path) -> PathBuf {
    folder.join("companions")
}

/// All companions of the cluster in a folder, by name.
pub(crate) fn load(folder: &Path) -> Vec<Companion> {
    stored(folder).into_iter().map(|it| it.companion).collect()
}

/// Whether a companion is stored just so, and its program is still the one that it was then.
pub(crate) fn is_stored(folder: &Path, companion: &Companion) -> bool {
    let stamp = stamp(&companion.program);
    stored(folder).iter().any(|it| it.companion == *companion && it.stamp == stamp)
}

/// What can't be read is none.
fn stored(folder: &Path) -> Vec<Stored> {
    let files = fs::read_dir(place(folder)).into_iter().flatten().flatten();
    // Not what was being written when somebody was killed.
    let whole = |file: &fs::DirEntry| file.path().extension().is_some_and(|it| it == "json");
    let mut all: Vec<Stored> = files
        .filter(whole)
        .filter_map(|file| serde_json::from_slice(&fs::read(file.path()).ok()?).ok())
        .collect();
    all.sort_by(|one, other| one.companion.name.cmp(&other.companion.name));
    all
}

/// Stores a companion, so that the cluster has it whenever it is started.
pub(crate) fn save(folder: &Path, companion: &Companion) -> Result<()> {
    check_name(&companion.name)?;
    let place = place(folder);
    let storing =
        || Error::io(format!("storing what runs beside the cluster in {}", place.display()));
    fs::create_dir_all(&place).map_err(storing())?;
    let stored = Stored { companion: companion.clone(), stamp: stamp(&companion.program) };
    let text = serde_json::to_vec(&stored).map_err(|error| storing()(error.into()))?;
    let draft = place.join(format!("{}.new", companion.name));
    fs::write(&draft, text).map_err(storing())?;
    fs::rename(draft, place.join(format!("{}.json", companion.name))).map_err(storing())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_there_again() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(load(folder.path()), []);
        let mut pm =
            Companion { name: "pm".into(), program: "/bin/a".into(), args: vec![], env: [].into() };
        save(folder.path(), &pm).unwrap();
        pm.args.push("--now".to_owned());
        save(folder.path(), &pm).unwrap();
        fs::write(place(folder.path()).join("broken.json"), "{").unwrap();
        let draft = serde_json::to_vec(&pm).unwrap();
        fs::write(place(folder.path()).join("pm.new"), draft).unwrap();
        assert_eq!(load(folder.path()), [pm.clone()]);
        pm.name = "../up".to_owned();
        assert!(save(folder.path(), &pm).is_err());
    }

    #[test]
    fn a_program_that_was_built_anew_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("pm");
        fs::write(&program, "one").unwrap();
        let pm = Companion { name: "pm".into(), program, args: vec![], env: [].into() };
        assert!(!is_stored(folder.path(), &pm));
        save(folder.path(), &pm).unwrap();
        assert!(is_stored(folder.path(), &pm));
        fs::write(&pm.program, "another").unwrap();
        assert!(!is_stored(folder.path(), &pm));
        // So it is where nobody noted which program it was.
        let before = serde_json::to_vec(&pm).unwrap();
        fs::write(place(folder.path()).join("pm.json"), before).unwrap();
        assert!(!is_stored(folder.path(), &pm));
        assert_eq!(load(folder.path()), [pm]);
    }
}
