//! Only nodes with a certificate of the grid are peers.

use std::{fs, sync::Arc};

use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use crate::harness::TestGrid;

/// The answer of the peer port to a ping, with a client certificate if there is one.
async fn ping(grid: &TestGrid, identity: Option<(Vec<u8>, Vec<u8>)>) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    let authority = fs::read(grid.tls_dir().join("ca.crt")).unwrap();
    roots.add(CertificateDer::from_pem_slice(&authority).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let certificate = CertificateDer::from_pem_slice(&certificate).unwrap();
            let key = PrivateKeyDer::from_pem_slice(&key).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    let stream = TcpStream::connect((grid.host(0), 8082)).await?;
    let name = ServerName::try_from(grid.host(0)).unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let request = "POST /ping HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\nconnection: close\r\n\
                   content-type: application/json\r\n\r\nnull";
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_without_a_certificate_of_the_grid_are_refused() {
    let grid = TestGrid::start().await;
    let file = |name: &str| fs::read(grid.tls_dir().join(name)).unwrap();
    let own = ping(&grid, Some((file("tls.crt"), file("tls.key")))).await.unwrap();
    assert!(own.starts_with("HTTP/1.1 200"), "{own}");
    let none = ping(&grid, None).await.unwrap();
    assert!(none.starts_with("HTTP/1.1 401"), "{none}");
    let key = KeyPair::generate().unwrap();
    let other = CertificateParams::new(vec![grid.host(1)]).unwrap().self_signed(&key).unwrap();
    let other = (other.pem().into_bytes(), key.serialize_pem().into_bytes());
    let refused = ping(&grid, Some(other)).await;
    assert!(refused.is_err(), "{refused:?}");
}
