//! The process that keeps a cluster's components running after the command that made it has ended.
//!
//! Every component dies with the supervisor, however that ends: a cluster either is looked after
//! or doesn't run at all.

mod client;
mod log;
mod process;
mod protocol;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant, SystemTime},
};

use rustix::process::Signal;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream},
    signal::unix::{SignalKind, signal},
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

pub use self::{
    client::Supervisor,
    protocol::{Action, ComponentStatus, State},
};
use self::{
    log::Log,
    process::Process,
    protocol::{Request, Response},
};
use crate::{
    Error, Result, cgroups,
    components::{Component, Layout, Place, components},
    network::Addresses,
    spec::{NodeKind, Spec},
};

/// Environment variable that names the `oprc` program to run supervisors with.
pub const PROGRAM: &str = "OPRC";

/// The pause before a component that ended is started again: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A component that ran this long has recovered.
const RECOVERED: Duration = Duration::from_secs(30);
/// How long a component may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(10);
/// The longest line that a client may send.
const LONGEST_REQUEST: u64 = 4096;

/// The `oprc` program: the one named by [`PROGRAM`], this one, or the one that was built beside it.
pub(crate) fn program() -> PathBuf {
    if let Some(named) = std::env::var_os(PROGRAM) {
        return named.into();
    }
    let current = std::env::current_exe().unwrap_or_default();
    let beside = current
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("oprc"));
    if current
        .file_name()
        .is_some_and(|name| name == "oprc" || name == "kubectl-oaas")
    {
        return current;
    }
    beside
        .into_iter()
        .find(|path| path.is_file())
        .unwrap_or_else(|| "oprc".into())
}

/// Starts the supervisor of a cluster as a process of its own that outlives this one.
pub(crate) fn spawn(spec: &Spec) -> Result<()> {
    let layout = Layout::of(spec)?;
    let program = program();
    let starting = || {
        Error::io(format!(
            "starting a supervisor with {} (the variable {PROGRAM} names another oprc)",
            program.display()
        ))
    };
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(layout.log("supervisor"));
    let log = log.map_err(starting())?;
    std::process::Command::new(&program)
        .args(["sandbox", "supervise", &spec.name])
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(starting())?)
        .stderr(log)
        .spawn()
        .map_err(starting())
        .map(drop)
}

/// Whether a cluster has a supervisor, told by the lock that it holds.
pub(crate) fn is_running(folder: &Path) -> bool {
    let file = std::fs::File::open(folder.join("supervisor.lock"));
    file.is_ok_and(|file| {
        matches!(
            file.try_lock_shared(),
            Err(std::fs::TryLockError::WouldBlock)
        )
    })
}

/// Looks after a cluster until it is told to end. Runs in the process that [`spawn`] starts, on
/// one thread: its end is what ends the components.
pub async fn supervise(name: &str) -> Result<()> {
    // Already a session's leader: fine. The point is not to get a terminal's signals.
    let _ = rustix::process::setsid();
    let Some(spec) = Spec::load(name)? else {
        return Err(Error::NotRunning {
            name: name.to_owned(),
        });
    };
    let layout = Layout::of(&spec)?;
    let lock = crate::cache::wait_for_lock(&layout.0.join("supervisor.lock"), "this cluster")?;
    if spec.kind == NodeKind::Real {
        cgroups::make(&spec)?;
        spec.addresses().make_bridge()?;
    }
    let socket = layout.0.join("control.sock");
    let _ = std::fs::remove_file(&socket);
    let listening = || Error::io(format!("listening on {}", socket.display()));
    let listener =
        client::with_socket(&layout.0, |path| UnixListener::bind(path)).map_err(listening())?;
    let mut terminate = signal(SignalKind::terminate()).map_err(listening())?;

    let nodes: BTreeMap<u8, watch::Sender<Option<u32>>> = (0..u8::try_from(spec.nodes)
        .unwrap_or(u8::MAX))
        .map(|node| (node, watch::Sender::new(None)))
        .collect();
    let mut keepers = JoinSet::new();
    let mut handles = Handles::default();
    for component in components(&spec, &layout) {
        let (commands, receiver) = mpsc::channel(8);
        let status = watch::Sender::new(initial_status(&component.name));
        handles.0.insert(
            component.name.clone(),
            Handle {
                commands,
                status: status.subscribe(),
            },
        );
        handles.1.push(component.name.clone());
        let node = match component.place {
            Place::Host => None,
            Place::NodeInit(node) | Place::Node(node) => nodes.get(&node).cloned(),
        };
        let keeper = Keeper {
            log: Log::open(layout.log(&component.name)).map_err(Error::io("opening a log"))?,
            component,
            commands: receiver,
            status,
            node,
            addresses: spec.addresses(),
            nodes: u8::try_from(spec.nodes).unwrap_or(u8::MAX),
        };
        keepers.spawn(keeper.run());
    }
    let (end, mut ended) = mpsc::channel::<oneshot::Sender<()>>(1);
    let done = loop {
        tokio::select! {
            connection = listener.accept() => {
                if let Ok((stream, _)) = connection {
                    tokio::spawn(answer(stream, handles.clone(), end.clone()));
                }
            }
            done = ended.recv() => break done,
            _ = terminate.recv() => break None,
        }
    };
    // Each keeper ends its process when it is dropped.
    let holders: Vec<u32> = nodes.values().filter_map(|node| *node.borrow()).collect();
    keepers.shutdown().await;
    await_end(&holders).await;
    let _ = std::fs::remove_file(&socket);
    drop(lock);
    if let Some(done) = done {
        let _ = done.send(());
        // The answer is on its way through a task of its own.
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Waits until no process is left: neither one of ours, nor one that holds a node's namespaces,
/// which is gone only when everything in them is.
async fn await_end(holders: &[u32]) {
    let left = || {
        process::child_of(std::process::id()).is_some()
            || holders
                .iter()
                .any(|pid| Path::new(&format!("/proc/{pid}")).exists())
    };
    let deadline = Instant::now() + GRACE;
    while left() && Instant::now() < deadline {
        sleep(Duration::from_millis(5)).await;
    }
}

/// The keepers by the names of their components, and those names in order.
#[derive(Clone, Default)]
struct Handles(BTreeMap<String, Handle>, Vec<String>);

#[derive(Clone)]
struct Handle {
    commands: mpsc::Sender<(Action, oneshot::Sender<()>)>,
    status: watch::Receiver<ComponentStatus>,
}

impl Handles {
    fn all(&self) -> Response {
        let status = |name| {
            self.0
                .get(name)
                .map(|handle| handle.status.borrow().clone())
        };
        Response::Components(self.1.iter().filter_map(status).collect())
    }
}

/// Answers the requests of one client.
async fn answer(stream: UnixStream, handles: Handles, end: mpsc::Sender<oneshot::Sender<()>>) {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    let mut reader = BufReader::new(reader.take(LONGEST_REQUEST));
    if reader.read_line(&mut line).await.is_err() {
        return;
    }
    let Ok(request) = serde_json::from_str(&line) else {
        return;
    };
    let response = match request {
        Request::Status => handles.all(),
        Request::Shutdown => {
            let (done, finished) = oneshot::channel();
            let _ = end.send(done).await;
            let _ = finished.await;
            Response::Components(Vec::new())
        }
        Request::Act { component, action } => match handles.0.get(&component) {
            None => Response::Unknown(handles.1.clone()),
            Some(handle) => {
                let (done, finished) = oneshot::channel();
                let _ = handle.commands.send((action, done)).await;
                let _ = finished.await;
                handles.all()
            }
        },
        Request::AwaitRestart { component, pid } => match handles.0.get(&component) {
            None => Response::Unknown(handles.1.clone()),
            Some(handle) => {
                let mut status = handle.status.clone();
                let other = |status: &ComponentStatus| status.pid.is_some_and(|now| now != pid);
                let _ = status.wait_for(other).await;
                handles.all()
            }
        },
    };
    if let Ok(mut text) = serde_json::to_string(&response) {
        text.push('\n');
        let _ = writer.write_all(text.as_bytes()).await;
    }
}

fn initial_status(name: &str) -> ComponentStatus {
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
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// Keeps one component running.
struct Keeper {
    component: Component,
    commands: mpsc::Receiver<(Action, oneshot::Sender<()>)>,
    status: watch::Sender<ComponentStatus>,
    /// The process that holds the node's namespaces: told by the node's own keeper, read by others.
    node: Option<watch::Sender<Option<u32>>>,
    addresses: Addresses,
    nodes: u8,
    log: Log,
}

impl Keeper {
    async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        let mut wanted = true;
        loop {
            if !wanted {
                let Some((action, done)) = self.commands.recv().await else {
                    return;
                };
                wanted = action == Action::Start;
                let _ = done.send(());
                continue;
            }
            let begun = Instant::now();
            let end = match self.start().await {
                Ok(process) => match self.watch(process).await {
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
            let _ = self
                .log
                .write(format!("--- {} ended: {end}\n", self.component.name).as_bytes());
            self.tell(State::Waiting, None, |status| {
                status.last_end = Some(end);
                status.restarts += 1;
            });
            tokio::select! {
                () = sleep(pause) => {}
                Some((action, done)) = self.commands.recv() => {
                    wanted = action != Action::Stop;
                    if !wanted {
                        self.tell(State::Stopped, None, |_| ());
                    }
                    let _ = done.send(());
                }
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
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

                node.wait_for(Option::is_some)
                    .await
                    .ok()
                    .and_then(|pid| *pid)
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
    async fn watch(&mut self, mut process: Process) -> End {
        self.tell(State::Running, process.pid(), |_| ());
        let end = loop {
            let (action, done) = tokio::select! {
                how = process.ended() => break End::Itself(how),
                Some(command) = self.commands.recv() => command,
            };
            match action {
                Action::Start => {}
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
                    let _ = done.send(());
                    break End::OnRequest;
                }
            }
            let _ = done.send(());
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
