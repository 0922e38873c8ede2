//! Runs other programs to completion.

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

/// How many lines of a failed program's output an error contains.
const TAIL_LINES: usize = 12;

/// Variables that would redirect traffic to local clusters to a proxy.
pub(crate) const PROXY_VARIABLES: [&str; 6] =
    ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "http_proxy", "https_proxy"];

const TIMEOUT: Duration = Duration::from_mins(2);
/// For programs that download or build.
const LONG_TIMEOUT: Duration = Duration::from_hours(2);

/// Runs `command` and returns its standard output.
pub(crate) fn run(what: &str, command: &mut Command) -> Result<String> {
    run_to_completion(what, command.stdin(Stdio::null()).process_group(0), TIMEOUT, |_| ())
}

/// Runs `command` with a file as its standard input.
pub(crate) fn run_reading(what: &str, command: &mut Command, input: File) -> Result<String> {
    run_to_completion(what, command.stdin(input).process_group(0), TIMEOUT, |_| ())
}

/// Runs a `command` that may take long and calls `each_line` with every line of its standard error.
pub(crate) fn run_long(
    what: &str,
    command: &mut Command,
    each_line: impl FnMut(&str),
) -> Result<String> {
    run_to_completion(what, command.stdin(Stdio::null()), LONG_TIMEOUT, each_line)
}

fn run_to_completion(
    what: &str,
    command: &mut Command,
    limit: Duration,
    mut each_line: impl FnMut(&str),
) -> Result<String> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Error::io(format!("{what}: {}", command.get_program().display())))?;
    let (finished, watchdog) = watchdog(&child, limit);
    let stdout = child.stdout.take();
    let reader = thread::spawn(move || lines(stdout).map(|line| line + "\n").collect::<String>());
    let mut tail = Vec::new();
    for line in lines(child.stderr.take()) {
        each_line(&line);
        if tail.len() == TAIL_LINES {
            tail.remove(0);
        }
        tail.push(line);
    }
    let output = reader.join().unwrap_or_default();
    drop(finished);
    let killed = watchdog.join().unwrap_or_default();
    let status = child.wait().map_err(Error::io(what))?;
    if killed {
        let (what, seconds) = (what.to_owned(), limit.as_secs());
        return Err(Error::Timeout { what, seconds, detail: ", killed it".to_owned() });
    }
    if status.success() {
        return Ok(output);
    }
    let tail = if tail.is_empty() { last_lines(&output, TAIL_LINES) } else { tail.join("\n") };
    let separator = if tail.is_empty() { "" } else { ":\n" };
    let program = command.get_program().display();
    Err(Error::failed(what, format!("{program} exited with {status}{separator}{tail}")))
}

/// The last `count` lines of a text.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines.get(lines.len().saturating_sub(count)..).unwrap_or_default().join("\n")
}

fn lines(output: Option<impl Read>) -> impl Iterator<Item = String> {
    output.into_iter().flat_map(|output| BufReader::new(output).lines()).map_while(Result::ok)
}

/// Kills a process that exceeds its time limit, unless the sender is dropped before. The thread
/// returns whether it killed the process.
fn watchdog(child: &Child, limit: Duration) -> (mpsc::Sender<()>, thread::JoinHandle<bool>) {
    let (finished, unfinished) = mpsc::channel();
    let pid = Pid::from_child(child);
    let thread = thread::spawn(move || {
        let late = unfinished.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout);
        if late {
            // The child is not reaped yet, so the pid is still its own. Programs with a short limit
            // have their own process group; long ones share it to get Ctrl-C.
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = kill_process(pid, Signal::KILL);
        }
        late
    });
    (finished, thread)
}

/// Retries up to `attempts` times in all; returns the last error.
pub(crate) fn retry<T, E>(
    attempts: u32,
    delay: Duration,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    for _ in 1..attempts {
        if let Ok(value) = attempt() {
            return Ok(value);
        }
        thread::sleep(delay);
    }
    attempt()
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Error::failed("A task", error)))
}

/// Searches a program on the PATH and in the sbin folders, which an ordinary user's PATH may lack.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| {
            rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file()
        })
}
