//! A node as a process that is restarted when it ends, as the kubelet does.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{process::Child, sync::watch, task::JoinHandle, time::sleep};

/// Between the end of the process and its restart.
const RESTART_DELAY: Duration = Duration::from_millis(200);
/// For the end of the process after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(40);

#[derive(Debug)]
pub struct NodeProcess {
    pub url: String,
    wanted: watch::Sender<bool>,
    pid: watch::Receiver<Option<Pid>>,
    task: JoinHandle<()>,
}

impl NodeProcess {
    /// Starts a node that is reached at `url`. Its output is appended to the file `log`.
    pub fn start(
        url: String,
        log: PathBuf,
        command: impl Fn() -> Command + Send + 'static,
    ) -> Self {
        let (wanted, is_wanted) = watch::channel(true);
        let (pid, its_pid) = watch::channel(None);
        let task = tokio::spawn(supervise(command, log, is_wanted, pid));
        Self { url, wanted, pid: its_pid, task }
    }

    /// Kills the process and its children. It stays down until [`Self::up`].
    pub async fn kill(&self) {
        self.wanted.send_replace(false);
        self.signal_all(Signal::KILL);
        self.ended().await;
    }

    /// Ends the process as an update does. It stays down until [`Self::up`].
    pub async fn stop(&self) {
        self.wanted.send_replace(false);
        self.signal(Signal::TERM);
        if tokio::time::timeout(STOP_TIMEOUT, self.ended()).await.is_err() {
            self.signal_all(Signal::KILL);
            panic!("{} hasn't ended {} s after SIGTERM", self.url, STOP_TIMEOUT.as_secs());
        }
    }

    pub fn up(&self) {
        self.wanted.send_replace(true);
    }

    async fn ended(&self) {
        let _ = self.pid.clone().wait_for(Option::is_none).await;
    }

    /// Signals the process, but not its children.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = *self.pid.borrow() {
            // It may have ended.
            let _ = kill_process(pid, signal);
        }
    }

    /// Signals the children of the process.
    pub fn signal_children(&self, signal: Signal) {
        let pid = *self.pid.borrow();
        for child in pid.map(children).unwrap_or_default() {
            let _ = kill_process(child, signal);
        }
    }

    /// The children are found before their parent ends.
    fn signal_all(&self, signal: Signal) {
        let pid = *self.pid.borrow();
        for process in pid.map(|pid| [children(pid), vec![pid]].concat()).unwrap_or_default() {
            let _ = kill_process(process, signal);
        }
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        self.task.abort();
        self.signal_all(Signal::KILL);
    }
}

/// The child processes of a process.
pub fn children(pid: Pid) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid())).into_iter().flatten();
    let lists =
        tasks.flatten().filter_map(|it| fs::read_to_string(it.path().join("children")).ok());
    let lists: Vec<_> = lists.collect();
    let numbers = lists.iter().flat_map(|it| it.split_whitespace());
    numbers.filter_map(|it| Pid::from_raw(it.parse().ok()?)).collect()
}

async fn supervise(
    command: impl Fn() -> Command,
    log: PathBuf,
    mut wanted: watch::Receiver<bool>,
    pid: watch::Sender<Option<Pid>>,
) {
    while wanted.wait_for(|it| *it).await.is_ok() {
        let mut child = spawn(command(), &log);
        pid.send_replace(child.id().and_then(|it| Pid::from_raw(it.try_into().ok()?)));
        let _ = child.wait().await;
        pid.send_replace(None);
        sleep(RESTART_DELAY).await;
    }
}

fn spawn(command: Command, log: &Path) -> Child {
    let output = File::options().create(true).append(true).open(log).unwrap();
    let mut command = tokio::process::Command::from(command);
    command.stdin(Stdio::null()).stderr(output.try_clone().unwrap()).stdout(output);
    command.kill_on_drop(true).spawn().unwrap()
}
