//! Programs of others that run beside a cluster: kept running with it, and ended with it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
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

fn place(folder: &Path) -> PathBuf {
    folder.join("companions")
}

/// All companions of the cluster in a folder, by name. What can't be read is none.
pub(crate) fn load(folder: &Path) -> Vec<Companion> {
    let files = fs::read_dir(place(folder)).into_iter().flatten().flatten();
    // Not what was being written when somebody was killed.
    let whole = |file: &fs::DirEntry| file.path().extension().is_some_and(|it| it == "json");
    let mut all: Vec<Companion> = files
        .filter(whole)
        .filter_map(|file| serde_json::from_slice(&fs::read(file.path()).ok()?).ok())
        .collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// Stores a companion, so that the cluster has it whenever it is started.
pub(crate) fn save(folder: &Path, companion: &Companion) -> Result<()> {
    check_name(&companion.name)?;
    let place = place(folder);
    let storing =
        || Error::io(format!("storing what runs beside the cluster in {}", place.display()));
    fs::create_dir_all(&place).map_err(storing())?;
    let text = serde_json::to_vec(companion).map_err(|error| storing()(error.into()))?;
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
}
