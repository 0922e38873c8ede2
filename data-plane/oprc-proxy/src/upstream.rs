//! Connections to the function.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use hyper::{
    Request, Response,
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{net::TcpStream, sync::Notify, time::timeout};

use crate::{http2_settings, problem::Problem, request_body::RequestBody, socket};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Shorter than the idle timeout of common servers, so that they rarely close a connection while a
/// call is sent on it. The shortest known default is 2 s, of gunicorn.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_IDLE_CONNECTIONS: usize = 256;

pub(crate) type Http1Sender = http1::SendRequest<RequestBody>;
pub(crate) type Http2Sender = http2::SendRequest<RequestBody>;

/// The function, with a pool of idle HTTP/1 connections. HTTP/2 connections are not shared: each
/// client connection has its own, so that limits on streams apply as without the proxy.
#[derive(Debug)]
pub(crate) struct Upstream {
    address: SocketAddr,
    /// Ordered by the time of their release, latest last.
    idle: Mutex<Vec<IdleConnection>>,
    pool_filled: Notify,
}

#[derive(Debug)]
struct IdleConnection {
    sender: Http1Sender,
    expires: Instant,
}

impl Upstream {
    pub(crate) fn new(port: u16) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self { address, idle: Mutex::default(), pool_filled: Notify::new() }
    }

    /// Sends a request on an idle or a new connection. Release the connection after the body of the
    /// response has ended, or drop it to close it.
    pub(crate) async fn send_http1(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<(Response<Incoming>, Http1Sender), Problem> {
        loop {
            let (mut sender, is_reused) = match self.take_idle() {
                Some(sender) => (sender, true),
                None => (self.connect_http1().await?, false),
            };
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, sender)),
                // The function closed the idle connection before the request was sent.
                Err(mut error) if is_reused => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(Problem::ConnectionLost),
                },
                Err(_) => return Err(Problem::ConnectionLost),
            }
        }
    }

    pub(crate) fn release(&self, sender: Http1Sender) {
        if sender.is_closed() {
            return;
        }
        let mut idle = self.idle();
        if idle.is_empty() {
            self.pool_filled.notify_one();
        }
        if idle.len() < MAX_IDLE_CONNECTIONS {
            idle.push(IdleConnection { sender, expires: Instant::now() + IDLE_TIMEOUT });
        }
    }

    pub(crate) async fn connect_http2(&self) -> Result<Http2Sender, Problem> {
        let stream = self.connect().await?;
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .initial_stream_window_size(http2_settings::STREAM_WINDOW)
            .initial_connection_window_size(http2_settings::CONNECTION_WINDOW)
            .max_send_buf_size(http2_settings::SEND_BUFFER);
        let handshake = builder.handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|_| Problem::Unreachable)?;
        // Its errors are reported to the calls on it.
        tokio::spawn(async { _ = connection.await });
        Ok(sender)
    }

    /// Closes connections that are idle for too long. Runs until the proxy exits.
    pub(crate) async fn close_expired(&self) {
        loop {
            let next = self.idle().first().map(|oldest| oldest.expires);
            match next {
                Some(expires) => tokio::time::sleep_until(expires.into()).await,
                None => self.pool_filled.notified().await,
            }
            let now = Instant::now();
            let mut idle = self.idle();
            let expired = idle.partition_point(|connection| connection.expires <= now);
            idle.drain(..expired);
        }
    }

    fn take_idle(&self) -> Option<Http1Sender> {
        let mut idle = self.idle();
        while let Some(connection) = idle.pop() {
            if connection.sender.is_ready() && connection.expires > Instant::now() {
                return Some(connection.sender);
            }
        }
        None
    }

    async fn connect_http1(&self) -> Result<Http1Sender, Problem> {
        let stream = TokioIo::new(self.connect().await?);
        let handshake = http1::handshake(stream).await;
        let (sender, connection) = handshake.map_err(|_| Problem::Unreachable)?;
        // Its errors are reported to the calls on it.
        tokio::spawn(async { _ = connection.with_upgrades().await });
        Ok(sender)
    }

    async fn connect(&self) -> Result<TcpStream, Problem> {
        let connecting = timeout(CONNECT_TIMEOUT, TcpStream::connect(self.address)).await;
        let stream = connecting.ok().and_then(Result::ok).ok_or(Problem::Unreachable)?;
        socket::configure(&stream);
        Ok(stream)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<IdleConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
