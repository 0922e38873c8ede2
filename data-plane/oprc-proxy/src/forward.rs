//! Forwards a call: breaker, queue, function, response.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use hyper::{
    Method, Request, Response, StatusCode, Version,
    body::Incoming,
    header::{CONNECTION, EXPECT, HeaderValue},
    upgrade::OnUpgrade,
};
use hyper_util::rt::TokioIo;

use crate::{
    call::Call,
    connection::ClientConnection,
    drain::Phase,
    grpc, headers,
    limiter::Slot,
    metrics::Outcome,
    problem::Problem,
    request_body::RequestBody,
    response_body::{FunctionBody, ResponseBody, outcome},
    upstream::Http1Sender,
};

/// The head of the function's response, and what its body needs.
struct Reply {
    response: Response<Incoming>,
    /// The connection to the function of an HTTP/1 call.
    sender: Option<Http1Sender>,
    /// The client's connection, if it asked for an upgrade.
    client: Option<OnUpgrade>,
}

pub(crate) async fn forward(
    connection: Arc<ClientConnection>,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let version = request.version();
    if version == Version::HTTP_2 {
        connection.set_http2();
    }
    let is_grpc = grpc::is_grpc(request.headers());
    let is_connect = request.method() == Method::CONNECT;
    let state = Arc::clone(&connection.state);
    let mut call = Call::start(connection);
    let replied = match state.config.timeout {
        None => reply(&mut call, request).await,
        Some(timeout) => tokio::time::timeout(timeout, reply(&mut call, request))
            .await
            .unwrap_or(Err(Problem::Timeout)),
    };
    let mut response = match replied {
        Ok(reply) => respond(reply, call, is_connect),
        Err(problem) => {
            call.fail(problem);
            render(problem, is_grpc)
        }
    };
    *response.version_mut() = version;
    let is_http1 = version < Version::HTTP_2;
    if is_http1
        && response.status() != StatusCode::SWITCHING_PROTOCOLS
        && state.lifecycle.phase() > Phase::Serving
    {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Waits for the head of the function's response.
async fn reply(call: &mut Call, request: Request<Incoming>) -> Result<Reply, Problem> {
    call.admit()?;
    let mut request = request.map(RequestBody::new);
    let slot = match call.state().limiter.try_acquire() {
        Some(slot) => slot,
        None => wait_for_slot(call, &mut request).await?,
    };
    call.enter_function(slot);
    if request.version() == Version::HTTP_2 {
        let response = send_http2(call.connection(), request).await?;
        return Ok(Reply { response, sender: None, client: None });
    }
    let is_upgrade = headers::prepare_request(request.headers_mut());
    let is_connect = request.method() == Method::CONNECT;
    let client = (is_upgrade || is_connect).then(|| hyper::upgrade::on(&mut request));
    let (mut response, sender) = call.state().upstream.send_http1(request).await?;
    headers::prepare_response(response.status(), response.headers_mut());
    Ok(Reply { response, sender: Some(sender), client })
}

async fn wait_for_slot(call: &Call, request: &mut Request<RequestBody>) -> Result<Slot, Problem> {
    let state = call.state();
    let queued = Instant::now();
    let acquiring = state.limiter.acquire();
    // Reading the body would ask a client for it that waits for `100 Continue`.
    let slot = if request.headers().contains_key(EXPECT) {
        acquiring.await
    } else {
        tokio::select! {
            biased;
            slot = acquiring => slot,
            never = request.body_mut().read_ahead() => match never {},
        }
    };
    let slot = slot.map_err(|_| Problem::QueueFull)?;
    state.metrics.observe_queue_wait(queued.elapsed());
    Ok(slot)
}

async fn send_http2(
    connection: &ClientConnection,
    mut request: Request<RequestBody>,
) -> Result<Response<Incoming>, Problem> {
    if request.uri().authority().is_none() {
        // The client sent `host` instead of `:authority`. h2 accepts that only from HTTP/1 requests.
        *request.version_mut() = Version::HTTP_11;
    }
    let mut sender = connection.http2_sender().await?;
    let mut error = match sender.try_send_request(request).await {
        Ok(response) => return Ok(response),
        Err(error) => error,
    };
    // The function closed the connection before the request was sent: tries a new one.
    let unsent = error.take_message().ok_or(Problem::ConnectionLost)?;
    let mut sender = connection.http2_sender().await?;
    sender.try_send_request(unsent).await.map_err(|_| Problem::ConnectionLost)
}

fn respond(reply: Reply, mut call: Call, is_connect: bool) -> Response<ResponseBody> {
    let Reply { mut response, sender, client } = reply;
    let status = response.status();
    let is_upgraded =
        status == StatusCode::SWITCHING_PROTOCOLS || (is_connect && status.is_success());
    if let Some(client) = client.filter(|_| is_upgraded) {
        let function = hyper::upgrade::on(&mut response);
        call.count(Outcome::Ok);
        tokio::spawn(tunnel(client, function, call));
        return response.map(|_| ResponseBody::Text(Bytes::new()));
    }
    let outcome = outcome(status, response.headers());
    response.map(|body| ResponseBody::Function(FunctionBody::new(body, call, sender, outcome)))
}

/// Copies in both directions until both sides have closed. The call keeps its slot until then.
async fn tunnel(client: OnUpgrade, function: OnUpgrade, call: Call) {
    if let (Ok(client), Ok(function)) = tokio::join!(client, function) {
        let (mut client, mut function) = (TokioIo::new(client), TokioIo::new(function));
        // Either side may go away at any time.
        _ = tokio::io::copy_bidirectional(&mut client, &mut function).await;
    }
    drop(call);
}

fn render(problem: Problem, is_grpc: bool) -> Response<ResponseBody> {
    let (status, headers, body) = problem.render(is_grpc);
    let mut response = Response::new(ResponseBody::Text(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
