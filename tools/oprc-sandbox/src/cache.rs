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

use crate::{
    Error, Result, paths,
    progress::{self, Step},
};

const LIST: &str = "files.json";
/// Prefix of the extension of an entry under construction.
const PARTIAL: &str = "partial-";

pub(crate) struct Recipe<'a> {
    pub(crate) name: &'a str,
    /// Everything that the result depends on.
    pub(crate) inputs: &'a [&'a str],
}

impl Recipe<'_> {
    fn folder_name(&self) -> String {
        let mut hash = Sha256::new();
        for input in self.inputs.iter().chain(&[std::env::consts::ARCH]) {
            hash.update(input.len().to_le_bytes());
            hash.update(input);
        }
        format!("{}-{:.16}", self.name, hex::encode(hash.finalize()))
    }
}

/// Returns the folder of the entry. If there is none, `build` fills a new folder.
pub(crate) fn entry(
    recipe: &Recipe<'_>,
    build: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    entry_in(&paths::cache()?.join("programs"), recipe, build)
}

fn entry_in(
    cache: &Path,
    recipe: &Recipe<'_>,
    build: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let place = cache.join(recipe.folder_name());
    let creating = format!("creating the cache folder {}", cache.display());
    fs::create_dir_all(cache).map_err(Error::io(creating))?;
    let _lock = wait_for_lock(&place.with_extension("lock"), recipe.name)?;
    if place.exists() {
        match damage(&place) {
            None => return Ok(place),
            Some(damage) => {
                progress::note(&format!(
                    "cache entry {} is damaged ({damage}): rebuilding it",
                    recipe.name
                ));
                remove(&place)?;
            }
        }
    }
    remove_partial(cache, &recipe.folder_name())?;
    // A new name for each process: children of a killed build may still write to the old folder.
    let partial = place.with_extension(format!("{}{}", PARTIAL, std::process::id()));
    fs::create_dir_all(&partial).map_err(Error::io(format!("creating {}", partial.display())))?;
    let built = build(&partial).and_then(|()| {
        let list = serde_json::to_vec(&digests(&partial)?).map_err(io::Error::from);
        list.and_then(|list| fs::write(partial.join(LIST), list))
            .and_then(|()| fs::rename(&partial, &place))
            .map_err(Error::io(format!("storing {} in the cache", recipe.name)))
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
    for item in fs::read_dir(cache).into_iter().flatten().filter_map(io::Result::ok) {
        if item.file_name().to_string_lossy().starts_with(&prefix) {
            remove(&item.path())?;
        }
    }
    Ok(())
}

/// Takes an exclusive lock on a file, with progress output if it must wait. Dropping the file releases it.
pub(crate) fn wait_for_lock(file: &Path, what: &str) -> Result<File> {
    let locking = || format!("locking {}", file.display());
    let lock = File::create(file).map_err(Error::io(locking()))?;
    if lock.try_lock().is_err() {
        let step = Step::begin(format!("Waiting for another process that is using {what}"));
        lock.lock().map_err(Error::io(locking()))?;
        step.done();
    }
    Ok(lock)
}

/// Deletes a folder if it exists.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io(format!("deleting {}", folder.display()))(error))
        }
        _ => Ok(()),
    }
}

fn damage(place: &Path) -> Option<String> {
    let list = fs::read(place.join(LIST)).ok();
    let Some(expected) =
        list.and_then(|list| serde_json::from_slice::<BTreeMap<String, String>>(&list).ok())
    else {
        return Some("its list of files is missing or unreadable".into());
    };
    for (file, digest) in expected {
        match digest_of(&place.join(&file)) {
            Ok(found) if found == digest => {}
            Ok(_) => return Some(format!("{file} has changed")),
            Err(error) => return Some(format!("{file}: {error}")),
        }
    }
    None
}

fn digests(folder: &Path) -> Result<BTreeMap<String, String>> {
    let reading = |path: &Path| Error::io(format!("reading {}", path.display()));
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for item in fs::read_dir(&next).map_err(reading(&next))? {
            let path = item.map_err(reading(&next))?.path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else {
                let digest = digest_of(&path).map_err(reading(&path))?;
                let name = path.strip_prefix(folder).unwrap_or(&path);
                found.insert(name.to_string_lossy().into_owned(), digest);
            }
        }
    }
    Ok(found)
}

fn digest_of(file: &Path) -> io::Result<String> {
    if file.is_symlink() {
        return Ok(format!("link to {}", fs::read_link(file)?.display()));
    }
    let mut hash = Sha256::new();
    let mut file = File::open(file)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match io::Read::read(&mut file, &mut buffer)? {
            0 => return Ok(hex::encode(hash.finalize())),
            read => hash.update(buffer.get(..read).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        thread,
    };

    use super::*;

    const RECIPE: Recipe<'_> = Recipe { name: "thing", inputs: &["one", "two"] };

    fn write(folder: &Path) -> Result<()> {
        fs::create_dir_all(folder.join("bin")).unwrap();
        fs::write(folder.join("bin/program"), "whole").map_err(Error::io("writing"))
    }

    #[test]
    fn builds_an_entry_once() {
        let cache = tempfile::tempdir().unwrap();
        let first = entry_in(cache.path(), &RECIPE, write).unwrap();
        let second = entry_in(cache.path(), &RECIPE, |_| panic!("built twice")).unwrap();
        assert_eq!(first, second);
        assert_eq!(fs::read_to_string(first.join("bin/program")).unwrap(), "whole");
    }

    #[test]
    fn different_inputs_give_different_entries() {
        let moved = Recipe { inputs: &["onet", "wo"], ..RECIPE };
        assert_ne!(RECIPE.folder_name(), moved.folder_name());
    }

    #[test]
    fn rebuilds_an_entry_with_damaged_or_missing_files() {
        let cache = tempfile::tempdir().unwrap();
        for harm in ["changed", "deleted", "unlisted"] {
            let place = entry_in(cache.path(), &RECIPE, write).unwrap();
            match harm {
                "changed" => fs::write(place.join("bin/program"), "whol").unwrap(),
                "deleted" => fs::remove_file(place.join("bin/program")).unwrap(),
                _ => fs::remove_file(place.join(LIST)).unwrap(),
            }
            let again = entry_in(cache.path(), &RECIPE, write).unwrap();
            assert_eq!(fs::read_to_string(again.join("bin/program")).unwrap(), "whole", "{harm}");
        }
    }

    #[test]
    fn discards_failed_and_interrupted_builds() {
        let cache = tempfile::tempdir().unwrap();
        let failed = entry_in(cache.path(), &RECIPE, |folder| {
            write(folder)?;
            Err(Error::BadOption("stopped".into()))
        });
        assert!(failed.is_err());
        let interrupted = cache.path().join(RECIPE.folder_name()).with_extension("partial-1");
        fs::create_dir_all(&interrupted).unwrap();
        fs::write(interrupted.join("rest"), "of a killed build").unwrap();
        let place = entry_in(cache.path(), &RECIPE, write).unwrap();
        assert!(!place.join("rest").exists());
    }

    #[test]
    fn concurrent_builds_of_an_entry_run_once() {
        let cache = tempfile::tempdir().unwrap();
        let built = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    entry_in(cache.path(), &RECIPE, |folder| {
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
