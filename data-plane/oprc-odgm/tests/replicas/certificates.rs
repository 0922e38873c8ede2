//! A new certificate of the same authority is used without a restart.

use std::{fs, io, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::{failover::Clients, harness::TestGrid};

const PEER_PORT: u16 = 8082;
const ETCD_PEER_PORT: u16 = 2380;

struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    roots: Arc<RootCertStore>,
}

/// The files that the nodes have now.
fn identity(grid: &TestGrid) -> Identity {
    let file = |name: &str| fs::read(grid.tls_dir().join(name)).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&file("ca.crt")).unwrap()).unwrap();
    Identity {
        certificate: CertificateDer::from_pem_slice(&file("tls.crt")).unwrap(),
        key: PrivateKeyDer::from_pem_slice(&file("tls.key")).unwrap(),
        roots: Arc::new(roots),
    }
}

/// The certificate that a port of a node presents on a new connection.
async fn served(
    grid: &TestGrid,
    index: usize,
    port: u16,
) -> io::Result<Option<CertificateDer<'static>>> {
    let Identity { certificate, key, roots } = identity(grid);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate], key)
        .unwrap();
    let stream = TcpStream::connect((grid.host(index), port)).await?;
    let name = ServerName::try_from(grid.host(index)).unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    Ok(stream.get_ref().1.peer_certificates().and_then(|it| it.first().cloned()))
}

/// The certificate that a node presents when it connects to a port of a node that is down.
async fn presented(
    grid: &TestGrid,
    index: usize,
    port: u16,
) -> io::Result<Option<CertificateDer<'static>>> {
    let Identity { certificate, key, roots } = identity(grid);
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let (stream, _) = TcpListener::bind((grid.host(index), port)).await?.accept().await?;
    let stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await?;
    Ok(stream.get_ref().1.peer_certificates().and_then(|it| it.first().cloned()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_certificate_is_used_without_a_restart() {
    let grid = TestGrid::start().await;
    let ids: Vec<_> = (0..12).map(|it| format!("object-{it}")).collect();
    grid.create(&ids).await;
    let clients = Clients::start(&grid, &[0, 1, 2], &ids, false);
    let former = identity(&grid).certificate;
    for (index, port) in (0..3).flat_map(|it| [(it, PEER_PORT), (it, ETCD_PEER_PORT)]) {
        assert_eq!(served(&grid, index, port).await.unwrap().as_ref(), Some(&former));
    }
    grid.rotate_certificate();
    let new = identity(&grid).certificate;
    assert_ne!(new, former);
    for (index, port) in (0..3).flat_map(|it| [(it, PEER_PORT), (it, ETCD_PEER_PORT)]) {
        grid.until("a port presents the new certificate", async || {
            served(&grid, index, port).await.is_ok_and(|it| it.as_ref() == Some(&new))
        })
        .await;
    }
    let added = clients.stop().await;
    assert!(added.len() > 20, "{}", added.len());
    for id in &ids {
        let expected = added.iter().filter(|it| *it == id).count();
        assert_eq!(grid.count(1, id).await, i64::try_from(expected).unwrap(), "{id}");
    }
    // The remaining nodes and their etcds connect to the address of the killed one, where the test listens.
    grid.kill(2);
    for port in [PEER_PORT, ETCD_PEER_PORT] {
        grid.until("a node presents the new certificate", async || {
            presented(&grid, 2, port).await.is_ok_and(|it| it.as_ref() == Some(&new))
        })
        .await;
    }
}
