//! Client of a cluster's supervisor.

use std::{
    fs::File,
    io,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
    time::{sleep, timeout},
};

use super::{
    process::send_signal,
    protocol::{Action, ComponentStatus, Request, Response},
};
use crate::{
    Error, Result,
    companion::{self, Companion},
    spec::Spec,
};

/// For requests that wait for a component.
const COMPONENT_TIMEOUT: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// For requests that the supervisor answers at once, and for its own exit.
const SUPERVISOR_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub struct Supervisor {
    pub(crate) cluster: String,
    pub(crate) folder: PathBuf,
}

impl Supervisor {
    /// The supervisor of a cluster, whether that exists or not.
    pub(crate) fn of(cluster: &str) -> Result<Self> {
        Ok(Self { cluster: cluster.to_owned(), folder: Spec::folder_of(cluster)? })
    }

    pub async fn status(&self) -> Result<Vec<ComponentStatus>> {
        self.send("", Request::Status).await
    }

    pub async fn component(&self, name: &str) -> Result<ComponentStatus> {
        let mut all = self.status().await?;
        let known: Vec<_> = all.iter().map(|component| component.name.clone()).collect();
        let index = known.iter().position(|known| known == name);
        index.map(|index| all.swap_remove(index)).ok_or_else(|| self.unknown(name, &known))
    }

    /// Performs an action on a component and returns when it is done.
    pub async fn act(&self, component: &str, action: Action) -> Result<()> {
        let name = component.to_owned();
        self.send(component, Request::Act { component: name, action }).await?;
        if action == Action::Start {
            self.await_running(component, None).await?;
        }
        Ok(())
    }

    /// Runs a companion, now and whenever the cluster runs. It replaces one of the same name, unless
    /// that is identical and its program is unchanged.
    pub async fn run(&self, companion: &Companion) -> Result<()> {
        let known = companion::is_stored(&self.folder, companion);
        if known && self.component(&companion.name).await.is_ok() {
            return self.act(&companion.name, Action::Start).await;
        }
        companion::save(&self.folder, companion)?;
        let name = companion.name.clone();
        self.send(&companion.name, Request::Replace { component: name }).await?;
        self.await_running(&companion.name, None).await.map(drop)
    }

    /// Kills a component and returns the status of the restarted one.
    pub async fn kill(&self, component: &str) -> Result<ComponentStatus> {
        let before = self.await_running(component, None).await?;
        self.act(component, Action::Kill).await?;
        self.await_running(component, before.pid).await
    }

    /// Waits until a component runs with a process other than `not`.
    async fn await_running(&self, component: &str, not: Option<u32>) -> Result<ComponentStatus> {
        let name = component.to_owned();
        self.send(component, Request::AwaitRunning { component: name, not }).await?;
        self.component(component).await
    }

    /// The process id of the running supervisor.
    pub fn pid(&self) -> Option<u32> {
        let pid = std::fs::read_to_string(self.folder.join(super::LOCK)).ok()?;
        pid.trim().parse().ok().filter(|_| super::is_running(&self.folder))
    }

    /// Whether a supervisor responds. Waits for one that is starting or exiting, and kills one that
    /// hangs.
    pub(crate) async fn is_alive(&self) -> Result<bool> {
        let deadline = Instant::now() + SUPERVISOR_TIMEOUT;
        while super::is_running(&self.folder) {
            if self.status().await.is_ok() {
                return Ok(true);
            }
            if Instant::now() > deadline {
                self.kill_supervisor().await?;
            }
            sleep(POLL_INTERVAL).await;
        }
        Ok(false)
    }

    /// Stops the cluster and waits until the supervisor has exited.
    pub(crate) async fn shut_down(&self) -> Result<()> {
        // A supervisor that is already exiting may close the connection without a response.
        let _ = self.send("", Request::Shutdown).await;
        if self.await_exit().await { Ok(()) } else { self.kill_supervisor().await }
    }

    /// Returns whether the supervisor exits in time.
    async fn await_exit(&self) -> bool {
        let exited = async {
            while super::is_running(&self.folder) {
                sleep(POLL_INTERVAL).await;
            }
        };
        timeout(SUPERVISOR_TIMEOUT, exited).await.is_ok()
    }

    /// Kills a supervisor that doesn't respond; its components are killed with it.
    async fn kill_supervisor(&self) -> Result<()> {
        send_signal(self.pid(), Signal::KILL);
        let what = format!("the supervisor of cluster '{}' to exit", self.cluster);
        let exited = self.await_exit().await;
        if exited { Ok(()) } else { Err(Error::timeout(what, SUPERVISOR_TIMEOUT)) }
    }

    pub(crate) fn unknown(&self, component: &str, known: &[String]) -> Error {
        let (cluster, component) = (self.cluster.clone(), component.to_owned());
        Error::UnknownComponent { cluster, component, known: known.join(", ") }
    }

    async fn send(&self, component: &str, request: Request) -> Result<Vec<ComponentStatus>> {
        let connect = |path: &Path| std::os::unix::net::UnixStream::connect(path);
        let mut stream = with_socket(&self.folder, connect)
            .and_then(|stream| stream.set_nonblocking(true).map(|()| stream))
            .and_then(UnixStream::from_std)
            .map_err(|_| Error::NotRunning { name: self.cluster.clone() })?;
        let exchange = async {
            let line = serde_json::to_string(&request)? + "\n";
            stream.write_all(line.as_bytes()).await?;
            let mut response = String::new();
            BufReader::new(&mut stream).read_line(&mut response).await?;
            Ok::<Response, io::Error>(serde_json::from_str(&response)?)
        };
        let limit = match request {
            Request::Status | Request::Shutdown => SUPERVISOR_TIMEOUT,
            _ => COMPONENT_TIMEOUT,
        };
        let what = format!("the supervisor's response to {request:?}");
        let response = timeout(limit, exchange).await.map_err(|_| Error::timeout(what, limit))?;
        let connecting = format!("connecting to the supervisor of cluster '{}'", self.cluster);
        match response.map_err(Error::io(connecting))? {
            Response::Components(components) => Ok(components),
            Response::Unknown(known) => Err(self.unknown(component, &known)),
            Response::NotRunning => {
                Err(Error::failed(format!("{request:?}"), format!("{component} is not running")))
            }
        }
    }
}

/// Calls `use_path` with a short path of the socket in `folder`: the path of a socket is limited to
/// 107 bytes.
pub(super) fn with_socket<T>(
    folder: &Path,
    use_path: impl FnOnce(&Path) -> io::Result<T>,
) -> io::Result<T> {
    let open = File::open(folder)?;
    use_path(&Path::new("/proc/self/fd").join(open.as_raw_fd().to_string()).join("control.sock"))
}
