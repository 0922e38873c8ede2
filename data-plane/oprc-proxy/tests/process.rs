//! Runs the program: variables, signals and `wait`.

#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::{
    convert::Infallible,
    net::Ipv4Addr,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU16, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    HeaderMap, Request, Response, body::Incoming, server::conn::http2, service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    net::{TcpListener, TcpStream},
    process::{Child, ChildStdout, Command},
};

const DEADLINE: Duration = Duration::from_mins(1);

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("the test takes too long")
}

/// A port below the ephemeral range that no other test uses.
fn unused_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let own = u16::try_from(std::process::id() % 1000).unwrap() * 10;
    20_000 + own + NEXT.fetch_add(1, Ordering::Relaxed) % 10
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oprc-proxy"));
    command.kill_on_drop(true).stdin(Stdio::null());
    command
}

struct Program {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Program {
    fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, output }
    }

    /// `None` after the last line.
    async fn line(&mut self) -> Option<String> {
        within(self.output.next_line()).await.unwrap()
    }

    fn terminate(&self) {
        let pid = self.child.id().unwrap().to_string();
        let kill = std::process::Command::new("kill").args(["-TERM", &pid]).status();
        assert!(kill.unwrap().success());
    }
}

/// The process exits if one of its ports is in use; then other ports are tried. Also returns its first
/// line and its port.
async fn start_proxy(app_port: u16, variables: &[(&str, &str)]) -> (Program, String, u16) {
    within(async {
        loop {
            let port = unused_port();
            let mut command = program();
            command
                .env("OPRC_PROXY_PORT", port.to_string())
                .env("OPRC_PROXY_ADMIN_PORT", unused_port().to_string())
                .env("OPRC_PROXY_APP_PORT", app_port.to_string())
                .envs(variables.iter().copied());
            let mut proxy = Program::spawn(&mut command);
            if let Some(line) = proxy.line().await {
                return (proxy, line, port);
            }
        }
    })
    .await
}

#[tokio::test]
async fn finishes_calls_in_flight_after_sigterm() {
    let function = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (mut proxy, line, port) = start_proxy(function.local_addr().unwrap().port(), &[]).await;
    assert!(line.contains(&format!("listening on 127.0.0.1:{port}")), "{line}");
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: hello.example\r\n\r\n").await.unwrap();
    let (mut call, _) = within(function.accept()).await.unwrap();
    within(call.read_u8()).await.unwrap();
    proxy.terminate();
    assert!(proxy.line().await.unwrap().contains("terminating"));
    call.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
    let mut response = String::new();
    within(client.read_to_string(&mut response)).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK") && response.ends_with("\r\n\r\nok"));
    assert!(within(proxy.child.wait()).await.unwrap().success());
}

#[tokio::test]
async fn listens_on_all_addresses_in_a_container() {
    let (_proxy, line, port) = start_proxy(1, &[("container", "oci")]).await;
    let addresses = [format!("[::]:{port}"), format!("0.0.0.0:{port}")];
    assert!(addresses.iter().any(|address| line.contains(address)), "{line}");
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
}

#[tokio::test]
async fn invalid_variables_and_arguments_are_errors() {
    let error = async |command: &mut Command| {
        let output = within(command.output()).await.unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let missing = error(&mut program()).await;
    assert!(missing.contains("OPRC_PROXY_APP_PORT: required"), "{missing}");
    let mut command = program();
    command.env("OPRC_PROXY_APP_PORT", "8080").env("OPRC_PROXY_MAX_CONCURRENCY", "many");
    let invalid = error(&mut command).await;
    assert!(invalid.contains("OPRC_PROXY_MAX_CONCURRENCY=many: must be a number"), "{invalid}");
    assert!(error(program().arg("serve")).await.contains("usage: oprc-proxy"));
    assert!(error(program().args(["wait", "grid"])).await.contains("must be HOST:PORT"));
}

const NOT_SERVING: u8 = 2;
const SERVING: u8 = 1;
const UNIMPLEMENTED: u8 = 100;

/// A health service whose status can change; returns its address.
async fn start_health_server(status: Arc<AtomicU8>) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let status = Arc::clone(&status);
            let service = service_fn(move |request: Request<Incoming>| {
                let status = Arc::clone(&status);
                async move { Ok::<_, Infallible>(check_health(request, &status).await) }
            });
            let builder = http2::Builder::new(TokioExecutor::new());
            tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

/// After the first response the server is serving.
async fn check_health(
    request: Request<Incoming>,
    status: &AtomicU8,
) -> Response<http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>> {
    assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
    assert_eq!(request.headers()["content-type"], "application/grpc");
    assert_eq!(request.into_body().collect().await.unwrap().to_bytes(), [0; 5].as_slice());
    let status = status.swap(SERVING, Ordering::Relaxed);
    if status == UNIMPLEMENTED {
        let response = Response::builder().header("grpc-status", "12");
        return response.body(Full::default().boxed_unsync()).unwrap();
    }
    let trailers = async {
        let status = ("grpc-status".parse().unwrap(), "0".parse().unwrap());
        Some(Ok(HeaderMap::from_iter([status])))
    };
    let message = Bytes::copy_from_slice(&[0, 0, 0, 0, 2, 8, status]);
    let body = Full::new(message).with_trailers(trailers).boxed_unsync();
    Response::builder().header("content-type", "application/grpc").body(body).unwrap()
}

#[tokio::test]
async fn waits_until_the_server_is_serving() {
    let status = Arc::new(AtomicU8::new(NOT_SERVING));
    let address = start_health_server(Arc::clone(&status)).await;
    let mut waiting = Program::spawn(program().args(["wait", &address]));
    assert_eq!(waiting.line().await.unwrap(), format!("oprc-proxy: waiting for {address}"));
    assert!(waiting.line().await.unwrap().contains("is ready after"));
    assert!(within(waiting.child.wait()).await.unwrap().success());
    assert_eq!(status.load(Ordering::Relaxed), SERVING);
}

#[tokio::test]
async fn server_without_a_health_service_is_ready() {
    let address = start_health_server(Arc::new(AtomicU8::new(UNIMPLEMENTED))).await;
    let output = within(program().args(["wait", &address]).output()).await.unwrap();
    assert!(output.status.success());
}

#[tokio::test]
async fn wait_fails_after_its_timeout() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let output =
        within(program().args(["wait", &address, "--timeout", "1"]).output()).await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("is not ready after 1 s: cannot connect"), "{error}");
}
