//! Starts the process of one component, where it belongs.

use std::{fs, process::Stdio, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::sleep,
};

use super::log::Log;
use crate::{
    Error, Result, command,
    components::{Component, Place},
};

/// A running process, and the one that it was started through.
pub(super) struct Process {
    child: Child,
    place: Place,
}

impl Process {
    /// Starts a component. `node` is a process in the namespaces of its node.
    pub(super) async fn start(component: &Component, node: Option<u32>, log: &Log) -> Result<Self> {
        let mut command = dying_with_parent();
        match component.place {
            Place::Host => {}
            Place::NodeInit(_) => {
                command.args([
                    "unshare",
                    "--net",
                    "--mount",
                    "--pid",
                    "--fork",
                    "--kill-child",
                    "--mount-proc",
                    "--",
                ]);
            }
            Place::Node(_) => {
                let target = node.unwrap_or_default().to_string();
                command.args(["nsenter", "--net", "--mount", "--pid", "--target", &target, "--"]);
                command.args(["setpriv", "--pdeathsig", "KILL", "--"]);
            }
        }
        command.arg(&component.program).args(&component.args);
        // containerd finds its shim and kube-proxy its iptables by name.
        let path = std::env::var("PATH").unwrap_or_default();
        let own = component
            .program
            .parent()
            .map(|folder| folder.display().to_string())
            .unwrap_or_default();
        command.env("PATH", format!("{own}:{path}:/usr/sbin:/sbin"));
        for variable in command::PROXY_VARIABLES {
            command.env_remove(variable);
        }
        command.envs(&component.env);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let starting = || format!("starting {} ({})", component.name, component.program.display());
        let mut child = command.spawn().map_err(Error::io(starting()))?;
        if let Some(output) = child.stderr.take() {
            tokio::spawn(log.clone().follow(output));
        }
        if let Some(output) = child.stdout.take() {
            let mut output = BufReader::new(output);
            if matches!(component.place, Place::NodeInit(_)) {
                let mut line = String::new();
                output.read_line(&mut line).await.map_err(Error::io(starting()))?;
                if line.trim() != "ready" {
                    return Err(Error::failed(
                        starting(),
                        "its namespaces weren't made; its log tells why",
                    ));
                }
            }
            tokio::spawn(log.clone().follow(output));
        }
        let process = Self { child, place: component.place };
        process.await_child().await;
        Ok(process)
    }

    /// Waits until a program in between has started the component's own process.
    async fn await_child(&self) {
        for _ in 0..1000 {
            if self.pid().is_some() {
                return;
            }
            // Nothing tells of another process's child.
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// The component's own process: the one that was started, or its only child where a
    /// program in between waits for it.
    pub(super) fn pid(&self) -> Option<u32> {
        let pid = self.child.id()?;
        match self.place {
            Place::Host => Some(pid),
            Place::NodeInit(_) | Place::Node(_) => child_of(pid),
        }
    }

    /// Waits for the end and tells how it was.
    pub(super) async fn ended(&mut self) -> String {
        match self.child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// Asks the component to end.
    pub(super) fn terminate(&self) {
        // The first process of a process namespace is deaf to everything else.
        let deaf = matches!(self.place, Place::NodeInit(_));
        self.signal(if deaf { Signal::KILL } else { Signal::TERM });
    }

    /// Sends a signal to the component's own process.
    pub(super) fn signal(&self, signal: Signal) {
        // A process that has just ended needs no signal.
        let _ = self.pid().and_then(to_pid).map(|pid| kill_process(pid, signal));
    }

    /// Lets a frozen process go on, and with it the one in between, which stops when it does.
    pub(super) fn thaw(&self) {
        self.signal(Signal::CONT);
        let _ = self.child.id().and_then(to_pid).map(|pid| kill_process(pid, Signal::CONT));
    }
}

fn to_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// A command whose process the kernel ends when the supervisor does, also when it is killed.
fn dying_with_parent() -> Command {
    let mut command = Command::new(command::find("setpriv").unwrap_or_else(|| "setpriv".into()));
    command.args(["--pdeathsig", "KILL", "--"]);
    command
}

/// The first process whose parent is `parent`.
pub(super) fn child_of(parent: u32) -> Option<u32> {
    fs::read_dir("/proc")
        .ok()?
        .filter_map(|item| item.ok()?.file_name().to_str()?.parse().ok())
        .find(|pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // The name in parentheses may contain anything; what follows is: state, parent.
            let fields = stat
                .rsplit_once(')')
                .map(|(_, rest)| rest.split_whitespace())
                .into_iter()
                .flatten();
            fields.clone().next() != Some("Z") && fields.clone().nth(1) == Some(&parent.to_string())
        })
}
