//! Accepts connections of clients.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    connection::ClientConnection, drain::Phase, forward::forward, http2_settings, socket,
    state::ProxyState,
};

/// A new connection is closed unless its first call arrives within this time.
const FIRST_CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// A connection is closed after one to two intervals without a call. Longer than the idle timeout of
/// common clients, so that usually they close connections.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_mins(3);
/// Time for the graceful end of an idle connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// HTTP/2 clients that don't answer a ping in time are disconnected.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How long calls in flight may take after SIGTERM.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(30);
/// Further clients wait until a connection is closed. Each connection takes about 60 kB.
const MAX_CONNECTIONS: usize = 2048;
/// Pause after a failure to accept, for example because too many files are open.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Serves until `shutdown`, and then finishes the calls in flight.
pub(crate) async fn serve(
    state: Arc<ProxyState>,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) {
    let builder = Arc::new(server_builder());
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            // Removes ended connections.
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    let (builder, state) = (Arc::clone(&builder), Arc::clone(&state));
                    connections.spawn(serve_connection(builder, state, stream));
                }
                Err(error) => {
                    eprintln!("oprc-proxy: cannot accept a connection, retrying: {error}");
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
        }
    }
    drop(listener);
    state.lifecycle.terminate();
    let finish = async {
        while connections.join_next().await.is_some() {}
        // Upgraded connections have left the set.
        state.limiter.wait_until_idle().await;
    };
    if timeout(TERMINATION_TIMEOUT, finish).await.is_err() {
        eprintln!(
            "oprc-proxy: {} calls did not end within {} s, closing their connections",
            state.limiter.in_flight() + state.limiter.queued(),
            TERMINATION_TIMEOUT.as_secs()
        );
    }
}

fn server_builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // Responses of the function get no additional headers. `serve_connection` limits the time for
    // reading the head of a request, with one timer for each connection instead of each request.
    builder.http1().auto_date_header(false).header_read_timeout(None);
    builder
        .http2()
        .auto_date_header(false)
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .initial_stream_window_size(http2_settings::STREAM_WINDOW)
        .initial_connection_window_size(http2_settings::CONNECTION_WINDOW)
        .max_send_buf_size(http2_settings::SEND_BUFFER);
    builder
}

async fn serve_connection(
    builder: Arc<auto::Builder<TokioExecutor>>,
    state: Arc<ProxyState>,
    stream: TcpStream,
) {
    socket::configure(&stream);
    let mut phases = state.lifecycle.subscribe();
    let connection = Arc::new(ClientConnection::new(state));
    let service = service_fn(|request| {
        let connection = Arc::clone(&connection);
        async move { Ok::<_, Infallible>(forward(connection, request).await) }
    });
    let mut serving = pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
    let mut idle_check = pin!(sleep(FIRST_CALL_TIMEOUT));
    let mut calls_at_check = 0;
    let mut is_closing = false;
    loop {
        tokio::select! {
            biased;
            // Errors are the client's: it sent an invalid request or went away.
            _ = serving.as_mut() => return,
            Ok(()) = phases.changed() => {
                let phase = *phases.borrow_and_update();
                // Idle HTTP/1 connections are not closed yet in the first phase: a client may be
                // about to send a call. GOAWAY has no such race.
                let is_draining = phase > Phase::LameDuck;
                if is_draining || (phase == Phase::LameDuck && connection.is_http2()) {
                    serving.as_mut().graceful_shutdown();
                }
            }
            () = idle_check.as_mut() => {
                let calls = connection.calls_started();
                let is_idle = calls == calls_at_check && !connection.has_running_calls();
                // A client that has not sent a complete head doesn't end gracefully.
                if is_idle && is_closing {
                    return;
                }
                if is_idle {
                    serving.as_mut().graceful_shutdown();
                    is_closing = true;
                }
                calls_at_check = calls;
                let delay = if is_closing { CLOSE_TIMEOUT } else { IDLE_CHECK_INTERVAL };
                idle_check.as_mut().reset(Instant::now() + delay);
            }
        }
    }
}
