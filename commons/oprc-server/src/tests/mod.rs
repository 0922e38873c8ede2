//! A server on a real socket, with real certificates.

mod access;
mod client;
mod limits;
mod pki;
mod plain;
mod rotation;
mod stop;
mod tls;

use std::{net::SocketAddr, time::Duration};

use axum::{
    Extension, Router,
    middleware::from_fn_with_state,
    routing::{get, post},
};
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{error::Elapsed, timeout},
};

use crate::{Access, Identity, Options, Peer, bind, fallback, require};

struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

fn options() -> Options {
    Options {
        address: ([127, 0, 0, 1], 0).into(),
        tls: None,
        max_connections: 100,
        handshake_timeout: Duration::from_secs(10),
        header_timeout: Duration::from_secs(10),
        max_streams: 100,
        drain_timeout: Duration::from_mins(2),
    }
}

async fn start(options: Options, router: Router) -> Running {
    let server = bind(options).await.unwrap();
    let address = server.local_addr();
    let (stop, stopped) = oneshot::channel();
    let served = tokio::spawn(server.serve(router, async {
        let _ = stopped.await;
    }));
    Running { address, stop, served }
}

/// `/peer` returns the client certificate's name; `/guarded` and the gRPC method the identity.
fn router(access: Access) -> Router {
    async fn peer(Extension(peer): Extension<Peer>) -> String {
        assert!(peer.address.ip().is_loopback());
        peer.certificate.and_then(|certificate| certificate.common_name.clone()).unwrap_or_default()
    }
    async fn identity(Extension(identity): Extension<Identity>) -> String {
        identity.name.unwrap_or_default()
    }
    Router::new()
        .route("/guarded", get(identity))
        .route("/package.Service/Method", post(identity))
        .layer(from_fn_with_state(access, require))
        .route("/peer", get(peer))
        .fallback(fallback)
}

/// Bounds the time of a failing test.
async fn within_timeout<T>(what: impl Future<Output = T>) -> T {
    let what: Result<T, Elapsed> = timeout(Duration::from_secs(30), what).await;
    what.expect("timed out")
}
