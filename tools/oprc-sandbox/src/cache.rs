//! The cache of programs: one folder for each thing made, named after what it was made from.
//!
//! An entry is made in a folder beside its place and moved there when it is whole, with a list
//! of its files and their digests. An interrupted build is therefore never mistaken for a
//! finished one, and a damaged file is found out. A lock file makes two builds wait for each other.

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
/// How the extension of an entry begins that is being made.
const PARTIAL: &str = "partial-";

/// What an entry is called and made from.
pub(crate) struct Recipe<'a> {
    /// A name for people.
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

/// Finds the entry, or makes it with `make`, which fills the folder it is given.
pub(crate) fn entry(
    recipe: &Recipe<'_>,
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    entry_in(&paths::cache()?.join("programs"), recipe, make)
}

fn entry_in(
    cache: &Path,
    recipe: &Recipe<'_>,
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let place = cache.join(recipe.folder_name());
    let creating = format!("making the cache folder {}", cache.display());
    fs::create_dir_all(cache).map_err(Error::io(creating))?;
    let _lock = wait_for_lock(&place.with_extension("lock"), recipe.name)?;
    if place.exists() {
        match damage(&place) {
            None => return Ok(place),
            Some(damage) => {
                progress::note(&format!(
                    "{} in the cache is damaged ({damage}): making it again",
                    recipe.name
                ));
                remove(&place)?;
            }
        }
    }
    remove_partial(cache, &recipe.folder_name())?;
    // A name of its own: what a killed build started may still be writing to the old one.
    let partial = place.with_extension(format!("{}{}", PARTIAL, std::process::id()));
    fs::create_dir_all(&partial).map_err(Error::io(format!("making {}", partial.display())))?;
    let made = make(&partial).and_then(|()| {
        let list = serde_json::to_vec(&digests(&partial)?).map_err(io::Error::from);
        list.and_then(|list| fs::write(partial.join(LIST), list))
            .and_then(|()| fs::rename(&partial, &place))
            .map_err(Error::io(format!("storing {} in the cache", recipe.name)))
    });
    if made.is_err() {
        // A failed build must not hold the disk; why it failed matters more than this.
        let _ = fs::remove_dir_all(&partial);
    }
    made.map(|()| place)
}

/// Removes what interrupted builds of an entry left.
fn remove_partial(cache: &Path, name: &str) -> Result<()> {
    let prefix = format!("{name}.{PARTIAL}");
    for item in fs::read_dir(cache).into_iter().flatten().filter_map(io::Result::ok) {
        if item.file_name().to_string_lossy().starts_with(&prefix) {
            remove(&item.path())?;
        }
    }
    Ok(())
}

/// Takes an exclusive lock on a file, and says so if that means waiting. It ends with the handle.
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

/// Deletes a folder, whatever the modes of the folders in it; none there is fine.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io(format!("deleting {}", folder.display()))(error))
        }
        _ => Ok(()),
    }
}

/// What is wrong with an entry, if anything.
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
    fn an_entry_is_made_once() {
        let cache = tempfile::tempdir().unwrap();
        let first = entry_in(cache.path(), &RECIPE, write).unwrap();
        let second = entry_in(cache.path(), &RECIPE, |_| panic!("made twice")).unwrap();
        assert_eq!(first, second);
        assert_eq!(fs::read_to_string(first.join("bin/program")).unwrap(), "whole");
    }

    #[test]
    fn other_inputs_make_another_entry() {
        let moved = Recipe { inputs: &["onet", "wo"], ..RECIPE };
        assert_ne!(RECIPE.folder_name(), moved.folder_name());
    }

    #[test]
    fn a_damaged_or_missing_file_is_made_again() {
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
    fn a_failed_or_interrupted_build_leaves_nothing_that_counts() {
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
    fn two_builds_at_once_wait_for_each_other() {
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
