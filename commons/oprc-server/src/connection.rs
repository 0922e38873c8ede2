//! One connection, from the TLS handshake to its end.

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

use crate::{ClientCertificate, Options, Peer, reload::Reloaded};

/// Interval and timeout of HTTP/2 pings: peers that vanished must not count as connections.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// The state that all connections of a server share.
pub(crate) struct Connections {
    pub(crate) options: Options,
    tls: Option<Reloaded<ServerConfig>>,
    http: Builder<TokioExecutor>,
    router: Router,
}

impl Connections {
    pub(crate) fn new(
        options: Options,
        tls: Option<Reloaded<ServerConfig>>,
        router: Router,
    ) -> Self {
        let mut http = Builder::new(TokioExecutor::new());
        http.http1().timer(TokioTimer::new()).header_read_timeout(options.header_timeout);
        http.http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(options.max_streams)
            .keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE);
        Self { options, tls, http, router }
    }

    /// Serves a connection to its end. After `stop` it ends with its open requests.
    pub(crate) async fn serve(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        mut stop: watch::Receiver<bool>,
    ) {
        // gRPC messages are small and latency-sensitive. This fails only if the peer is gone, which
        // reading reports as well.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else {
            return self.serve_http(stream, Peer { address, certificate: None }, stop).await;
        };
        let handshake = TlsAcceptor::from(tls.current()).accept(stream);
        let outcome = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            outcome = timeout(self.options.handshake_timeout, handshake) => outcome,
        };
        match outcome {
            Ok(Ok(stream)) => {
                let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                let certificate =
                    certificate.map(|certificate| Arc::new(ClientCertificate::of(certificate)));
                self.serve_http(stream, Peer { address, certificate }, stop).await;
            }
            Ok(Err(error)) => tracing::debug!(%address, %error, "TLS handshake failed"),
            Err(_) => tracing::debug!(%address, "TLS handshake timed out"),
        }
    }

    async fn serve_http(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
        peer: Peer,
        mut stop: watch::Receiver<bool>,
    ) {
        let address = peer.address;
        let received = Arc::new(AtomicBool::new(false));
        let service = service_fn({
            let received = received.clone();
            move |mut request: Request<Incoming>| {
                received.store(true, Ordering::Relaxed);
                request.extensions_mut().insert(peer.clone());
                self.router.clone().oneshot(request)
            }
        });
        let mut connection = pin!(self.http.serve_connection(TokioIo::new(stream), service));
        // Hyper's own timeout starts only after it has detected HTTP/1.1.
        let mut first_request = pin!(sleep(self.options.header_timeout));
        let (mut waiting, mut asked_to_close, mut stopping) = (true, false, false);
        let ended = loop {
            tokio::select! {
                ended = connection.as_mut() => break ended,
                () = first_request.as_mut(), if waiting => {
                    waiting = !received.load(Ordering::Relaxed);
                    if waiting && asked_to_close {
                        tracing::debug!(%address, "closed a connection without a request");
                        return;
                    }
                    if waiting {
                        // An HTTP/2 peer may just have sent a request, or may ignore this.
                        asked_to_close = true;
                        connection.as_mut().graceful_shutdown();
                        first_request.as_mut().reset(Instant::now() + self.options.header_timeout);
                    }
                }
                _ = stop.wait_for(|stop| *stop), if !stopping => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%address, error, "connection failed");
        }
    }
}
