//! etcd processes for tests.

use std::{
    env, fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Weak,
        atomic::{AtomicU16, Ordering},
    },
    time::{Duration, SystemTime},
};

use oprc_cp_storage::{EtcdOptions, Store};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tempfile::TempDir;

/// Includes the start of etcd on a busy machine.
const DEADLINE: Duration = Duration::from_mins(1);
/// Long enough for tests that aren't about its expiry.
const LEASE_TTL: Duration = Duration::from_mins(1);

/// An etcd with one member, killed on drop.
pub struct Etcd {
    folder: TempDir,
    scheme: &'static str,
    port: u16,
    peer_port: u16,
    flags: Vec<String>,
    process: Mutex<Option<Child>>,
}

impl Etcd {
    /// Starts an etcd without fsync: its data survives a killed process.
    pub fn start() -> Self {
        Self::start_with(vec!["--unsafe-no-fsync".to_owned()])
    }

    /// Starts an etcd with fsync, as in production.
    pub fn durable() -> Self {
        Self::start_with(Vec::new())
    }

    fn start_with(flags: Vec<String>) -> Self {
        let etcd = Self {
            folder: tempfile::tempdir().unwrap(),
            scheme: "http",
            port: free_port(),
            peer_port: free_port(),
            flags,
            process: Mutex::new(None),
        };
        etcd.restart();
        etcd
    }

    /// An etcd that is shared by tests that don't disturb it, while one of them runs.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Etcd>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock();
        if let Some(etcd) = shared.upgrade() {
            return etcd;
        }
        let etcd = Arc::new(Self::start());
        *shared = Arc::downgrade(&etcd);
        etcd
    }

    /// Restarts it with other flags, and with TLS for https.
    #[must_use]
    pub fn with_flags(mut self, scheme: &'static str, flags: Vec<String>) -> Self {
        self.kill();
        (self.scheme, self.flags) = (scheme, flags);
        self.restart();
        self
    }

    pub fn endpoint(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    /// Options of a store in it.
    pub fn options(&self, root: &str) -> EtcdOptions {
        EtcdOptions {
            root: root.to_owned(),
            deadline: DEADLINE,
            lease_ttl: LEASE_TTL,
            ..EtcdOptions::new([self.endpoint()])
        }
    }

    /// A store with its own root. Waits until etcd responds.
    pub async fn store(&self, root: &str) -> Store {
        Store::etcd(self.options(root)).await.unwrap()
    }

    /// Waits until it responds, for tests with short deadlines.
    pub async fn wait_until_ready(&self) {
        self.store("ready").await.close().await;
    }

    /// Kills the process.
    pub fn kill(&self) {
        if let Some(mut process) = self.process.lock().take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Starts it on the same data.
    pub fn restart(&self) {
        let (client, peer) = (self.endpoint(), format!("http://127.0.0.1:{}", self.peer_port));
        let log = fs::File::create(self.folder.path().join("log")).unwrap();
        let mut command = Command::new(program());
        command
            .arg("--name=one")
            .arg(format!("--data-dir={}", self.folder.path().join("data").display()))
            .arg(format!("--listen-client-urls={client}"))
            .arg(format!("--advertise-client-urls={client}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster=one={peer}"))
            .args(["--log-level=warn", "--enable-grpc-gateway=false", "--bcrypt-cost=4"])
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        *self.process.lock() = Some(command.spawn().unwrap());
    }

    /// Deletes its data.
    pub fn delete_data(&self) {
        fs::remove_dir_all(self.folder.path().join("data")).unwrap();
    }

    /// Sends SIGSTOP: connections stay open, and nothing responds.
    pub fn freeze(&self) {
        let pid = self.signal(Signal::STOP);
        // Threads may respond until all of them have stopped.
        waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
    }

    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) -> Pid {
        let process = self.process.lock();
        let pid = Pid::from_child(process.as_ref().expect("a running etcd"));
        kill_process(pid, signal).unwrap();
        pid
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let process = self.process.get_mut();
        if let Some(process) = process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A free port below the ephemeral range.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let own = u16::try_from(std::process::id() % 45).unwrap() * 200;
    10_000 + own + NEXT.fetch_add(1, Ordering::Relaxed) % 200
}

/// The etcd of the sandbox: the newest build.
pub fn program() -> PathBuf {
    if let Some(assets) = env::var_os(oprc_sandbox::ASSETS).filter(|assets| !assets.is_empty()) {
        let program = PathBuf::from(assets).join("etcd");
        if program.is_file() {
            return program;
        }
    }
    let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home).expect("a cache");
    let built = fs::read_dir(cache.join("oprc/programs")).into_iter().flatten().flatten();
    let programs = built
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("core-"))
        .map(|entry| entry.path().join("etcd"));
    let age =
        |program: &PathBuf| -> Option<SystemTime> { fs::metadata(program).ok()?.modified().ok() };
    programs
        .filter(|program| program.is_file())
        .max_by_key(age)
        .expect("etcd is missing: `oprc sandbox up` builds one")
}
