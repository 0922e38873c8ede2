//! The etcd of a node, as a child process that ends with it.

use std::{
    env,
    ffi::OsString,
    io,
    net::IpAddr,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command as StdCommand, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use super::peer_client::{AUTHORITY, CERTIFICATE, KEY};
use crate::config::ReplicaConfig;

/// The first argument of this program when it becomes etcd.
pub const EXEC_ETCD: &str = "exec-etcd";
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// A backup and a watch that was interrupted need history.
const HISTORY: &str = "10m";

/// How a member starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// With its data.
    Existing,
    /// As one of the first members, all of which have no data.
    Bootstrap { initial_cluster: String },
    /// As a member that was added to a running cluster.
    Join { initial_cluster: String },
}

/// A running etcd. Killed on drop.
#[derive(Debug)]
pub(crate) struct EtcdChild {
    process: Child,
}

/// The folder with the data of etcd.
pub(crate) fn data_folder(data_dir: &Path) -> PathBuf {
    data_dir.join("etcd")
}

fn arguments(
    config: &ReplicaConfig,
    data_dir: &Path,
    token: &str,
    bind: IpAddr,
    start: &Start,
) -> Vec<OsString> {
    let own = config.etcd_peer_url(config.index);
    let client = format!("http://{}", config.etcd_client);
    let listen = std::net::SocketAddr::new(bind, config.etcd_peer_port);
    let file = |name: &str| config.tls_dir.join(name).display().to_string();
    let (state, cluster) = match start {
        // Ignored, because there is data.
        Start::Existing => ("existing", format!("{}={own}", config.name)),
        Start::Bootstrap { initial_cluster } => ("new", initial_cluster.clone()),
        Start::Join { initial_cluster } => ("existing", initial_cluster.clone()),
    };
    let options = [
        ("name", config.name.clone()),
        ("data-dir", data_folder(data_dir).display().to_string()),
        ("listen-client-urls", client.clone()),
        ("advertise-client-urls", client),
        ("listen-peer-urls", format!("https://{listen}")),
        ("initial-advertise-peer-urls", own),
        ("initial-cluster", cluster),
        ("initial-cluster-state", state.to_owned()),
        ("initial-cluster-token", token.to_owned()),
        ("peer-client-cert-auth", "true".to_owned()),
        ("peer-trusted-ca-file", file(AUTHORITY)),
        ("peer-cert-file", file(CERTIFICATE)),
        ("peer-key-file", file(KEY)),
        // Members share a certificate with a wildcard, which etcd would compare with reverse DNS. The
        // authority issues certificates for this grid only.
        ("peer-skip-client-san-verification", "true".to_owned()),
        ("auto-compaction-mode", "periodic".to_owned()),
        ("auto-compaction-retention", HISTORY.to_owned()),
        ("quota-backend-bytes", config.etcd_quota_bytes.to_string()),
        ("heartbeat-interval", "100".to_owned()),
        ("election-timeout", "1000".to_owned()),
        ("enable-grpc-gateway", "false".to_owned()),
        ("log-level", "warn".to_owned()),
    ];
    options.into_iter().map(|(name, value)| format!("--{name}={value}").into()).collect()
}

impl EtcdChild {
    /// Starts etcd. Must be called on a thread that lives as long as the process, because the kernel
    /// kills the child when the thread that started it ends.
    pub(crate) fn spawn(
        config: &ReplicaConfig,
        data_dir: &Path,
        token: &str,
        bind: IpAddr,
        start: &Start,
    ) -> io::Result<Self> {
        let process = Command::new("/proc/self/exe")
            .arg(EXEC_ETCD)
            .arg(std::process::id().to_string())
            .arg(program(&config.etcd_program))
            .args(arguments(config, data_dir, token, bind, start))
            .env_clear()
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self { process })
    }

    /// Waits until etcd has ended, which it does by itself only on errors or if it was removed.
    pub(crate) async fn ended(&mut self) -> String {
        match self.process.wait().await {
            Ok(status) => format!("etcd ended: {status}"),
            Err(error) => format!("etcd ended: {error}"),
        }
    }

    /// Lets etcd finish its writes.
    pub(crate) async fn stop(mut self) {
        let pid = self.process.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid
            && kill_process(pid, Signal::TERM).is_ok()
            && timeout(STOP_TIMEOUT, self.process.wait()).await.is_err()
        {
            tracing::warn!("etcd did not stop in time, killing it");
        }
    }
}

/// The configured program, or one next to this executable.
fn program(configured: &Path) -> PathBuf {
    let own = env::current_exe().ok();
    let beside = own.and_then(|it| Some(it.parent()?.join("etcd")));
    match beside {
        Some(beside) if !configured.is_file() && beside.is_file() => beside,
        _ => configured.to_owned(),
    }
}

/// Replaces this process by etcd, which the kernel kills when its parent ends for any reason. The
/// arguments are the id of the parent, the program and its arguments. Returns only an error.
pub fn exec_etcd(mut arguments: impl Iterator<Item = OsString>) -> String {
    let parent = arguments.next().and_then(|it| it.to_str()?.parse().ok());
    let Some(program) = arguments.next() else { return format!("{EXEC_ETCD}: no program") };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return format!("{EXEC_ETCD}: {error}");
    }
    // The parent may have ended before the signal was set.
    if getppid().map(Pid::as_raw_nonzero).map(std::num::NonZeroI32::get) != parent {
        return format!("{EXEC_ETCD}: the parent has ended");
    }
    let error = StdCommand::new(&program).args(arguments).exec();
    format!("{}: {error}", program.display())
}
