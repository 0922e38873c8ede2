//! Limits on connections and requests.

use std::time::Duration;

use axum::{Router, http::StatusCode, routing::get};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{client::Client, options, pki, pki::Authority, router, start, within_timeout};
use crate::{Access, Options};

const SHORT: Duration = Duration::from_millis(50);
/// Enough to connect and send a request on a busy machine.
const AMPLE: Duration = Duration::from_secs(1);

#[tokio::test]
async fn queues_connections_beyond_the_limit() {
    for h2 in [false, true] {
        let server =
            start(Options { max_connections: 1, ..options() }, router(Access::open())).await;
        let mut first = Client::plain(server.address, h2).await;
        first.get("/peer").await.unwrap();
        let address = server.address;
        let second =
            tokio::spawn(async move { Client::plain(address, h2).await.get("/peer").await });
        for _ in 0..50 {
            assert_eq!(first.get("/peer").await.unwrap().status(), StatusCode::OK);
        }
        assert!(!second.is_finished());
        drop(first);
        assert_eq!(within_timeout(second).await.unwrap().unwrap().status(), StatusCode::OK);
    }
}

/// Sends bytes and then nothing, until the server closes the connection.
async fn stall(options: Options, bytes: &[u8]) {
    let server = start(options, router(Access::open())).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut response = Vec::new();
    // The end may also be a reset.
    let _ = within_timeout(stream.read_to_end(&mut response)).await;
}

#[tokio::test]
async fn closes_connections_without_a_request() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let idle_h1 = b"GET /peer HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let stalled: [&[u8]; _] = [b"", b"PRI * HTTP", preface, b"GET / HTTP/1.1\r\nhost:", idle_h1];
    for bytes in stalled {
        stall(Options { header_timeout: SHORT, ..options() }, bytes).await;
    }
}

#[tokio::test]
async fn sends_goaway_to_idle_http2_connections() {
    let server =
        start(Options { header_timeout: AMPLE, ..options() }, router(Access::open())).await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (_client, connection) = Client::speak(stream, true).await.unwrap();
    within_timeout(connection).await.unwrap().unwrap();
}

#[tokio::test]
async fn header_timeout_does_not_limit_handlers() {
    let slow = async || tokio::time::sleep(AMPLE * 3 / 2).await;
    let router = Router::new().route("/", get(slow));
    let server = start(Options { header_timeout: AMPLE, ..options() }, router).await;
    for h2 in [false, true] {
        let stream = TcpStream::connect(server.address).await.unwrap();
        let (mut client, connection) = Client::speak(stream, h2).await.unwrap();
        assert_eq!(client.get("/").await.unwrap().status(), StatusCode::OK);
        if h2 {
            assert_eq!(client.get("/").await.unwrap().status(), StatusCode::OK);
            assert!(!connection.is_finished());
        }
    }
}

#[tokio::test]
async fn closes_stalled_handshakes() {
    let folder = tempfile::tempdir().unwrap();
    let tls = Some(pki::files(folder.path(), &Authority::new().server(), None));
    stall(Options { tls, handshake_timeout: SHORT, ..options() }, b"").await;
}
