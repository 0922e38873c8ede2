//! The process that keeps a cluster's components running after the command that made it has ended.
//!
//! Every component dies with the supervisor, however that ends: a cluster either is looked after
//! or doesn't run at all.

mod client;
mod keeper;
mod log;
mod process;
mod protocol;

use std::{
    collections::BTreeMap,
    io::Write as _,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
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
    keeper::{Keeper, initial_status},
    log::Log,
    protocol::{Request, Response},
};
use crate::{
    Error, Result, cgroups, companion,
    components::{Component, Layout, Place, components},
    spec::{NodeKind, Spec},
};

/// The file that a supervisor holds locked, with its process id in it.
const LOCK: &str = "supervisor.lock";
/// How long a component may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(10);
/// The longest line that a client may send.
const LONGEST_REQUEST: u64 = 4096;

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
    let log = std::fs::File::options().create(true).append(true).open(layout.log("supervisor"));
    let log = log.map_err(starting())?;
    std::process::Command::new(&program)
        .args(["sandbox", "supervise", &spec.name])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(starting())?)
        .stderr(log)
        .spawn()
        .map_err(starting())
        .map(drop)
}

/// Whether a cluster has a supervisor, told by the lock that it holds.
pub(crate) fn is_running(folder: &Path) -> bool {
    let file = std::fs::File::open(folder.join(LOCK));
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(std::fs::TryLockError::WouldBlock)))
}

/// Becomes the one supervisor of the cluster in a folder, until the answer is dropped.
fn lock(folder: &Path) -> Result<std::fs::File> {
    let file = folder.join(LOCK);
    let locking = || Error::io(format!("locking {}", file.display()));
    let mut open = std::fs::File::options();
    let mut lock = open.create(true).truncate(false).write(true).open(&file).map_err(locking())?;
    // Whoever looks whether there is a supervisor holds the lock for a moment too.
    for _ in 0..100 {
        if lock.try_lock().is_ok() {
            let told = lock.set_len(0).and_then(|()| write!(lock, "{}", std::process::id()));
            return told.map(|()| lock).map_err(locking());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(Error::failed("Starting a supervisor", "there is one already"))
}

/// Looks after a cluster until it is told to end. Runs in the process that [`spawn`] starts, on
/// one thread: its end is what ends the components.
pub async fn supervise(name: &str) -> Result<()> {
    // Already a session's leader: fine. The point is not to get a terminal's signals.
    let _ = rustix::process::setsid();
    let Some(spec) = Spec::load(name)? else {
        return Err(Error::NotRunning { name: name.to_owned() });
    };
    let layout = Layout::of(&spec)?;
    let lock = lock(&layout.0)?;
    if spec.kind == NodeKind::Real {
        spec.addresses().make_bridge(&layout.0)?;
        cgroups::make(&spec)?;
    }
    let socket = layout.0.join("control.sock");
    let _ = std::fs::remove_file(&socket);
    let listening = || Error::io(format!("listening on {}", socket.display()));
    let listener =
        client::with_socket(&layout.0, |path| UnixListener::bind(path)).map_err(listening())?;
    let mut terminate = signal(SignalKind::terminate()).map_err(listening())?;

    let real = if spec.kind == NodeKind::Real { spec.nodes } else { 0 };
    let real = u8::try_from(real).unwrap_or_default();
    let nodes: BTreeMap<u8, watch::Sender<Option<u32>>> =
        (0..real).map(|node| (node, watch::Sender::new(None))).collect();
    let mut keepers = JoinSet::new();
    let handles = Handles::default();
    let mut keep = |component: Component| -> Result<()> {
        let (commands, receiver) = mpsc::channel(8);
        let status = watch::Sender::new(initial_status(&component.name));
        handles.put(&component.name, Handle { commands, status: status.subscribe() });
        let node = match component.place {
            Place::Host => None,
            Place::NodeInit(node) | Place::Node(node) => nodes.get(&node).cloned(),
        };
        let keeper = Keeper {
            log: Log::open(layout.log(&component.name)).map_err(Error::io("opening a log"))?,
            component,
            status,
            node,
            addresses: spec.addresses(),
            nodes: real,
        };
        keepers.spawn(keeper.run(receiver));
        Ok(())
    };
    for component in components(&spec, &layout) {
        keep(component)?;
    }
    let (end, mut ended) = mpsc::channel::<()>(1);
    let (renew, mut renewed) = mpsc::channel::<Renewal>(1);
    loop {
        tokio::select! {
            connection = listener.accept() => {
                match connection {
                    Ok((stream, _)) => {
                        let (handles, renew, end) = (handles.clone(), renew.clone(), end.clone());
                        tokio::spawn(answer(stream, handles, renew, end));
                    }
                    // Too many open files, say: that passes, and not by asking at once.
                    Err(_) => sleep(Duration::from_millis(50)).await,
                }
            }
            Some((name, done)) = renewed.recv() => {
                // The keeper of before ends when nobody can ask it for anything any more.
                let stored = companion::load(&layout.0).into_iter().find(|it| it.name == name);
                let kept = stored.is_some_and(|it| keep(it.component()).is_ok());
                let _ = done.send(kept);
            }
            _ = ended.recv() => break,
            _ = terminate.recv() => break,
        }
    }
    // Each keeper ends its process when it is dropped.
    let holders: Vec<u32> = nodes.values().filter_map(|node| *node.borrow()).collect();
    keepers.shutdown().await;
    await_end(&holders).await;
    let _ = std::fs::remove_file(&socket);
    drop(lock);
    Ok(())
}

/// Waits until no process is left: neither one of ours, nor one that holds a node's namespaces,
/// which is gone only when everything in them is.
async fn await_end(holders: &[u32]) {
    let left = || {
        process::child_of(std::process::id()).is_some()
            || holders.iter().any(|pid| Path::new(&format!("/proc/{pid}")).exists())
    };
    let deadline = Instant::now() + GRACE;
    while left() && Instant::now() < deadline {
        sleep(Duration::from_millis(5)).await;
    }
}

/// A companion that is to be kept as it is stored now, and whom to tell whether it is.
type Renewal = (String, oneshot::Sender<bool>);

/// The keepers by the names of their components, in the order in which they were first started.
#[derive(Clone, Default)]
struct Handles(Arc<Mutex<Vec<(String, Handle)>>>);

#[derive(Clone)]
struct Handle {
    commands: mpsc::Sender<(Action, oneshot::Sender<bool>)>,
    status: watch::Receiver<ComponentStatus>,
}

impl Handles {
    fn list(&self) -> MutexGuard<'_, Vec<(String, Handle)>> {
        self.0.lock()
    }

    fn put(&self, name: &str, handle: Handle) {
        let mut all = self.list();
        match all.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = handle,
            None => all.push((name.to_owned(), handle)),
        }
    }

    fn get(&self, name: &str) -> Option<Handle> {
        self.list().iter().find(|(known, _)| known == name).map(|(_, handle)| handle.clone())
    }

    fn names(&self) -> Vec<String> {
        self.list().iter().map(|(name, _)| name.clone()).collect()
    }

    fn all(&self) -> Response {
        let all = self.list();
        Response::Components(all.iter().map(|(_, it)| it.status.borrow().clone()).collect())
    }
}

/// Answers the requests of one client.
async fn answer(
    stream: UnixStream,
    handles: Handles,
    renew: mpsc::Sender<Renewal>,
    end: mpsc::Sender<()>,
) {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    let mut reader = BufReader::new(reader.take(LONGEST_REQUEST));
    if !matches!(timeout(GRACE, reader.read_line(&mut line)).await, Ok(Ok(_))) {
        return;
    }
    let Ok(request) = serde_json::from_str(&line) else {
        return;
    };
    let response = match request {
        Request::Status => handles.all(),
        Request::Shutdown => {
            let _ = end.send(()).await;
            handles.all()
        }
        Request::Renew { component } => {
            if let Some(handle) = handles.get(&component) {
                let (done, finished) = oneshot::channel();
                let _ = handle.commands.send((Action::Stop, done)).await;
                let _ = finished.await;
            }
            let (done, finished) = oneshot::channel();
            let _ = renew.send((component, done)).await;
            if finished.await.unwrap_or_default() { handles.all() } else { Response::DoesNotRun }
        }
        Request::Act { component, action } => match handles.get(&component) {
            None => Response::Unknown(handles.names()),
            Some(handle) => {
                let (done, finished) = oneshot::channel();
                let _ = handle.commands.send((action, done)).await;
                if finished.await.unwrap_or_default() {
                    handles.all()
                } else {
                    Response::DoesNotRun
                }
            }
        },
        Request::AwaitRunning { component, not } => match handles.get(&component) {
            None => Response::Unknown(handles.names()),
            Some(handle) => {
                let mut status = handle.status.clone();
                let other = |status: &ComponentStatus| status.pid.is_some() && status.pid != not;
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
