//! The listening port and its accept loop.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use axum::Router;
use rustls::ServerConfig;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{Error, Options, connection::Connections, reload::Reloaded, tls};

/// Delay after a failed accept, usually for lack of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(200);

/// A bound port with its TLS configuration.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Reloaded<ServerConfig>>,
    options: Options,
}

/// Binds the port and reads the TLS files. Connections wait until [`Server::serve`].
pub async fn bind(mut options: Options) -> Result<Server, Error> {
    options.check()?;
    let tls = options.tls.take().map(tls::load_and_follow).transpose()?;
    let address = options.address;
    let listen = |error| Error::Listen { address, error };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    Ok(Server { listener, address, tls, options })
}

impl Server {
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves requests until `shutdown`, then stops accepting connections, drains open requests
    /// for up to [`Options::drain_timeout`] and closes the rest.
    pub async fn serve(self, router: Router, shutdown: impl Future<Output = ()>) {
        let Self { listener, tls, options, .. } = self;
        let connections = Arc::new(Connections::new(options, tls, router));
        let options = &connections.options;
        let (stop, stopped) = watch::channel(false);
        let mut open = JoinSet::new();
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                biased;
                () = shutdown.as_mut() => break,
                Some(_) = open.join_next() => {}
                (stream, address) = accept(&listener), if open.len() < options.max_connections => {
                    let (connections, stopped) = (connections.clone(), stopped.clone());
                    open.spawn(async move { connections.serve(stream, address, stopped).await });
                }
            }
        }
        drop(listener);
        stop.send_replace(true);
        let drained =
            timeout(options.drain_timeout, async { while open.join_next().await.is_some() {} });
        if drained.await.is_err() {
            tracing::warn!(
                connections = open.len(),
                "drain timed out, closing connections with open requests"
            );
        }
        open.shutdown().await;
    }
}

async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if is_peer_error(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections, retrying");
                sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// Whether only this connection is affected, because the peer has closed it already.
fn is_peer_error(error: &io::Error) -> bool {
    use ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
