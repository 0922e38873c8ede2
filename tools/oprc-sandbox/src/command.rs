//! Runs other programs to their end.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::{Error, Result};

/// How much of a failed program's output an error repeats.
const TAIL_LINES: usize = 12;

/// Variables that would send traffic for this machine's own clusters elsewhere.
pub(crate) const PROXY_VARIABLES: [&str; 6] =
    ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "http_proxy", "https_proxy"];

/// How long a program may run that has nothing to fetch and nothing to build.
const PATIENCE: Duration = Duration::from_mins(2);
/// How long one may run that fetches or builds.
const LONG_PATIENCE: Duration = Duration::from_hours(2);

/// Runs `command` and gives what it wrote to standard output.
pub(crate) fn run(what: &str, command: &mut Command) -> Result<String> {
    to_its_end(what, command.stdin(Stdio::null()).process_group(0), PATIENCE, |_| ())
}

/// Runs `command` with a file as its standard input.
pub(crate) fn run_reading(what: &str, command: &mut Command, input: File) -> Result<String> {
    to_its_end(what, command.stdin(input).process_group(0), PATIENCE, |_| ())
}

/// Runs `command`, which may take long, and calls `each_line` with every line that it writes to
/// standard error.
pub(crate) fn run_long(
    what: &str,
    command: &mut Command,
    each_line: impl FnMut(&str),
) -> Result<String> {
    to_its_end(what, command.stdin(Stdio::null()), LONG_PATIENCE, each_line)
}

fn to_its_end(
    what: &str,
    command: &mut Command,
    patience: Duration,
    mut each_line: impl FnMut(&str),
) -> Result<String> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Error::io(format!("{what}: {}", command.get_program().display())))?;
    let watchdog = Watchdog::of(&child, patience);
    let stdout = child.stdout.take();
    let reader = thread::spawn(move || {
        let mut text = String::new();
        for line in lines(stdout) {
            text.push_str(&line);
            text.push('\n');
        }
        text
    });
    let mut tail = Vec::new();
    for line in lines(child.stderr.take()) {
        each_line(&line);
        if tail.len() == TAIL_LINES {
            tail.remove(0);
        }
        tail.push(line);
    }
    let output = reader.join().unwrap_or_default();
    let ended = watchdog.has_bitten();
    let status = child.wait().map_err(Error::io(what))?;
    if ended {
        let (what, seconds) = (what.to_owned(), patience.as_secs());
        return Err(Error::Timeout { what, seconds, detail: ", and ended it".to_owned() });
    }
    if status.success() {
        return Ok(output);
    }
    if tail.is_empty() {
        tail.extend(output.lines().rev().take(TAIL_LINES).map(String::from));
        tail.reverse();
    }
    let said = if tail.is_empty() { String::new() } else { format!(":\n{}", tail.join("\n")) };
    let program = command.get_program().display();
    Err(Error::failed(what, format!("{program} ended with {status}{said}")))
}

fn lines(output: Option<impl Read>) -> impl Iterator<Item = String> {
    output.into_iter().flat_map(|output| BufReader::new(output).lines()).map_while(Result::ok)
}

/// Ends a process that takes too long.
struct Watchdog {
    called_off: mpsc::Sender<()>,
    thread: thread::JoinHandle<bool>,
}

impl Watchdog {
    fn of(child: &Child, patience: Duration) -> Self {
        let (called_off, waiting) = mpsc::channel();
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let thread = thread::spawn(move || {
            let late = waiting.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Timeout);
            if let Some(pid) = pid.filter(|_| late) {
                // It has not been waited for yet, so the number is still its own. A short one has
                // a group of its own; a long one is in ours, to be ended with us at the terminal.
                let _ = kill_process_group(pid, Signal::KILL);
                let _ = kill_process(pid, Signal::KILL);
            }
            late
        });
        Self { called_off, thread }
    }

    /// Calls it off, and tells whether that was too late.
    fn has_bitten(self) -> bool {
        drop(self.called_off);
        self.thread.join().unwrap_or_default()
    }
}

/// Does blocking work without keeping other tasks from going on.
pub(crate) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Error::failed("A task", error.to_string())))
}

/// The path of a program, searched as a shell does, and in the folders for
/// administration that an ordinary user's PATH may lack.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| {
            rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file()
        })
}
