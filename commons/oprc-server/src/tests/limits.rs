//! What peers can't use up.

use std::time::Duration;

use axum::{Router, http::StatusCode, routing::get};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{client::Client, options, pki, pki::Authority, router, soon, start};
use crate::{Access, Options};

const SHORT: Duration = Duration::from_millis(50);
/// Long enough for a connection to be made, and a request to be sent, on a busy machine.
const ENOUGH: Duration = Duration::from_secs(1);

#[tokio::test]
async fn connections_beyond_the_limit_wait() {
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
        assert_eq!(soon(second).await.unwrap().unwrap().status(), StatusCode::OK);
    }
}

/// Sends bytes and nothing more, until the server has enough of it.
async fn stall(options: Options, bytes: &[u8]) {
    let server = start(options, router(Access::open())).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    // The end may also be a reset.
    let _ = soon(stream.read_to_end(&mut answer)).await;
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let idle_h1 = b"GET /peer HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let stalled: [&[u8]; _] = [b"", b"PRI * HTTP", preface, b"GET / HTTP/1.1\r\nhost:", idle_h1];
    for bytes in stalled {
        stall(Options { header_timeout: SHORT, ..options() }, bytes).await;
    }
}

#[tokio::test]
async fn a_client_that_opens_a_connection_and_asks_later_is_told_to_open_another() {
    let server =
        start(Options { header_timeout: ENOUGH, ..options() }, router(Access::open())).await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (_client, connection) = Client::speak(stream, true).await.unwrap();
    soon(connection).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_request_may_take_longer_than_its_headers() {
    let slow = async || tokio::time::sleep(ENOUGH * 3 / 2).await;
    let router = Router::new().route("/", get(slow));
    let server = start(Options { header_timeout: ENOUGH, ..options() }, router).await;
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
async fn a_handshake_that_stalls_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let tls = Some(pki::files(folder.path(), &Authority::new().server(), None));
    stall(Options { tls, handshake_timeout: SHORT, ..options() }, b"").await;
}
