//! Talks to the supervisor of a cluster.

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

/// How long an answer may take that depends on a component.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long one may take that depends on the supervisor alone.
const SHORT_PATIENCE: Duration = Duration::from_secs(30);

/// The supervisor of one cluster.
#[derive(Debug, Clone)]
pub struct Supervisor {
    pub(crate) cluster: String,
    pub(crate) folder: std::path::PathBuf,
}

impl Supervisor {
    /// How all components are.
    pub async fn status(&self) -> Result<Vec<ComponentStatus>> {
        self.ask("", Request::Status).await
    }

    /// How one component is.
    pub async fn component(&self, name: &str) -> Result<ComponentStatus> {
        let all = self.status().await?;
        let known: Vec<_> = all.iter().map(|component| component.name.clone()).collect();
        all.into_iter()
            .find(|component| component.name == name)
            .ok_or_else(|| self.unknown(name, &known))
    }

    /// Does something to one component, and returns when it is done.
    pub async fn act(&self, component: &str, action: Action) -> Result<()> {
        let name = component.to_owned();
        self.ask(component, Request::Act { component: name, action }).await?;
        if action == Action::Start {
            self.await_running(component, None).await?;
        }
        Ok(())
    }

    /// Runs a companion beside the cluster, now and whenever the cluster runs, in place of one of
    /// the same name. One that runs just so already, by the same program, is left alone.
    pub async fn run(&self, companion: &Companion) -> Result<()> {
        let known = companion::is_stored(&self.folder, companion);
        if known && self.component(&companion.name).await.is_ok() {
            return self.act(&companion.name, Action::Start).await;
        }
        companion::save(&self.folder, companion)?;
        let name = companion.name.clone();
        self.ask(&companion.name, Request::Renew { component: name }).await?;
        self.await_running(&companion.name, None).await.map(drop)
    }

    /// Ends a component as a crash would, and gives the process that took its place.
    pub async fn kill(&self, component: &str) -> Result<ComponentStatus> {
        let before = self.await_running(component, None).await?;
        self.act(component, Action::Kill).await?;
        self.await_running(component, before.pid).await
    }

    /// Waits until a component runs, with another process than `not`.
    async fn await_running(&self, component: &str, not: Option<u32>) -> Result<ComponentStatus> {
        let name = component.to_owned();
        self.ask(component, Request::AwaitRunning { component: name, not }).await?;
        self.component(component).await
    }

    /// The supervisor's own process, if there is one.
    pub fn pid(&self) -> Option<u32> {
        let told = std::fs::read_to_string(self.folder.join(super::LOCK)).ok()?;
        told.trim().parse().ok().filter(|_| super::is_running(&self.folder))
    }

    /// Whether there is a supervisor that answers. One that has just been started, or is just
    /// dying, is waited for; one that hangs is ended.
    pub(crate) async fn is_alive(&self) -> Result<bool> {
        let deadline = Instant::now() + SHORT_PATIENCE;
        while super::is_running(&self.folder) {
            if self.status().await.is_ok() {
                return Ok(true);
            }
            if Instant::now() > deadline {
                self.end().await?;
            }
            sleep(Duration::from_millis(10)).await;
        }
        Ok(false)
    }

    /// Ends everything, and waits until it is gone.
    pub(crate) async fn shut_down(&self) -> Result<()> {
        // One that is dying anyway may hang up instead of answering.
        let _ = self.ask("", Request::Shutdown).await;
        let deadline = Instant::now() + SHORT_PATIENCE;
        while super::is_running(&self.folder) {
            if Instant::now() > deadline {
                return self.end().await;
            }
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Ends a supervisor that doesn't answer; its components die with it.
    async fn end(&self) -> Result<()> {
        let process = self.pid().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let Some(process) = process {
            let _ = kill_process(process, Signal::KILL);
        }
        let deadline = Instant::now() + SHORT_PATIENCE;
        while super::is_running(&self.folder) {
            if Instant::now() > deadline {
                return Err(Error::Timeout {
                    what: format!("the supervisor of cluster '{}' to end", self.cluster),
                    seconds: SHORT_PATIENCE.as_secs(),
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

    async fn ask(&self, component: &str, request: Request) -> Result<Vec<ComponentStatus>> {
        let talking =
            || Error::io(format!("talking to the supervisor of cluster '{}'", self.cluster));
        let Ok(mut stream) =
            with_socket(&self.folder, |path| std::os::unix::net::UnixStream::connect(path))
                .and_then(|stream| stream.set_nonblocking(true).map(|()| stream))
                .and_then(UnixStream::from_std)
        else {
            return Err(Error::NotRunning { name: self.cluster.clone() });
        };
        let mut line = serde_json::to_string(&request).map_err(|error| talking()(error.into()))?;
        line.push('\n');
        let mut answer = String::new();
        let exchange = async {
            stream.write_all(line.as_bytes()).await?;
            BufReader::new(&mut stream).read_line(&mut answer).await
        };
        let patience = match request {
            Request::Status | Request::Shutdown => SHORT_PATIENCE,
            Request::Act { .. } | Request::Renew { .. } | Request::AwaitRunning { .. } => PATIENCE,
        };
        let late = |_| Error::Timeout {
            what: format!("the supervisor's answer to {request:?}"),
            seconds: patience.as_secs(),
            detail: String::new(),
        };
        timeout(patience, exchange).await.map_err(late)?.map_err(talking())?;
        match serde_json::from_str(&answer).map_err(|error| talking()(error.into()))? {
            Response::Components(components) => Ok(components),
            Response::Unknown(known) => Err(self.unknown(component, &known)),
            Response::DoesNotRun => {
                Err(Error::failed(format!("{request:?}"), format!("{component} doesn't run")))
            }
        }
    }
}

/// Calls `use_path` with a path to the socket in `folder` that is short whatever the folder's is:
/// a socket's path can't be longer than 107 bytes.
pub(super) fn with_socket<T>(
    folder: &Path,
    use_path: impl FnOnce(&Path) -> std::io::Result<T>,
) -> std::io::Result<T> {
    let open = File::open(folder)?;
    use_path(&Path::new("/proc/self/fd").join(open.as_raw_fd().to_string()).join("control.sock"))
}
