//! Runs the function as a process: signals, variables and query parameters.

#![allow(clippy::unwrap_used)]

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    process::{Child, Command},
    sync::atomic::{AtomicU16, Ordering},
    thread,
    time::{Duration, Instant},
};

const TIMEOUT: Duration = Duration::from_mins(1);

/// A running function, killed at the end of the test.
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
        let started = Instant::now();
        // The process exits if its port is in use; then another port is tried.
        loop {
            let port = unused_port();
            let mut command = Command::new(env!("CARGO_BIN_EXE_hello-fn"));
            command.env("PORT", port.to_string()).envs(variables.iter().copied());
            let mut function = Self { process: command.spawn().unwrap(), port };
            while function.process.try_wait().unwrap().is_none() {
                if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
                    return function;
                }
                assert!(started.elapsed() < TIMEOUT, "hello-fn does not listen");
                thread::sleep(Duration::from_millis(10));
            }
            assert!(started.elapsed() < TIMEOUT, "hello-fn exits immediately");
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

/// A port below the ephemeral range that no other test uses. It is not probed with a listener: a
/// process that is being forked would inherit the listener for a moment.
fn unused_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let own = u16::try_from(std::process::id() % 1000).unwrap() * 10;
    20_000 + own + NEXT.fetch_add(1, Ordering::Relaxed) % 10
}

fn get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn completes_requests_after_sigterm() {
    // Long enough for all requests below on a busy machine.
    let mut function = Function::start(&[("DRAIN_MS", "5000")]);
    let port = function.port;
    let slow = thread::spawn(move || get(port, "/?sleep_ms=6000"));
    // Later requests don't wait for the slow one.
    assert!(function.get("/").contains("200 OK"));
    function.terminate();
    let started = Instant::now();
    while !function.get("/healthz").contains("503") {
        assert!(started.elapsed() < TIMEOUT, "it never reports that it drains");
    }
    // New requests are served while it drains.
    assert!(function.get("/").contains("200 OK"));
    assert!(slow.join().unwrap().contains("Hello, world!"));
    assert!(function.process.wait().unwrap().success());
}

#[test]
fn limits_concurrent_requests() {
    let function = Function::start(&[("CONCURRENCY", "1")]);
    let port = function.port;
    let started = Instant::now();
    let both = [(), ()].map(|()| thread::spawn(move || get(port, "/?sleep_ms=300")));
    for one in both {
        assert!(one.join().unwrap().contains("200 OK"));
    }
    assert!(started.elapsed() >= Duration::from_millis(600));
}

#[test]
fn errors_name_invalid_parameters_and_variables() {
    let function = Function::start(&[]);
    let response = function.get("/?sleep_ms=never");
    assert!(response.contains("400 Bad Request") && response.contains("sleep_ms"), "{response}");
    assert!(function.get("/?nonsense=1").contains("unknown field `nonsense`"));
    assert!(function.get("/?fail=418").contains("418"));
    let mut wrong = Command::new(env!("CARGO_BIN_EXE_hello-fn"));
    let output = wrong.env("CONCURRENCY", "0").output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("CONCURRENCY"));
}
