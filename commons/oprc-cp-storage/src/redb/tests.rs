//! Behaviour that only the redb back end has.

use std::{
    fs::{self, OpenOptions},
    io,
    ops::Bound,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
};

use futures::{future::join_all, poll};
use redb::{BackendError, Builder, Database, StorageBackend, backends::FileBackend};

use super::{File, Redb, RedbOptions, tables};
use crate::{Check, DEFAULT_DEADLINE, Error, Revision, Store, Transaction};

fn options(folder: &Path, holder: &str) -> RedbOptions {
    RedbOptions::new(folder.join("store.redb"), holder)
}

#[tokio::test]
async fn keeps_all_entries_across_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::redb(options(folder.path(), "first")).await.unwrap();
    for index in 0..10 {
        store.commit(Transaction::new().put(format!("a/{index}"), "x")).await.unwrap();
    }
    store.commit(Transaction::new().delete("a/0")).await.unwrap();
    let before = store.list("").await.unwrap();
    assert_eq!((before.entries.len(), before.revision), (9, Revision(11)));
    store.close().await;
    assert!(store.get("a/1").await.unwrap_err().is_retryable());
    assert!(store.commit(Transaction::new().put("a/1", "")).await.unwrap_err().is_retryable());

    let store = Store::redb(options(folder.path(), "second")).await.unwrap();
    assert_eq!(store.list("").await.unwrap(), before);
    // History isn't persisted; a reader that is up to date needs none.
    assert_eq!(store.watch("", Some(Revision(10))).await.err(), Some(Error::Gap));
    let mut watch = store.watch("", Some(before.revision)).await.unwrap();
    let next = store.commit(Transaction::new().put("b", "")).await.unwrap();
    assert_eq!(next, Revision(12));
    assert_eq!(watch.next().await.unwrap().revision, next);
}

#[tokio::test]
async fn only_one_process_can_open_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let first = Store::redb(options(folder.path(), "pm-1 on host a")).await.unwrap();
    let Err(Error::LeaseHeld { name, holder }) = Store::redb(options(folder.path(), "pm-2")).await
    else {
        panic!("both opened the file");
    };
    assert!(name.ends_with("store.redb"), "{name}");
    assert_eq!(holder, format!("pm-1 on host a (process {})", std::process::id()));
    first.close().await;
    let second = Store::redb(options(folder.path(), "pm-2")).await.unwrap();
    let rejected = Store::redb(options(folder.path(), "pm-3")).await.unwrap_err();
    assert!(rejected.to_string().contains("is held by pm-2 (process"), "{rejected}");
    // Dropping the store closes it in the background.
    drop(second);
    while let Err(error) = Store::redb(options(folder.path(), "pm-3")).await {
        assert!(matches!(error, Error::LeaseHeld { .. }), "{error}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn rejects_foreign_files_and_leaves_them_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    let rejected = async || {
        let rejected = Store::redb(options(folder.path(), "we")).await.unwrap_err();
        assert!(matches!(rejected, Error::Corrupt { .. }), "{rejected:?}");
        assert!(rejected.to_string().contains("store.redb"), "{rejected}");
    };
    fs::write(&path, "no database").unwrap();
    rejected().await;
    assert_eq!(fs::read(&path).unwrap(), b"no database");
    fs::remove_file(&path).unwrap();

    let database = Database::create(&path).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(tables::ABOUT).unwrap().insert(tables::FORMAT, 7).unwrap();
    write.commit().unwrap();
    drop(database);
    rejected().await;

    let missing = RedbOptions::new(folder.path().join("none/store.redb"), "we");
    assert!(matches!(Store::redb(missing).await, Err(Error::Unavailable { .. })));
}

#[tokio::test]
async fn files_are_private_to_their_owner() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let store = Store::redb(options(folder.path(), "we")).await.unwrap();
    for file in ["store.redb", "store.redb.lock"] {
        let mode = fs::metadata(folder.path().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    store.close().await;
}

/// A disk with a switch that makes it fail.
#[derive(Debug)]
struct Disk {
    file: FileBackend,
    fails: Arc<AtomicBool>,
}

impl Disk {
    fn check(&self) -> io::Result<()> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        Ok(())
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check()?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check()?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check()?;
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }
}

#[tokio::test]
async fn recovers_from_a_full_disk_without_partial_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    let fails = Arc::new(AtomicBool::new(false));
    let switch = fails.clone();
    let open = move |path: &Path| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = FileBackend::new(options.open(path)?)?;
        Ok(Builder::new().create_with_backend(Disk { file, fails: switch.clone() })?)
    };
    let file = File::with_opener(path, "we", Box::new(open)).unwrap();
    let store = Store::new(Redb::start(file, DEFAULT_DEADLINE).unwrap());
    let driver = store.acquire_lease("driver", "we").await.unwrap();
    for round in 0..5 {
        let value = format!("good {round}");
        let good = Transaction::new().put("a", value.clone()).put("b", value.clone());
        let revision = store.commit(good.fenced(&driver)).await.unwrap();
        let mut watch = store.watch("", Some(revision)).await.unwrap();
        fails.store(true, Ordering::SeqCst);
        let bad = || Transaction::new().put("a", "bad").put("b", "bad");
        let rejected = join_all((0..3).map(|_| store.commit(bad()))).await;
        for rejected in rejected {
            let error = rejected.unwrap_err();
            assert!(
                matches!(error, Error::UnknownOutcome { .. } | Error::Unavailable { .. }),
                "{error:?}"
            );
        }
        // Watches end, because the outcome is unknown.
        assert_eq!(watch.next().await, Err(Error::Gap));
        fails.store(false, Ordering::SeqCst);
        let page = store.list("").await.unwrap();
        let values: Vec<_> = page.entries.iter().map(|entry| entry.value.clone()).collect();
        assert!(values == [value.clone(), value] || values == ["bad", "bad"], "{values:?}");
        let mut watch = store.watch("", Some(page.revision)).await.unwrap();
        let next = store.commit(Transaction::new().put("c", "")).await.unwrap();
        assert_eq!(watch.next().await.unwrap().revision, next);
        assert!(driver.is_held());
        store.commit(Transaction::new().delete("c")).await.unwrap();
    }
}

#[tokio::test]
async fn queued_transactions_are_batched_and_see_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::redb(options(folder.path(), "we")).await.unwrap();
    // All are queued before the first reply, since nothing else runs on this thread.
    let make = |index: u32| {
        let exclusive = Transaction::new().check("one", Check::Absent).put("one", "");
        store.commit(exclusive.put(format!("{index}"), ""))
    };
    let results = join_all((0..200).map(make)).await;
    let won: Vec<_> = results.iter().filter_map(|result| result.as_ref().ok()).collect();
    assert_eq!(won.len(), 1);
    let conflict = Error::Conflict { key: "one".to_owned(), version: Some(*won[0]) };
    assert!(
        results.iter().filter_map(|result| result.as_ref().err()).all(|error| *error == conflict)
    );
    assert_eq!(store.list("").await.unwrap().entries.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_commits_are_stored_despite_a_concurrent_close() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::redb(options(folder.path(), "first")).await.unwrap();
    let commit = |index: u32| {
        let store = store.clone();
        tokio::spawn(async move {
            let key = index.to_string();
            store.commit(Transaction::new().put(key.clone(), "")).await.map(|_| key)
        })
    };
    let commits: Vec<_> = (0..100).map(commit).collect();
    store.close().await;
    store.close().await;
    let results = join_all(commits).await;
    let store = Store::redb(options(folder.path(), "second")).await.unwrap();
    for result in results {
        match result.unwrap() {
            Ok(key) => assert!(store.get(&key).await.unwrap().is_some(), "{key}"),
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
}

#[tokio::test]
async fn close_does_not_wait_for_a_commit_that_is_not_polled() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::redb(options(folder.path(), "we")).await.unwrap();
    let mut commit = Box::pin(store.commit(Transaction::new().put("a", "")));
    let queued = poll!(commit.as_mut());
    store.close().await;
    let result = match queued {
        Poll::Ready(result) => result,
        Poll::Pending => commit.await,
    };
    result.unwrap();
}
