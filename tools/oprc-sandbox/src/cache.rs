//! Cache of built and downloaded programs: one folder for each entry, named after a hash of its
//! inputs.
//!
//! An entry is built in a temporary folder and renamed when it is complete, with a list of its files
//! and their digests. So an interrupted build is never taken for a finished one and a damaged file is
//! detected. A lock file serialises builds of the same entry.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::{Error, Result, files, paths, progress};

const LIST: &str = "files.json";
/// Prefix of the extension of an entry under construction.
const PARTIAL: &str = "partial-";

fn folder_name(name: &str, inputs: &[&str]) -> String {
    let mut hash = Sha256::new();
    for input in inputs.iter().chain(&[std::env::consts::ARCH]) {
        hash.update(input.len().to_le_bytes());
        hash.update(input);
    }
    format!("{name}-{:.16}", hex::encode(hash.finalize()))
}

/// Returns the folder of an entry. If there is none, `build` fills a new folder. `inputs` is
/// everything that the result depends on.
pub(crate) fn entry(
    name: &str,
    inputs: &[&str],
    build: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    entry_in(&paths::cache()?.join("programs"), name, inputs, build)
}

fn entry_in(
    cache: &Path,
    name: &str,
    inputs: &[&str],
    build: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let folder_name = folder_name(name, inputs);
    let place = cache.join(&folder_name);
    fs::create_dir_all(cache).map_err(Error::path("creating the cache folder", cache))?;
    let _lock = files::wait_for_lock(&place.with_extension("lock"), name)?;
    if place.exists() {
        let Some(damage) = damage(&place) else { return Ok(place) };
        progress::note(&format!("cache entry {name} is damaged ({damage}): rebuilding it"));
        files::remove_folder(&place)?;
    }
    remove_partial(cache, &folder_name)?;
    // A new name for each process: children of a killed build may still write to the old folder.
    let partial = place.with_extension(format!("{PARTIAL}{}", std::process::id()));
    files::create_folder(&partial)?;
    let built = build(&partial).and_then(|()| {
        let list = serde_json::to_vec(&digests(&partial)?).map_err(io::Error::from);
        list.and_then(|list| fs::write(partial.join(LIST), list))
            .and_then(|()| fs::rename(&partial, &place))
            .map_err(Error::io(format!("storing {name} in the cache")))
    });
    if built.is_err() {
        // Frees disk space; the build error matters more than an error here.
        let _ = fs::remove_dir_all(&partial);
    }
    built.map(|()| place)
}

/// Removes folders of interrupted builds of an entry.
fn remove_partial(cache: &Path, name: &str) -> Result<()> {
    let prefix = format!("{name}.{PARTIAL}");
    for item in fs::read_dir(cache).into_iter().flatten().flatten() {
        if item.file_name().to_string_lossy().starts_with(&prefix) {
            files::remove_folder(&item.path())?;
        }
    }
    Ok(())
}

fn damage(place: &Path) -> Option<String> {
    let list = fs::read(place.join(LIST)).ok();
    let Some(expected) =
        list.and_then(|list| serde_json::from_slice::<BTreeMap<String, String>>(&list).ok())
    else {
        return Some("its list of files is missing or unreadable".into());
    };
    expected.into_iter().find_map(|(file, digest)| match digest_of(&place.join(&file)) {
        Ok(found) if found == digest => None,
        Ok(_) => Some(format!("{file} has changed")),
        Err(error) => Some(format!("{file}: {error}")),
    })
}

fn digests(folder: &Path) -> Result<BTreeMap<String, String>> {
    let digest = |path: &PathBuf| {
        let digest = digest_of(path).map_err(Error::path("reading", path))?;
        let name = path.strip_prefix(folder).unwrap_or(path);
        Ok((name.to_string_lossy().into_owned(), digest))
    };
    files::below(folder)?.iter().map(digest).collect()
}

fn digest_of(file: &Path) -> io::Result<String> {
    if file.is_symlink() {
        return Ok(format!("link to {}", fs::read_link(file)?.display()));
    }
    files::sha256(File::open(file)?)
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        thread,
    };

    use tempfile::TempDir;

    use super::*;

    const INPUTS: [&str; 2] = ["one", "two"];

    fn thing(cache: &TempDir, build: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        entry_in(cache.path(), "thing", &INPUTS, build)
    }

    fn write(folder: &Path) -> Result<()> {
        fs::create_dir_all(folder.join("bin")).unwrap();
        fs::write(folder.join("bin/program"), "whole").map_err(Error::io("writing"))
    }

    #[test]
    fn builds_an_entry_once() {
        let cache = tempfile::tempdir().unwrap();
        let first = thing(&cache, write).unwrap();
        let second = thing(&cache, |_| panic!("built twice")).unwrap();
        assert_eq!(first, second);
        assert_eq!(fs::read_to_string(first.join("bin/program")).unwrap(), "whole");
    }

    #[test]
    fn different_inputs_give_different_entries() {
        assert_ne!(folder_name("thing", &INPUTS), folder_name("thing", &["onet", "wo"]));
    }

    #[test]
    fn rebuilds_an_entry_with_damaged_or_missing_files() {
        let cache = tempfile::tempdir().unwrap();
        for harm in ["changed", "deleted", "unlisted"] {
            let place = thing(&cache, write).unwrap();
            match harm {
                "changed" => fs::write(place.join("bin/program"), "whol").unwrap(),
                "deleted" => fs::remove_file(place.join("bin/program")).unwrap(),
                _ => fs::remove_file(place.join(LIST)).unwrap(),
            }
            let rebuilt = thing(&cache, write).unwrap();
            assert_eq!(fs::read_to_string(rebuilt.join("bin/program")).unwrap(), "whole", "{harm}");
        }
    }

    #[test]
    fn discards_failed_and_interrupted_builds() {
        let cache = tempfile::tempdir().unwrap();
        let failed = thing(&cache, |folder| {
            write(folder)?;
            Err(Error::BadOption("stopped".into()))
        });
        assert!(failed.is_err());
        let name = folder_name("thing", &INPUTS);
        let interrupted = cache.path().join(name).with_extension("partial-1");
        fs::create_dir_all(&interrupted).unwrap();
        fs::write(interrupted.join("rest"), "of a killed build").unwrap();
        let place = thing(&cache, write).unwrap();
        assert!(!place.join("rest").exists());
    }

    #[test]
    fn concurrent_builds_of_an_entry_run_once() {
        let cache = tempfile::tempdir().unwrap();
        let built = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    thing(&cache, |folder| {
                        built.fetch_add(1, Ordering::SeqCst);
                        write(folder)
                    })
                    .unwrap();
                });
            }
        });
        assert_eq!(built.load(Ordering::SeqCst), 1);
    }
}
