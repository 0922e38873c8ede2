//! One connection, from the handshake to its end.

use std::{
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::Router;
use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use crate::{ClientCertificate, Options, Peer, reread::Reread};

/// A peer of HTTP/2 that says nothing for so long is asked whether it is still there, and given as
/// long to answer: one that vanished must not keep its place.
const PING: Duration = Duration::from_secs(20);

/// What all connections of a server share.
pub(crate) struct Connections {
    tls: Option<Reread<ServerConfig>>,
    handshake_timeout: Duration,
    header_timeout: Duration,
    http: Builder<TokioExecutor>,
    router: Router,
}

impl Connections {
    pub(crate) fn new(
        options: &Options,
        tls: Option<Reread<ServerConfig>>,
        router: Router,
    ) -> Self {
        let mut http = Builder::new(TokioExecutor::new());
        http.http1().timer(TokioTimer::new()).header_read_timeout(options.header_timeout);
        http.http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(options.max_streams)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING);
        let Options { handshake_timeout, header_timeout, .. } = *options;
        Self { tls, handshake_timeout, header_timeout, http, router }
    }

    /// Serves a connection to its end; told to stop, it ends with its open requests.
    pub(crate) async fn serve(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        mut stop: watch::Receiver<bool>,
    ) {
        // Messages of gRPC are small and waited for. That this fails says the peer is gone, which
        // reading will find out as well.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else {
            return self.serve_http(stream, Peer { address, certificate: None }, stop).await;
        };
        let handshake = TlsAcceptor::from(tls.current()).accept(stream);
        let shaken = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            shaken = timeout(self.handshake_timeout, handshake) => shaken,
        };
        match shaken {
            Ok(Ok(stream)) => {
                let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                let certificate =
                    certificate.map(|certificate| Arc::new(ClientCertificate::of(certificate)));
                self.serve_http(stream, Peer { address, certificate }, stop).await;
            }
            Ok(Err(error)) => tracing::debug!(%address, %error, "A TLS handshake failed"),
            Err(_) => tracing::debug!(%address, "A TLS handshake took too long"),
        }
    }

    async fn serve_http(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
        peer: Peer,
        mut stop: watch::Receiver<bool>,
    ) {
        let address = peer.address;
        let asked = Arc::new(AtomicBool::new(false));
        let service = service_fn({
            let asked = asked.clone();
            move |mut request: Request<Incoming>| {
                asked.store(true, Ordering::Relaxed);
                request.extensions_mut().insert(peer.clone());
                self.router.clone().oneshot(request)
            }
        });
        let mut connection = pin!(self.http.serve_connection(TokioIo::new(stream), service));
        // Hyper's own limit begins only once it knows a connection to be of HTTP/1.1.
        let mut first_request = pin!(sleep(self.header_timeout));
        let (mut waiting, mut hurried, mut stopping) = (true, false, false);
        let ended = loop {
            tokio::select! {
                ended = connection.as_mut() => break ended,
                () = first_request.as_mut(), if waiting => {
                    waiting = !asked.load(Ordering::Relaxed);
                    if waiting && hurried {
                        tracing::debug!(%address, "A connection was closed for want of a request");
                        return;
                    }
                    if waiting {
                        // A peer of HTTP/2 may have just sent one, or may not heed this.
                        hurried = true;
                        connection.as_mut().graceful_shutdown();
                        first_request.as_mut().reset(Instant::now() + self.header_timeout);
                    }
                }
                _ = stop.wait_for(|stop| *stop), if !stopping => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%address, error, "A connection broke");
        }
    }
}
