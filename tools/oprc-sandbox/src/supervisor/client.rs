//! Talks to the supervisor of a cluster.

use std::{
    fs::File,
    os::fd::AsRawFd as _,
    path::Path,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
    time::{sleep, timeout},
};

use super::protocol::{Action, ComponentStatus, Request, Response};
use crate::{Error, Result};

/// How long an answer, or the end of everything, may take.
const PATIENCE: Duration = Duration::from_mins(1);

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

    /// Does something to one component.
    pub async fn act(&self, component: &str, action: Action) -> Result<()> {
        self.ask(
            component,
            Request::Act {
                component: component.to_owned(),
                action,
            },
        )
        .await
        .map(drop)
    }

    /// Ends a component as a crash would, and gives the process that took its place.
    pub async fn kill(&self, component: &str) -> Result<ComponentStatus> {
        let status = self.component(component).await?;
        let pid = status
            .pid
            .ok_or_else(|| Error::failed(format!("Killing {component}"), "it doesn't run"))?;
        let process = i32::try_from(pid)
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        if let Some(process) = process {
            rustix::process::kill_process(process, rustix::process::Signal::KILL)
                .map_err(|error| Error::io(format!("killing {component}"))(error.into()))?;
        }
        self.ask(
            component,
            Request::AwaitRestart {
                component: component.to_owned(),
                pid,
            },
        )
        .await?;
        self.component(component).await
    }

    /// Whether there is a supervisor that answers. One that has just been started, or is just
    /// dying, is waited for.
    pub(crate) async fn is_alive(&self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while super::is_running(&self.folder) && Instant::now() < deadline {
            if self.status().await.is_ok() {
                return true;
            }
            sleep(Duration::from_millis(10)).await;
        }
        false
    }

    /// Ends everything, and waits until it is gone.
    pub(crate) async fn shut_down(&self) -> Result<()> {
        let outcome = self.ask("", Request::Shutdown).await;
        let deadline = Instant::now() + PATIENCE;
        while super::is_running(&self.folder) {
            if Instant::now() > deadline {
                return outcome.map(drop);
            }
            sleep(Duration::from_millis(10)).await;
        }
        // One that was dying anyway may have hung up instead of answering.
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
        let talking = || {
            Error::io(format!(
                "talking to the supervisor of cluster '{}'",
                self.cluster
            ))
        };
        let Ok(mut stream) = with_socket(&self.folder, |path| {
            std::os::unix::net::UnixStream::connect(path)
        })
        .and_then(|stream| stream.set_nonblocking(true).map(|()| stream))
        .and_then(UnixStream::from_std) else {
            return Err(Error::NotRunning {
                name: self.cluster.clone(),
            });
        };
        let mut line = serde_json::to_string(&request).map_err(|error| talking()(error.into()))?;
        line.push('\n');
        let mut answer = String::new();
        let exchange = async {
            stream.write_all(line.as_bytes()).await?;
            BufReader::new(&mut stream).read_line(&mut answer).await
        };
        let late = |_| Error::Timeout {
            what: format!("The supervisor's answer to {request:?}"),
            seconds: PATIENCE.as_secs(),
            detail: String::new(),
        };
        timeout(PATIENCE, exchange)
            .await
            .map_err(late)?
            .map_err(talking())?;
        match serde_json::from_str(&answer).map_err(|error| talking()(error.into()))? {
            Response::Components(components) => Ok(components),
            Response::Unknown(known) => Err(self.unknown(component, &known)),
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
    use_path(
        &Path::new("/proc/self/fd")
            .join(open.as_raw_fd().to_string())
            .join("control.sock"),
    )
}
