//! A port, and what comes in there.

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

use crate::{Error, Options, connection::Connections, reread::Reread, tls};

/// How long to wait for file descriptors to become free.
const PAUSE: Duration = Duration::from_millis(200);

/// A port that is listened on, with what it needs for TLS.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Reread<ServerConfig>>,
    options: Options,
}

/// Listens, and reads the TLS files. Connections wait until [`Server::serve`].
pub async fn bind(mut options: Options) -> Result<Server, Error> {
    options.check()?;
    let tls = options.tls.take().map(tls::follow).transpose()?;
    let address = options.address;
    let listen = |error| Error::Listen { address, error };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    Ok(Server { listener, address, tls, options })
}

impl Server {
    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests until told to stop; then accepts no connection any more, lets open requests
    /// finish for as long as they may, and closes what is left.
    pub async fn serve(self, router: Router, shutdown: impl Future<Output = ()>) {
        let Self { listener, tls, options, .. } = self;
        let connections = Arc::new(Connections::new(&options, tls, router));
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
        let drained = timeout(options.drain, async { while open.join_next().await.is_some() {} });
        if drained.await.is_err() {
            tracing::warn!(connections = open.len(), "Closing connections with open requests");
        }
        open.shutdown().await;
    }
}

async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if of_one_peer(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "Cannot accept connections");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Whether an error says only that the peer has gone already.
fn of_one_peer(error: &io::Error) -> bool {
    use ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
