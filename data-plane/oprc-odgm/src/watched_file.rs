//! JSON documents in files that CRM changes.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use serde::de::DeserializeOwned;
use tokio::{io::AsyncReadExt as _, net::unix::pipe::Receiver};

/// Larger than any document: names and addresses of all methods.
const MAX_BYTES: u64 = 4 << 20;

/// A file whose changes are noticed.
#[derive(Debug)]
pub struct WatchedFile {
    path: PathBuf,
    /// Read like a pipe.
    events: Receiver,
}

impl WatchedFile {
    /// Watches the folder of a file, because a mounted ConfigMap replaces the file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let changes = WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::CREATE;
        inotify::add_watch(&events, folder.unwrap_or(Path::new(".")), changes)?;
        Ok(Self { path: path.to_owned(), events: Receiver::from_owned_fd_unchecked(events)? })
    }

    pub fn read<T: DeserializeOwned>(&self) -> Result<T, String> {
        let invalid = |reason: &dyn std::fmt::Display| format!("{}: {reason}", self.path.display());
        let size = fs::metadata(&self.path).map_err(|error| invalid(&error))?.len();
        if size > MAX_BYTES {
            return Err(invalid(&format!("has {size} bytes, at most {MAX_BYTES} are allowed")));
        }
        let text = fs::read(&self.path).map_err(|error| invalid(&error))?;
        serde_json::from_slice(&text).map_err(|error| invalid(&error))
    }

    /// Waits until something in the folder has changed.
    pub async fn changed(&mut self) -> io::Result<()> {
        // Larger than a single event. What has changed doesn't matter.
        let mut events = [0; 4096];
        self.events.read(&mut events).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::class::Class;

    const LIMIT: Duration = Duration::from_secs(20);

    /// As the kubelet does it: a link to a folder is replaced.
    #[tokio::test]
    async fn a_replaced_file_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let publish = |version: &str| {
            fs::create_dir(at(version)).unwrap();
            fs::write(at(version).join("class.json"), format!("{{\"name\": \"{version}\"}}"))
                .unwrap();
            std::os::unix::fs::symlink(version, at("new")).unwrap();
            fs::rename(at("new"), at("..data")).unwrap();
        };
        publish("first");
        std::os::unix::fs::symlink("..data/class.json", at("class.json")).unwrap();
        let mut file = WatchedFile::open(&at("class.json")).unwrap();
        assert_eq!(file.read::<Class>().unwrap().name, "first");
        publish("second");
        while file.read::<Class>().unwrap().name != "second" {
            timeout(LIMIT, file.changed()).await.unwrap().unwrap();
        }
        timeout(LIMIT, file.changed()).await.unwrap().unwrap();
        fs::write(at("second").join("class.json"), "{").unwrap();
        assert!(file.read::<Class>().unwrap_err().contains("class.json: EOF"));
        assert!(WatchedFile::open(&at("none/class.json")).is_err());
    }
}
