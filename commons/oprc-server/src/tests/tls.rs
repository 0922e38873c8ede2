//! TLS, and files that are wrong.

use std::fs;

use super::{
    client::{get_with_tls, handshake},
    options, pki,
    pki::Authority,
    router, start,
};
use crate::{Access, Options, TlsFiles, bind};

#[tokio::test]
async fn clients_verify_the_server_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let tls = Some(pki::files(folder.path(), &authority.server(), None));
    let server = start(Options { tls, ..options() }, router(Access::open())).await;
    for h2 in [false, true] {
        assert!(get_with_tls(server.address, &authority, None, h2, "/peer").await.is_ok());
        let untrusted = Authority::new();
        assert!(handshake(server.address, "localhost", &untrusted, None, h2).await.is_err());
        assert!(handshake(server.address, "elsewhere", &authority, None, h2).await.is_err());
    }
}

#[tokio::test]
async fn ignores_client_certificates_without_client_ca() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let tls = Some(pki::files(folder.path(), &authority.server(), None));
    let server = start(Options { tls, ..options() }, router(Access::open())).await;
    let client = authority.client("gateway");
    let response =
        get_with_tls(server.address, &authority, Some(&client), true, "/peer").await.unwrap();
    assert_eq!(response.body(), "");
}

async fn error(tls: &TlsFiles) -> String {
    let tls = Some(tls.clone());
    bind(Options { tls, ..options() }).await.err().unwrap().to_string()
}

#[tokio::test]
async fn errors_name_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let (server, other) = (authority.server(), authority.server());
    let tls = pki::files(folder.path(), &server, Some(&authority));
    let certificate = tls.certificate.display().to_string();
    let key = tls.key.display().to_string();
    let client_ca = tls.client_ca.clone().unwrap();

    fs::write(&tls.key, "no key").unwrap();
    assert!(error(&tls).await.starts_with(&format!("{key}: not a PEM private key")));
    other.store(&tls);
    pki::replace(&tls.certificate, &authority.pem());
    assert_eq!(
        error(&tls).await,
        format!("{key}: not the key of the certificate in {certificate}")
    );
    fs::write(&tls.certificate, "").unwrap();
    assert_eq!(error(&tls).await, format!("{certificate}: contains no PEM certificate"));
    server.store(&tls);
    fs::write(&client_ca, "").unwrap();
    let expected = format!("{}: contains no PEM certificate", client_ca.display());
    assert_eq!(error(&tls).await, expected);
    fs::remove_file(&tls.key).unwrap();
    assert!(error(&tls).await.starts_with(&format!("cannot read {key}: ")));
}
