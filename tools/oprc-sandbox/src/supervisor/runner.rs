//! Keeps one component running.

use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{sleep, timeout},
};

use super::{Action, ComponentStatus, GRACE, State, log::Log, process::Process};
use crate::{
    Error, Result,
    components::{Component, Place},
    network::Addresses,
};

/// The pause before a component that ended is started again: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A component that ran this long has recovered.
const RECOVERED: Duration = Duration::from_secs(30);

/// What is asked of a keeper, each with whom to tell whether it could be done.
pub(super) type Commands = mpsc::Receiver<(Action, oneshot::Sender<bool>)>;

/// Keeps one component running.
pub(super) struct Keeper {
    pub(super) component: Component,
    pub(super) status: watch::Sender<ComponentStatus>,
    /// The process that holds the node's namespaces: told by the node's own keeper, read by others.
    pub(super) node: Option<watch::Sender<Option<u32>>>,
    pub(super) addresses: Addresses,
    pub(super) nodes: u8,
    pub(super) log: Log,
}

impl Keeper {
    /// Starts it, again and again, until the task is dropped.
    pub(super) async fn run(self, mut commands: Commands) {
        let mut pause = FIRST_PAUSE;
        let mut wanted = true;
        loop {
            if !wanted {
                let Some(command) = commands.recv().await else { return };
                wanted = self.while_not_running(command, wanted);
                continue;
            }
            let begun = Instant::now();
            let started = tokio::select! {
                started = self.start() => started,
                // A node that is stopped keeps what runs on it waiting without end.
                command = commands.recv() => {
                    let Some(command) = command else { return };
                    wanted = self.while_not_running(command, wanted);
                    continue;
                }
            };
            let end = match started {
                Ok(process) => match self.watch(process, &mut commands).await {
                    End::Itself(how) => how,
                    End::OnRequest => {
                        wanted = false;
                        pause = FIRST_PAUSE;
                        continue;
                    }
                },
                Err(error) => error.to_string(),
            };
            if begun.elapsed() > RECOVERED {
                pause = FIRST_PAUSE;
            }
            let _ =
                self.log.write(format!("--- {} ended: {end}\n", self.component.name).as_bytes());
            self.tell(State::Waiting, None, |status| {
                status.last_end = Some(end);
                status.restarts += 1;
            });
            tokio::select! {
                () = sleep(pause) => {}
                command = commands.recv() => {
                    let Some(command) = command else { return };
                    wanted = self.while_not_running(command, wanted);
                }
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Does what is asked of a component that doesn't run; tells whether it is to run.
    fn while_not_running(&self, command: (Action, oneshot::Sender<bool>), wanted: bool) -> bool {
        let (action, done) = command;
        let (wanted, possible) = match action {
            Action::Start => (true, true),
            Action::Stop => (false, true),
            Action::Kill | Action::Freeze | Action::Thaw => (wanted, false),
        };
        if !wanted {
            self.tell(State::Stopped, None, |_| ());
        }
        let _ = done.send(possible);
        wanted
    }

    fn tell(&self, state: State, pid: Option<u32>, change: impl FnOnce(&mut ComponentStatus)) {
        self.status.send_modify(|status| {
            status.state = state;
            status.pid = pid;
            status.since = now();
            change(status);
        });
    }

    async fn start(&self) -> Result<Process> {
        let holder = match (&self.node, self.component.place) {
            (Some(node), Place::Node(_)) => {
                let mut node = node.subscribe();
                node.wait_for(Option::is_some).await.ok().and_then(|pid| *pid)
            }
            _ => None,
        };
        let process = Process::start(&self.component, holder, &self.log).await?;
        if let (Some(node), Place::NodeInit(number)) = (&self.node, self.component.place) {
            let pid = process
                .pid()
                .ok_or_else(|| Error::failed("starting a node", "it ended at once"))?;
            self.addresses.join(pid, number, self.nodes)?;
            node.send_replace(Some(pid));
        }
        Ok(process)
    }

    /// Follows a process to its end, and does to it what is asked.
    async fn watch(&self, mut process: Process, commands: &mut Commands) -> End {
        self.tell(State::Running, process.pid(), |_| ());
        let end = loop {
            let command = tokio::select! {
                how = process.ended() => break End::Itself(how),
                command = commands.recv() => command,
            };
            // Another keeper has taken this one's place: what it kept ends.
            let (action, done) = command.unwrap_or_else(|| (Action::Stop, oneshot::channel().0));
            match action {
                Action::Start => {}
                Action::Kill => {
                    process.signal(Signal::KILL);
                    // What waits for a frozen process is frozen with it.
                    process.thaw();
                }
                Action::Freeze => {
                    process.signal(Signal::STOP);
                    self.tell(State::Frozen, process.pid(), |_| ());
                }
                Action::Thaw => {
                    process.thaw();
                    self.tell(State::Running, process.pid(), |_| ());
                }
                Action::Stop => {
                    process.thaw();
                    process.terminate();
                    if timeout(GRACE, process.ended()).await.is_err() {
                        process.signal(Signal::KILL);
                        process.ended().await;
                    }
                    self.tell(State::Stopped, None, |_| ());
                    let _ = done.send(true);
                    break End::OnRequest;
                }
            }
            let _ = done.send(true);
        };
        if let (Some(node), Place::NodeInit(_)) = (&self.node, self.component.place) {
            node.send_replace(None);
        }
        end
    }
}

/// How a process ended.
enum End {
    Itself(String),
    OnRequest,
}

/// How a component is before its first start.
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
