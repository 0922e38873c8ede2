//! A client that opens a connection of its own for each test.

use std::{error::Error, net::SocketAddr, sync::Arc};

use axum::http::{Request, Response, request::Builder};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::pki::{Authority, Issued};

pub(super) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// An open connection.
pub(super) enum Client {
    H1(http1::SendRequest<Empty<Bytes>>),
    H2(http2::SendRequest<Empty<Bytes>>),
}

impl Client {
    /// Speaks HTTP on a stream; the task ends with the connection.
    pub(super) async fn speak(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        h2: bool,
    ) -> Outcome<(Self, JoinHandle<hyper::Result<()>>)> {
        let stream = TokioIo::new(stream);
        if h2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
            return Ok((Self::H2(sender), tokio::spawn(connection)));
        }
        let (sender, connection) = http1::handshake(stream).await?;
        Ok((Self::H1(sender), tokio::spawn(connection)))
    }

    pub(super) async fn plain(address: SocketAddr, h2: bool) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        Self::speak(stream, h2).await.unwrap().0
    }

    pub(super) async fn send(&mut self, request: Builder) -> Outcome<Response<String>> {
        let request = request.body(Empty::new())?;
        let response = match self {
            Self::H1(sender) => sender.send_request(request).await?,
            Self::H2(sender) => sender.send_request(request).await?,
        };
        let (head, body) = response.into_parts();
        let body = String::from_utf8(body.collect().await?.to_bytes().to_vec())?;
        Ok(Response::from_parts(head, body))
    }

    pub(super) async fn get(&mut self, path: &str) -> Outcome<Response<String>> {
        self.send(get(path)).await
    }
}

pub(super) fn get(path: &str) -> Builder {
    Request::get(format!("http://localhost{path}"))
}

/// Shakes hands with a server that must have a certificate of an authority for a name.
pub(super) async fn handshake(
    address: SocketAddr,
    name: &'static str,
    authority: &Authority,
    certificate: Option<&Issued>,
    h2: bool,
) -> Outcome<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der())?;
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let mut config = match certificate {
        Some(issued) => builder.with_client_auth_cert(vec![issued.der()], issued.key_der())?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![if h2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from(name)?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    assert_eq!(stream.get_ref().1.alpn_protocol() == Some(b"h2"), h2);
    Ok(stream)
}

/// Asks a server with TLS on a connection of its own.
pub(super) async fn get_with_tls(
    address: SocketAddr,
    authority: &Authority,
    certificate: Option<&Issued>,
    h2: bool,
    path: &str,
) -> Outcome<Response<String>> {
    let stream = handshake(address, "localhost", authority, certificate, h2).await?;
    Client::speak(stream, h2).await?.0.get(path).await
}
