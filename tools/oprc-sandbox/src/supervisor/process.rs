//! The process of one component, on the host or in the namespaces of a node.

use std::{fs, path::Path, process::Stdio, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::sleep,
};

use super::log::Log;
use crate::{
    Error, Result, command,
    component::{Component, Place},
};

/// A running process. On nodes, `child` is the wrapper (unshare or nsenter) that started it.
pub(super) struct Process {
    child: Child,
    place: Place,
}

impl Process {
    /// Starts a component. `node` is process 1 of its node.
    pub(super) async fn start(component: &Component, node: Option<u32>, log: &Log) -> Result<Self> {
        // The kernel kills the process when the supervisor exits for any reason.
        let setpriv = command::find("setpriv").unwrap_or_else(|| "setpriv".into());
        let mut command = Command::new(setpriv);
        command.args(["--pdeathsig", "KILL", "--"]);
        match component.place {
            Place::Host => {}
            Place::NodeInit(_) => {
                command.args(["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]);
                command.args(["--mount-proc", "--"]);
            }
            Place::Node(_) => {
                let target = node.unwrap_or_default().to_string();
                command.args(["nsenter", "--net", "--mount", "--pid", "--target", &target, "--"]);
                command.args(["setpriv", "--pdeathsig", "KILL", "--"]);
            }
        }
        command.arg(&component.program).args(&component.args);
        // containerd looks up its shim and kube-proxy looks up iptables on the PATH.
        let path = std::env::var("PATH").unwrap_or_default();
        let own = component.program.parent().unwrap_or(Path::new("")).display();
        command.env("PATH", format!("{own}:{path}:/usr/sbin:/sbin"));
        for variable in command::PROXY_VARIABLES {
            command.env_remove(variable);
        }
        command.envs(&component.env).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let starting = || format!("starting {} ({})", component.name, component.program.display());
        let mut child = command.spawn().map_err(Error::io(starting()))?;
        if let Some(output) = child.stderr.take() {
            tokio::spawn(log.clone().copy_from(output));
        }
        if let Some(output) = child.stdout.take() {
            let mut output = BufReader::new(output);
            if matches!(component.place, Place::NodeInit(_)) {
                let mut line = String::new();
                output.read_line(&mut line).await.map_err(Error::io(starting()))?;
                if line.trim() != "ready" {
                    let detail = "its namespaces were not created; see its log";
                    return Err(Error::failed(starting(), detail));
                }
            }
            tokio::spawn(log.clone().copy_from(output));
        }
        let process = Self { child, place: component.place };
        // Waits until the wrapper has started the component's process. There is no notification for
        // new children of another process.
        for _ in 0..1000 {
            if process.pid().is_some() {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
        Ok(process)
    }

    /// The component's process: the started one, or the only child of the wrapper.
    pub(super) fn pid(&self) -> Option<u32> {
        let pid = self.child.id()?;
        if self.place == Place::Host { Some(pid) } else { child_of(pid) }
    }

    /// Waits for the exit and returns the exit status.
    pub(super) async fn exited(&mut self) -> String {
        let exited = self.child.wait().await;
        exited.map_or_else(|error| error.to_string(), |status| status.to_string())
    }

    pub(super) fn terminate(&self) {
        // Process 1 of a PID namespace ignores SIGTERM.
        let is_init = matches!(self.place, Place::NodeInit(_));
        self.signal(if is_init { Signal::KILL } else { Signal::TERM });
    }

    pub(super) fn signal(&self, signal: Signal) {
        send_signal(self.pid(), signal);
    }

    /// Resumes a frozen process and its wrapper, which stops together with it.
    pub(super) fn thaw(&self) {
        self.signal(Signal::CONT);
        send_signal(self.child.id(), Signal::CONT);
    }
}

/// Sends a signal to a process, if it has not exited.
pub(super) fn send_signal(pid: Option<u32>, signal: Signal) {
    let pid = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    let _ = pid.map(|pid| kill_process(pid, signal));
}

/// The first process whose parent is `parent`.
pub(super) fn child_of(parent: u32) -> Option<u32> {
    fs::read_dir("/proc")
        .ok()?
        .filter_map(|item| item.ok()?.file_name().to_str()?.parse().ok())
        .find(|pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // The name in parentheses may contain any character. State and parent follow it.
            let (_, fields) = stat.rsplit_once(')').unwrap_or_default();
            let mut fields = fields.split_whitespace();
            fields.next() != Some("Z") && fields.next() == Some(&parent.to_string())
        })
}
