//! Runs one component and restarts it with backoff.

use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{sleep, timeout},
};

use super::{Action, ComponentStatus, GRACE_PERIOD, State, log::Log, process::Process};
use crate::{
    Error, Result,
    component::{Component, Place},
    network::Addresses,
};

const INITIAL_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// The backoff is reset after a component has run this long.
const BACKOFF_RESET: Duration = Duration::from_secs(30);

/// An action, with a channel that receives whether it was possible.
pub(super) type Command = (Action, oneshot::Sender<bool>);

pub(super) struct ComponentRunner {
    pub(super) component: Component,
    pub(super) status: watch::Sender<ComponentStatus>,
    /// Process 1 of the node: set by the runner of `NodeInit`, read by other runners of the node.
    pub(super) node: Option<watch::Sender<Option<u32>>>,
    pub(super) addresses: Addresses,
    pub(super) nodes: u8,
    pub(super) log: Log,
}

impl ComponentRunner {
    /// Runs and restarts the component until the task is dropped.
    pub(super) async fn run(self, mut commands: mpsc::Receiver<Command>) {
        let mut backoff = INITIAL_BACKOFF;
        let mut desired = true;
        loop {
            if !desired {
                let Some(command) = commands.recv().await else { return };
                desired = self.handle_while_stopped(command, desired);
                continue;
            }
            let started_at = Instant::now();
            let started = tokio::select! {
                started = self.start() => started,
                // Components of a stopped node wait here until it starts.
                command = commands.recv() => {
                    let Some(command) = command else { return };
                    desired = self.handle_while_stopped(command, desired);
                    continue;
                }
            };
            let exit = match started {
                Ok(process) => self.watch(process, &mut commands).await,
                Err(error) => Some(error.to_string()),
            };
            let Some(exit) = exit else {
                desired = false;
                backoff = INITIAL_BACKOFF;
                continue;
            };
            if started_at.elapsed() > BACKOFF_RESET {
                backoff = INITIAL_BACKOFF;
            }
            let line = format!("--- {} exited: {exit}\n", self.component.name);
            let _ = self.log.write(line.as_bytes());
            self.status.send_modify(|status| {
                status.last_end = Some(exit);
                status.restarts += 1;
            });
            self.set_status(State::Waiting, None);
            tokio::select! {
                () = sleep(backoff) => {}
                command = commands.recv() => {
                    let Some(command) = command else { return };
                    desired = self.handle_while_stopped(command, desired);
                }
            }
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }

    /// Handles an action on a component that is not running; returns whether it should run.
    fn handle_while_stopped(&self, (action, done): Command, desired: bool) -> bool {
        let (desired, possible) = match action {
            Action::Start => (true, true),
            Action::Stop => (false, true),
            Action::Kill | Action::Freeze | Action::Thaw => (desired, false),
        };
        if !desired {
            self.set_status(State::Stopped, None);
        }
        let _ = done.send(possible);
        desired
    }

    fn set_status(&self, state: State, pid: Option<u32>) {
        self.status.send_modify(|status| {
            status.state = state;
            status.pid = pid;
            status.since = now();
        });
    }

    async fn start(&self) -> Result<Process> {
        let node_init = match (&self.node, self.component.place) {
            (Some(node), Place::Node(_)) => {
                let mut node = node.subscribe();
                node.wait_for(Option::is_some).await.ok().and_then(|pid| *pid)
            }
            _ => None,
        };
        let process = Process::start(&self.component, node_init, &self.log).await?;
        if let (Some(node), Place::NodeInit(number)) = (&self.node, self.component.place) {
            let exited = || Error::failed("starting a node", "it exited immediately");
            let pid = process.pid().ok_or_else(exited)?;
            self.addresses.connect(pid, number, self.nodes)?;
            node.send_replace(Some(pid));
        }
        Ok(process)
    }

    /// Waits for the exit of a process and handles actions on it. Returns the exit status, none if the
    /// exit was requested.
    async fn watch(
        &self,
        mut process: Process,
        commands: &mut mpsc::Receiver<Command>,
    ) -> Option<String> {
        self.set_status(State::Running, process.pid());
        let exit = loop {
            let command = tokio::select! {
                status = process.exited() => break Some(status),
                command = commands.recv() => command,
            };
            // A closed channel means that another runner has replaced this one.
            let (action, done) = command.unwrap_or_else(|| (Action::Stop, oneshot::channel().0));
            match action {
                Action::Start => {}
                Action::Kill => {
                    process.signal(Signal::KILL);
                    // The wrapper of a frozen process is frozen, too.
                    process.thaw();
                }
                Action::Freeze => {
                    process.signal(Signal::STOP);
                    self.set_status(State::Frozen, process.pid());
                }
                Action::Thaw => {
                    process.thaw();
                    self.set_status(State::Running, process.pid());
                }
                Action::Stop => {
                    process.thaw();
                    process.terminate();
                    if timeout(GRACE_PERIOD, process.exited()).await.is_err() {
                        process.signal(Signal::KILL);
                        process.exited().await;
                    }
                    self.set_status(State::Stopped, None);
                    let _ = done.send(true);
                    break None;
                }
            }
            let _ = done.send(true);
        };
        if let (Some(node), Place::NodeInit(_)) = (&self.node, self.component.place) {
            node.send_replace(None);
        }
        exit
    }
}

pub(super) fn initial_status(name: &str) -> ComponentStatus {
    ComponentStatus {
        name: name.to_owned(),
        state: State::Waiting,
        pid: None,
        restarts: 0,
        last_end: None,
        since: now(),
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}
