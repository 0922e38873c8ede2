//! A sidecar proxy in front of one function in the same pod. It limits concurrent calls, queues and
//! times out calls, drains before termination, and measures latency. It adds no headers and changes
//! no bodies: HTTP/1, HTTP/2 with prior knowledge, gRPC and upgrades such as WebSocket reach the
//! function as without the proxy.
//!
//! | variable | effect |
//! | --- | --- |
//! | `OPRC_PROXY_PORT` | port for calls, 18080 by default |
//! | `OPRC_PROXY_ADMIN_PORT` | port for metrics, health and drain, 18081 by default |
//! | `OPRC_PROXY_APP_PORT` | port of the function on 127.0.0.1; required |
//! | `OPRC_PROXY_MAX_CONCURRENCY` | maximum number of concurrent calls in the function; no limit by default |
//! | `OPRC_PROXY_QUEUE_LENGTH` | maximum number of calls that wait for the function, by default ten times the maximum concurrency, at least 100 |
//! | `OPRC_PROXY_TIMEOUT_MS` | time from the receipt of a call to the head of its response; no limit by default |
//! | `OPRC_PROXY_LATENCY_MS` | required latency: becomes a bucket of the duration histogram |
//! | `OPRC_PROXY_HARD_LATENCY_MS` | hard latency: becomes a bucket, and breaches are counted |
//! | `OPRC_PROXY_BREAKER` | `true` rejects calls while most calls breach the hard latency; `false` by default |
//! | `OPRC_PROXY_DRAIN_SECONDS` | how long new calls are served after the start of a drain, 5 by default |
//! | `container` | set in images: listens on all addresses instead of loopback |
//!
//! | path on the admin port | effect |
//! | --- | --- |
//! | `/metrics` | metrics in the OpenMetrics text format |
//! | `/healthz` | 200 when serving, 503 when draining |
//! | `/drain` | drains: for the `preStop` hook of the function's container; responds when no call is in flight |
//!
//! | metric | meaning |
//! | --- | --- |
//! | `oprc_proxy_requests_total{outcome}` | calls that ended: `ok`, `client_error`, `server_error`, `timeout`, `rejected`, `unreachable`, `canceled` |
//! | `oprc_proxy_request_duration_seconds` | histogram of calls that reached the function, from the receipt of a call to the end of its response, or to the upgrade of its connection |
//! | `oprc_proxy_requests_in_flight` | calls in the function |
//! | `oprc_proxy_queue_length` | calls that wait for the function |
//! | `oprc_proxy_queue_wait_seconds` | histogram of the time that calls waited |
//! | `oprc_proxy_rejected_total{reason}` | rejected calls: `queue_full`, `breaker` |
//! | `oprc_proxy_hard_latency_breaches_total` | calls that took longer than the hard latency or timed out |
//! | `oprc_proxy_max_concurrency` | the limit; only if one is set |
//! | `oprc_proxy_start_time_seconds` | start of the proxy since the Unix epoch |
//!
//! | error | HTTP | gRPC |
//! | --- | --- | --- |
//! | the function refuses or loses the connection | 502 | 14 `UNAVAILABLE` |
//! | no response within the timeout, including the time in the queue | 504 | 4 `DEADLINE_EXCEEDED` |
//! | the queue is full, or the breaker is open | 503 with `Retry-After` | 8 `RESOURCE_EXHAUSTED` |
//!
//! The breaker opens if at least 20 calls ended within 10 s and more than half of them breached. It
//! rejects calls for 5 s and then lets 10 calls through: if at most half of them breach, it closes. Calls
//! are measured to the end of their responses: don't enable it for functions with long-lived streams.
//!
//! `oprc-proxy wait HOST:PORT [--timeout SECONDS]` waits until the gRPC health service at an address
//! reports `SERVING`, for use as an init container.

mod admin;
mod breaker;
mod call;
mod config;
mod connection;
mod drain;
mod forward;
mod grpc;
mod headers;
mod http2_settings;
mod limiter;
mod metrics;
mod problem;
mod request_body;
mod response_body;
mod serve;
mod socket;
mod state;
mod upstream;
mod wait;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use tokio::net::TcpListener;

use self::state::ProxyState;
pub use self::{
    config::Config,
    wait::{WaitOptions, wait},
};

/// A proxy that listens, and serves once it runs.
pub struct Proxy {
    state: Arc<ProxyState>,
    listener: TcpListener,
    admin_listener: TcpListener,
}

impl Proxy {
    pub async fn bind(config: Config) -> Result<Self, String> {
        let listener = listen(&config, config.port).await?;
        let admin_listener = listen(&config, config.admin_port).await?;
        Ok(Self { state: Arc::new(ProxyState::new(config)), listener, admin_listener })
    }

    /// Where calls arrive.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    pub fn admin_address(&self) -> io::Result<SocketAddr> {
        self.admin_listener.local_addr()
    }

    /// Serves until `shutdown`, finishes the calls in flight for at most 30 s and returns.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let admin = admin::serve(Arc::clone(&self.state), self.admin_listener);
        let close_expired = self.state.upstream.close_expired();
        let serve = serve::serve(Arc::clone(&self.state), self.listener, shutdown);
        tokio::select! {
            () = serve => {}
            () = admin => {}
            () = close_expired => {}
        }
    }
}

async fn listen(config: &Config, port: u16) -> Result<TcpListener, String> {
    let candidates: &[IpAddr] = if config.all_addresses {
        // The first accepts IPv4, too; the second is for kernels without IPv6.
        &[IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)]
    } else {
        &[IpAddr::V4(Ipv4Addr::LOCALHOST)]
    };
    let addresses: Vec<_> = candidates.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
    TcpListener::bind(addresses.as_slice())
        .await
        .map_err(|error| format!("cannot listen on port {port}: {error}"))
}
