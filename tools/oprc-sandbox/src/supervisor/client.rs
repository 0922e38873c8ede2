//! Client of a cluster's supervisor.

use std::{
    fs::File,
    os::fd::AsRawFd as _,
    path::Path,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
    time::{sleep, timeout},
};

use super::protocol::{Action, ComponentStatus, Request, Response};
use crate::{
    Error, Result,
    companion::{self, Companion},
};

/// For requests that wait for a component.
const COMPONENT_TIMEOUT: Duration = Duration::from_mins(1);
/// For requests that the supervisor answers at once, and for its own exit.
const SUPERVISOR_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub struct Supervisor {
    pub(crate) cluster: String,
    pub(crate) folder: std::path::PathBuf,
}

impl Supervisor {
    pub async fn status(&self) -> Result<Vec<ComponentStatus>> {
        self.send("", Request::Status).await
    }

    pub async fn component(&self, name: &str) -> Result<ComponentStatus> {
        let all = self.status().await?;
        let known: Vec<_> = all.iter().map(|component| component.name.clone()).collect();
        all.into_iter()
            .find(|component| component.name == name)
            .ok_or_else(|| self.unknown(name, &known))
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
            sleep(Duration::from_millis(10)).await;
        }
        Ok(false)
    }

    /// Stops the cluster and waits until the supervisor has exited.
    pub(crate) async fn shut_down(&self) -> Result<()> {
        // A supervisor that is already exiting may close the connection without a response.
        let _ = self.send("", Request::Shutdown).await;
        let deadline = Instant::now() + SUPERVISOR_TIMEOUT;
        while super::is_running(&self.folder) {
            if Instant::now() > deadline {
                return self.kill_supervisor().await;
            }
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Kills a supervisor that doesn't respond; its components are killed with it.
    async fn kill_supervisor(&self) -> Result<()> {
        let process = self.pid().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let Some(process) = process {
            let _ = kill_process(process, Signal::KILL);
        }
        let deadline = Instant::now() + SUPERVISOR_TIMEOUT;
        while super::is_running(&self.folder) {
            if Instant::now() > deadline {
                return Err(Error::Timeout {
                    what: format!("the supervisor of cluster '{}' to exit", self.cluster),
                    seconds: SUPERVISOR_TIMEOUT.as_secs(),
                    detail: String::new(),
                });
            }
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    fn unknown(&self, component: &str, known: &[String]) -> Error {
        Error::UnknownComponent {
            cluster: self.cluster.clone(),
            component: component.to_owned(),
            known: known.join(", "),
        }
    }

    async fn send(&self, component: &str, request: Request) -> Result<Vec<ComponentStatus>> {
        let connecting =
            || Error::io(format!("connecting to the supervisor of cluster '{}'", self.cluster));
        let Ok(mut stream) =
            with_socket(&self.folder, |path| std::os::unix::net::UnixStream::connect(path))
                .and_then(|stream| stream.set_nonblocking(true).map(|()| stream))
                .and_then(UnixStream::from_std)
        else {
            return Err(Error::NotRunning { name: self.cluster.clone() });
        };
        let mut line =
            serde_json::to_string(&request).map_err(|error| connecting()(error.into()))?;
        line.push('\n');
        let mut response = String::new();
        let exchange = async {
            stream.write_all(line.as_bytes()).await?;
            BufReader::new(&mut stream).read_line(&mut response).await
        };
        let limit = match request {
            Request::Status | Request::Shutdown => SUPERVISOR_TIMEOUT,
            Request::Act { .. } | Request::Replace { .. } | Request::AwaitRunning { .. } => {
                COMPONENT_TIMEOUT
            }
        };
        let late = |_| Error::Timeout {
            what: format!("the supervisor's response to {request:?}"),
            seconds: limit.as_secs(),
            detail: String::new(),
        };
        timeout(limit, exchange).await.map_err(late)?.map_err(connecting())?;
        match serde_json::from_str(&response).map_err(|error| connecting()(error.into()))? {
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
    use_path: impl FnOnce(&Path) -> std::io::Result<T>,
) -> std::io::Result<T> {
    let open = File::open(folder)?;
    use_path(&Path::new("/proc/self/fd").join(open.as_raw_fd().to_string()).join("control.sock"))
}
