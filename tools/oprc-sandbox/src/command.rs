//! Runs other programs to their end.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
    thread,
};

use crate::{Error, Result};

/// How much of a failed program's output an error repeats.
const TAIL_LINES: usize = 12;

/// Runs `command` and gives what it wrote to standard output.
pub(crate) fn run(what: &str, command: &mut Command) -> Result<String> {
    run_with(what, command, |_| ())
}

/// Runs `command`, calls `each_line` with every line it writes to standard error,
/// and gives what it wrote to standard output.
pub(crate) fn run_with(
    what: &str,
    command: &mut Command,
    mut each_line: impl FnMut(&str),
) -> Result<String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Error::io(format!(
            "{what}: {}",
            command.get_program().display()
        )))?;
    let stdout = child.stdout.take();
    let reader = thread::spawn(move || {
        let mut text = String::new();
        for line in stdout
            .into_iter()
            .flat_map(|out| BufReader::new(out).lines())
            .map_while(Result::ok)
        {
            text.push_str(&line);
            text.push('\n');
        }
        text
    });
    let mut tail = Vec::new();
    for line in child
        .stderr
        .take()
        .into_iter()
        .flat_map(|err| BufReader::new(err).lines())
        .map_while(Result::ok)
    {
        each_line(&line);
        if tail.len() == TAIL_LINES {
            tail.remove(0);
        }
        tail.push(line);
    }
    let output = reader.join().unwrap_or_default();
    let status = child.wait().map_err(Error::io(what))?;
    if status.success() {
        return Ok(output);
    }
    if tail.is_empty() {
        tail.extend(output.lines().rev().take(TAIL_LINES).map(String::from));
        tail.reverse();
    }
    let said = if tail.is_empty() {
        String::new()
    } else {
        format!(":\n{}", tail.join("\n"))
    };
    Err(Error::failed(
        what,
        format!(
            "{} ended with {status}{said}",
            command.get_program().display()
        ),
    ))
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
