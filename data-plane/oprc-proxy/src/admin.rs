//! The admin port: metrics, health and drain.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, time::sleep};

use crate::{drain::Phase, metrics, state::ProxyState};

/// Longer than common scrape intervals, because it includes the idle time between requests.
const HEADER_READ_TIMEOUT: Duration = Duration::from_mins(3);
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);
const TEXT: &str = "text/plain; charset=utf-8";

/// Serves until the proxy exits.
pub(crate) async fn serve(state: Arc<ProxyState>, listener: TcpListener) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_READ_TIMEOUT);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_RETRY_DELAY).await;
            continue;
        };
        let state = Arc::clone(&state);
        let service = service_fn(move |request| {
            let state = Arc::clone(&state);
            async move { Ok::<_, Infallible>(handle(&state, &request).await) }
        });
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        // Errors are the client's: it sent an invalid request or went away.
        tokio::spawn(async { _ = connection.await });
    }
}

async fn handle(state: &ProxyState, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if request.method() != Method::GET {
        return respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET is allowed\n");
    }
    match request.uri().path() {
        "/metrics" => {
            let text = state.metrics.text(state.limiter.in_flight(), state.limiter.queued());
            respond(StatusCode::OK, metrics::CONTENT_TYPE, text)
        }
        "/healthz" if state.lifecycle.phase() == Phase::Serving => {
            respond(StatusCode::OK, TEXT, "ok\n")
        }
        "/healthz" => respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, "draining\n"),
        "/drain" => {
            state.lifecycle.drain(state.config.lame_duck, &state.limiter).await;
            respond(StatusCode::OK, TEXT, "drained\n")
        }
        _ => respond(StatusCode::NOT_FOUND, TEXT, "try /metrics, /healthz or /drain\n"),
    }
}

fn respond(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
