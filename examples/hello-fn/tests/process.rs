//! The function as a process: what it does with signals and variables.

#![allow(clippy::unwrap_used)]

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    process::{Child, Command},
    sync::atomic::{AtomicU16, Ordering},
    thread,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_mins(1);

/// A running function, ended with the test.
struct Function {
    process: Child,
    port: u16,
}

impl Drop for Function {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Function {
    fn start(variables: &[(&str, &str)]) -> Self {
        let begun = Instant::now();
        // One whose port is taken ends, and another is tried.
        loop {
            let port = unused_port();
            let mut command = Command::new(env!("CARGO_BIN_EXE_hello-fn"));
            command.env("PORT", port.to_string()).envs(variables.iter().copied());
            let mut function = Self { process: command.spawn().unwrap(), port };
            while function.process.try_wait().unwrap().is_none() {
                if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
                    return function;
                }
                assert!(begun.elapsed() < PATIENCE, "it doesn't listen");
                // Another process's socket can't be watched for.
                thread::sleep(Duration::from_millis(10));
            }
            assert!(begun.elapsed() < PATIENCE, "it ends at once");
        }
    }

    fn get(&self, path: &str) -> String {
        get(self.port, path)
    }

    fn terminate(&self) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }
}

/// A port that nothing else is given: neither another test nor, below those that the system gives
/// away, anybody who asks for any. It isn't tried here: a process that is just being started has all
/// that is open here until it begins, and so would listen there for a moment.
fn unused_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let own = u16::try_from(std::process::id() % 1000).unwrap() * 10;
    20_000 + own + NEXT.fetch_add(1, Ordering::Relaxed) % 10
}

fn get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn what_was_begun_is_finished_after_sigterm() {
    // Long enough for all that is asked below, on a busy machine too.
    let mut function = Function::start(&[("DRAIN_MS", "5000")]);
    let port = function.port;
    let slow = thread::spawn(move || get(port, "/?sleep_ms=6000"));
    // One that came later has been answered meanwhile.
    assert!(function.get("/").contains("200 OK"));
    function.terminate();
    let begun = Instant::now();
    while !function.get("/healthz").contains("503") {
        assert!(begun.elapsed() < PATIENCE, "it never says that it leaves");
    }
    // Who hasn't heard of that yet is still served.
    assert!(function.get("/").contains("200 OK"));
    assert!(slow.join().unwrap().contains("Hello, world!"));
    assert!(function.process.wait().unwrap().success());
}

#[test]
fn requests_wait_for_their_turn() {
    let function = Function::start(&[("CONCURRENCY", "1")]);
    let port = function.port;
    let begun = Instant::now();
    let both = [(), ()].map(|()| thread::spawn(move || get(port, "/?sleep_ms=300")));
    for one in both {
        assert!(one.join().unwrap().contains("200 OK"));
    }
    assert!(begun.elapsed() >= Duration::from_millis(600));
}

#[test]
fn wrong_wishes_and_variables_are_named() {
    let function = Function::start(&[]);
    let answer = function.get("/?sleep_ms=never");
    assert!(answer.contains("400 Bad Request") && answer.contains("sleep_ms"), "{answer}");
    assert!(function.get("/?nonsense=1").contains("unknown field `nonsense`"));
    assert!(function.get("/?fail=418").contains("418"));
    let mut wrong = Command::new(env!("CARGO_BIN_EXE_hello-fn"));
    let output = wrong.env("CONCURRENCY", "0").output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("CONCURRENCY"));
}
