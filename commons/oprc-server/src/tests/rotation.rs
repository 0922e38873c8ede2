//! Certificate rotation.

use std::{fs, sync::Arc};

use axum::http::StatusCode;
use tokio::task::{JoinSet, spawn_blocking};

use super::{
    client::{Client, get_with_tls, handshake},
    options, pki,
    pki::{Authority, Issued},
    router, start, within_timeout,
};
use crate::{Access, Options, TlsFiles};

async fn served(address: std::net::SocketAddr, authority: &Authority, expected: &Issued) -> bool {
    let stream = handshake(address, "localhost", authority, None, true).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0] == expected.der()
}

#[tokio::test]
async fn no_request_fails_during_certificate_rotation() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Arc::new(Authority::new());
    let tls = pki::files(folder.path(), &authority.server(), None);
    let with_tls = Options { tls: Some(tls.clone()), ..options() };
    let server = start(with_tls, router(Access::open())).await;
    let stream = handshake(server.address, "localhost", &authority, None, true).await.unwrap();
    let (mut old, _) = Client::speak(stream, true).await.unwrap();

    for round in 0..20 {
        let mut requests = JoinSet::new();
        for _ in 0..10 {
            let (address, authority) = (server.address, authority.clone());
            requests.spawn(async move {
                get_with_tls(address, &authority, None, round % 2 == 0, "/peer").await
            });
        }
        let (issued, files): (Issued, TlsFiles) = (authority.server(), tls.clone());
        let replaced = spawn_blocking(move || issued.store(&files));
        for response in within_timeout(requests.join_all()).await {
            assert_eq!(response.unwrap().status(), StatusCode::OK);
        }
        replaced.await.unwrap();
    }

    let newest = authority.server();
    newest.store(&tls);
    assert!(served(server.address, &authority, &newest).await);
    assert_eq!(old.get("/peer").await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn keeps_the_certificate_if_new_files_are_invalid() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let (first, second) = (authority.server(), authority.server());
    let tls = pki::files(folder.path(), &first, None);
    let with_tls = Options { tls: Some(tls.clone()), ..options() };
    let server = start(with_tls, router(Access::open())).await;
    fs::remove_file(&tls.certificate).unwrap();
    assert!(served(server.address, &authority, &first).await);
    fs::write(&tls.key, "no key").unwrap();
    assert!(served(server.address, &authority, &first).await);
    second.store(&tls);
    assert!(served(server.address, &authority, &second).await);
}

#[tokio::test]
async fn reloads_client_authorities() {
    let folder = tempfile::tempdir().unwrap();
    let (servers, old, new) = (Authority::new(), Authority::new(), Authority::new());
    let tls = pki::files(folder.path(), &servers.server(), Some(&old));
    let client_ca = tls.client_ca.clone().unwrap();
    let server = start(Options { tls: Some(tls), ..options() }, router(Access::open())).await;
    let (before, after) = (old.client("before"), new.client("after"));
    let response = get_with_tls(server.address, &servers, Some(&before), true, "/peer").await;
    assert_eq!(response.unwrap().body(), "before");
    pki::replace(&client_ca, &new.pem());
    assert!(get_with_tls(server.address, &servers, Some(&before), true, "/peer").await.is_err());
    let response = get_with_tls(server.address, &servers, Some(&after), true, "/peer").await;
    assert_eq!(response.unwrap().body(), "after");
}
