//! An etcd with a bug: it writes objects without the checks of their versions and of their owner.
//!
//! It is a proxy in front of a real etcd, and this program is run as it by a node.

use std::{
    env, fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::{StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use oprc_tests::etcd;
use tokio::net::TcpListener;

/// The arguments of etcd.
const ARGUMENTS: &str = "OPRC_TEST_ETCD_ARGUMENTS";
const PROGRAM: &str = "OPRC_TEST_ETCD_PROGRAM";
const TRANSACTION: &str = "/etcdserverpb.KV/Txn";
/// In the keys of objects.
const OBJECTS: &[u8] = b"/o/";
const MAX_REQUEST: usize = 4 << 20;
/// Precedes each message of gRPC: a flag and the length.
const FRAME: usize = 5;
/// The number of `compare` in a `TxnRequest`.
const COMPARE: u64 = 1;

/// Creates a program that a node can start as etcd.
pub(crate) fn install(folder: &Path) -> PathBuf {
    let path = folder.join("etcd");
    let (this, etcd) = (env::current_exe().unwrap(), etcd::program());
    let script = format!(
        "#!/bin/sh\nexec env {ARGUMENTS}=\"$*\" {PROGRAM}={} {} planted_etcd::child --exact --nocapture\n",
        etcd.display(),
        this.display(),
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// The process that a node starts as etcd.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let (Ok(arguments), Ok(program)) = (env::var(ARGUMENTS), env::var(PROGRAM)) else { return };
    let option = |name: &str| {
        let mut values =
            arguments.split(' ').filter_map(|it| it.strip_prefix(name)?.strip_prefix('='));
        values.next_back().unwrap().to_owned()
    };
    let own = option("--listen-client-urls");
    let own: SocketAddr = own.strip_prefix("http://").unwrap().parse().unwrap();
    let hidden = format!("http://{}", SocketAddr::new(own.ip(), own.port() - 1));
    // The kernel kills it with this process.
    let mut etcd = Command::new("/usr/bin/setpriv")
        .args(["--pdeathsig", "KILL", &program])
        .args(arguments.split(' ').filter(|it| !it.contains("-client-urls=")))
        .args([
            format!("--listen-client-urls={hidden}"),
            format!("--advertise-client-urls={hidden}"),
        ])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let router = Router::new().fallback(forward).with_state(Proxy { hidden, client });
    let listener = TcpListener::bind(own).await.unwrap();
    tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
    tokio::task::spawn_blocking(move || etcd.wait().unwrap()).await.unwrap();
}

#[derive(Clone)]
struct Proxy {
    hidden: String,
    client: Client<HttpConnector, Body>,
}

async fn forward(State(proxy): State<Proxy>, mut request: Request) -> Response {
    let path = request.uri().path().to_owned();
    *request.uri_mut() = format!("{}{path}", proxy.hidden).parse::<Uri>().unwrap();
    if path == TRANSACTION {
        let (parts, body) = request.into_parts();
        let Ok(body) = to_bytes(body, MAX_REQUEST).await else {
            return StatusCode::BAD_REQUEST.into_response();
        };
        request = Request::from_parts(parts, Body::from(without_checks(&body)));
    }
    match proxy.client.request(request).await {
        Ok(response) => response.map(Body::new),
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}

/// A transaction that changes an object, without its checks.
fn without_checks(framed: &Bytes) -> Vec<u8> {
    let (checks, rest): (Vec<_>, Vec<_>) =
        fields(&framed[FRAME..]).into_iter().partition(|(number, _)| *number == COMPARE);
    let is_object =
        rest.iter().any(|(_, field)| field.windows(OBJECTS.len()).any(|it| it == OBJECTS));
    if checks.is_empty() || !is_object {
        return framed.to_vec();
    }
    let message = rest.iter().flat_map(|(_, field)| *field).copied().collect::<Vec<_>>();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &length, &message].concat()
}

/// The fields of a message of which all have a length, with their numbers.
fn fields(message: &[u8]) -> Vec<(u64, &[u8])> {
    let (mut rest, mut fields) = (message, Vec::new());
    while !rest.is_empty() {
        let (tag, tag_bytes) = varint(rest);
        let (length, length_bytes) = varint(&rest[tag_bytes..]);
        let (field, after) =
            rest.split_at(tag_bytes + length_bytes + usize::try_from(length).unwrap());
        fields.push((tag >> 3, field));
        rest = after;
    }
    fields
}

/// A number, and how many bytes it has.
fn varint(bytes: &[u8]) -> (u64, usize) {
    let last = bytes.iter().position(|it| it & 0x80 == 0).unwrap();
    let number =
        bytes[..=last].iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f));
    (number, last + 1)
}
