//! The process that runs a cluster's components and outlives the command that started it.
//!
//! The kernel kills all components when the supervisor exits, so a cluster never runs unsupervised.

mod client;
mod log;
mod process;
mod protocol;
mod runner;

use std::{
    collections::BTreeMap,
    fs::{self, File, TryLockError},
    io::Write as _,
    path::Path,
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
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
    protocol::{Request, Response},
    runner::{Command, ComponentRunner, initial_status},
};
use crate::{
    Error, Result, cgroup, command, companion,
    component::{Component, Place},
    components::components,
    layout::Layout,
    node,
    paths::{OPRC_VARIABLE, oprc_program},
    spec::{NodeKind, Spec},
};

/// A running supervisor holds a lock on this file, which contains its process id.
const LOCK: &str = "supervisor.lock";
/// How long a component may take to exit after SIGTERM.
const GRACE_PERIOD: Duration = Duration::from_secs(10);
const MAX_REQUEST_SIZE: u64 = 4096;

/// Starts the supervisor of a cluster as a process that outlives this one.
pub(crate) fn spawn(spec: &Spec) -> Result<()> {
    let layout = Layout::of(spec)?;
    let program = oprc_program();
    let start = || {
        let log = File::options().create(true).append(true).open(layout.log("supervisor"))?;
        let mut command = std::process::Command::new(&program);
        command.args(["sandbox", "supervise", &spec.name]).current_dir("/");
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()
    };
    start().map(drop).map_err(Error::io(format!(
        "starting a supervisor with {} (set {OPRC_VARIABLE} to use another oprc)",
        program.display()
    )))
}

/// Whether a supervisor holds the lock of the cluster.
pub(crate) fn is_running(folder: &Path) -> bool {
    let file = File::open(folder.join(LOCK));
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Takes the supervisor lock of the cluster in `folder` until the file is dropped.
fn lock(folder: &Path) -> Result<File> {
    let file = folder.join(LOCK);
    let locking = || Error::path("locking", &file);
    let mut open = File::options();
    let mut lock = open.create(true).truncate(false).write(true).open(&file).map_err(locking())?;
    // `is_running` holds the lock for a moment, too.
    command::retry(100, Duration::from_millis(10), || lock.try_lock())
        .map_err(|_| Error::failed("Starting a supervisor", "another one is already running"))?;
    let written = lock.set_len(0).and_then(|()| write!(lock, "{}", std::process::id()));
    written.map(|()| lock).map_err(locking())
}

/// Runs a cluster until a shutdown request or SIGTERM. Must run on a single-threaded runtime in the
/// process that [`spawn`] starts, because components are killed when the thread that started them
/// exits.
pub async fn supervise(name: &str) -> Result<()> {
    // Detaches from the terminal's signals; an error means that this is already a session leader.
    let _ = rustix::process::setsid();
    let spec = Spec::load(name)?.ok_or_else(|| Error::NotRunning { name: name.to_owned() })?;
    let layout = Layout::of(&spec)?;
    let lock = lock(&layout.0)?;
    if spec.kind == NodeKind::Real {
        spec.addresses().create_bridge(&layout.0)?;
        cgroup::create(&spec)?;
    }
    let socket = layout.0.join("control.sock");
    let _ = fs::remove_file(&socket);
    let listening = || Error::path("listening on", &socket);
    let listener =
        client::with_socket(&layout.0, |path| UnixListener::bind(path)).map_err(listening())?;
    let mut terminate = signal(SignalKind::terminate()).map_err(listening())?;

    let mut runners = Runners::new(spec, layout);
    for component in components(&runners.spec, &runners.layout) {
        runners.start(component)?;
    }
    let (shutdown, mut shut_down) = mpsc::channel::<()>(1);
    let (replace, mut replaced) = mpsc::channel::<Replacement>(1);
    loop {
        tokio::select! {
            connection = listener.accept() => {
                match connection {
                    Ok((stream, _)) => {
                        let handles = Arc::clone(&runners.handles);
                        tokio::spawn(respond(stream, handles, replace.clone(), shutdown.clone()));
                    }
                    // For example too many open files: retrying immediately would fail, too.
                    Err(_) => sleep(Duration::from_millis(50)).await,
                }
            }
            Some((name, done)) = replaced.recv() => {
                let _ = done.send(runners.start_companion(&name));
            }
            _ = shut_down.recv() => break,
            _ = terminate.recv() => break,
        }
    }
    runners.stop().await;
    let _ = fs::remove_file(&socket);
    drop(lock);
    Ok(())
}

/// The tasks that run the components of a cluster.
struct Runners {
    spec: Spec,
    layout: Layout,
    /// Process 1 of each real node.
    nodes: BTreeMap<u8, watch::Sender<Option<u32>>>,
    tasks: JoinSet<()>,
    handles: Handles,
}

impl Runners {
    fn new(spec: Spec, layout: Layout) -> Self {
        let nodes = node::numbers(&spec).map(|node| (node, watch::Sender::new(None))).collect();
        Self { spec, layout, nodes, tasks: JoinSet::new(), handles: Handles::default() }
    }

    /// Starts a component. A runner of the same name exits, because its command channel closes.
    fn start(&mut self, component: Component) -> Result<()> {
        let (commands, receiver) = mpsc::channel(8);
        let status = watch::Sender::new(initial_status(&component.name));
        let handle = Handle { commands, status: status.subscribe() };
        let mut handles = self.handles.lock();
        match handles.iter_mut().find(|known| known.is_of(&component.name)) {
            Some(known) => *known = handle,
            None => handles.push(handle),
        }
        drop(handles);
        let node = match component.place {
            Place::Host => None,
            Place::NodeInit(node) | Place::Node(node) => self.nodes.get(&node).cloned(),
        };
        let log = Log::open(self.layout.log(&component.name));
        let runner = ComponentRunner {
            log: log.map_err(Error::io("opening a log"))?,
            component,
            status,
            node,
            addresses: self.spec.addresses(),
            nodes: node::numbers(&self.spec).end,
        };
        self.tasks.spawn(runner.run(receiver));
        Ok(())
    }

    /// Starts a companion as it is stored now; returns whether that was possible.
    fn start_companion(&mut self, name: &str) -> bool {
        let stored = companion::load(&self.layout.0).into_iter().find(|it| it.name == name);
        stored.is_some_and(|it| self.start(it.component()).is_ok())
    }

    /// Kills all components and waits until they have exited.
    async fn stop(mut self) {
        let inits: Vec<u32> = self.nodes.values().filter_map(|node| *node.borrow()).collect();
        self.tasks.shutdown().await;
        wait_for_exit(&inits).await;
    }
}

/// Waits until all child processes and all processes 1 of nodes have exited. The latter exit after all
/// other processes of their node.
async fn wait_for_exit(inits: &[u32]) {
    let running = || {
        process::child_of(std::process::id()).is_some()
            || inits.iter().any(|pid| Path::new(&format!("/proc/{pid}")).exists())
    };
    let exited = async {
        while running() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let _ = timeout(GRACE_PERIOD, exited).await;
}

/// Name of a companion to start as it is stored now, and a channel for whether it was started.
type Replacement = (String, oneshot::Sender<bool>);

/// Handles of the runners in start order, one for each component.
type Handles = Arc<Mutex<Vec<Handle>>>;

#[derive(Clone)]
struct Handle {
    commands: mpsc::Sender<Command>,
    status: watch::Receiver<ComponentStatus>,
}

impl Handle {
    fn is_of(&self, component: &str) -> bool {
        self.status.borrow().name == component
    }

    /// Returns whether the action was possible.
    async fn act(&self, action: Action) -> bool {
        let (done, finished) = oneshot::channel();
        let _ = self.commands.send((action, done)).await;
        finished.await.unwrap_or_default()
    }
}

/// Handles the request of one connection.
async fn respond(
    stream: UnixStream,
    handles: Handles,
    replace: mpsc::Sender<Replacement>,
    shutdown: mpsc::Sender<()>,
) {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    let mut reader = BufReader::new(reader.take(MAX_REQUEST_SIZE));
    if !matches!(timeout(GRACE_PERIOD, reader.read_line(&mut line)).await, Ok(Ok(_))) {
        return;
    }
    let Ok(request) = serde_json::from_str(&line) else { return };
    let find = |component: &str| handles.lock().iter().find(|it| it.is_of(component)).cloned();
    // Whether the request was possible; none if the component is unknown.
    let done = match request {
        Request::Status => Some(true),
        Request::Shutdown => {
            let _ = shutdown.send(()).await;
            Some(true)
        }
        Request::Replace { component } => {
            if let Some(handle) = find(&component) {
                handle.act(Action::Stop).await;
            }
            let (done, finished) = oneshot::channel();
            let _ = replace.send((component, done)).await;
            Some(finished.await.unwrap_or_default())
        }
        Request::Act { component, action } => match find(&component) {
            Some(handle) => Some(handle.act(action).await),
            None => None,
        },
        Request::AwaitRunning { component, not } => match find(&component) {
            Some(mut handle) => {
                let is_other = |status: &ComponentStatus| status.pid.is_some() && status.pid != not;
                let _ = handle.status.wait_for(is_other).await;
                Some(true)
            }
            None => None,
        },
    };
    let components: Vec<_> = handles.lock().iter().map(|it| it.status.borrow().clone()).collect();
    let response = match done {
        Some(true) => Response::Components(components),
        Some(false) => Response::NotRunning,
        None => Response::Unknown(components.into_iter().map(|status| status.name).collect()),
    };
    if let Ok(mut text) = serde_json::to_string(&response) {
        text.push('\n');
        let _ = writer.write_all(text.as_bytes()).await;
    }
}
