//! A small disk in memory, which can be full.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;

/// A tmpfs. Unmounted on drop, with all data.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
}

impl Disk {
    pub fn mount(path: PathBuf, mebibytes: usize) -> Self {
        fs::create_dir_all(&path).unwrap();
        let options = std::ffi::CString::new(format!("size={mebibytes}m,mode=0700")).unwrap();
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("oprc-grid", &path, "tmpfs", flags, Some(options.as_c_str())).unwrap();
        Self { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves no space.
    pub fn fill(&self) {
        let mut file = File::create(self.ballast()).unwrap();
        for bytes in [MIB, PAGE] {
            while file.write_all(&vec![0; bytes]).is_ok() {}
        }
    }

    pub fn free(&self) {
        let _ = fs::remove_file(self.ballast());
    }

    fn ballast(&self) -> PathBuf {
        self.path.join("ballast")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Processes that have just been killed may still have open files.
        let _ = unmount(&self.path, UnmountFlags::DETACH);
    }
}
