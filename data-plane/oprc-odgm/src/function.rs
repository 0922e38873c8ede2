//! Calls of functions: the state of the object travels with the call.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::{
    Request, StatusCode,
    header::{CONTENT_TYPE, HeaderName, HeaderValue},
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use percent_encoding::{CONTROLS, percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    Error, ObjectId,
    class::{MAX_STATE_BYTES, Method, State},
};

/// A state and a result of the largest size, and their names.
const MAX_RESPONSE_BYTES: usize = MAX_STATE_BYTES + MAX_RESULT_BYTES + 1024;
pub(crate) const MAX_RESULT_BYTES: usize = 256 << 10;
/// Of the response of a function that refuses a call.
const MAX_DETAIL_CHARS: usize = 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);
const INVOCATION_ID: HeaderName = HeaderName::from_static("oprc-invocation-id");
/// A function that calls the grid passes these on, as it does with the trace context.
pub(crate) const CALL_CHAIN: HeaderName = HeaderName::from_static("oprc-call-chain");
pub(crate) const TRIGGER_DEPTH: HeaderName = HeaderName::from_static("oprc-trigger-depth");

/// Calls functions by HTTP.
#[derive(Clone, Debug)]
pub(crate) struct Functions {
    client: Client<HttpConnector, Full<Bytes>>,
}

/// What a function is called with.
#[derive(Debug, Serialize)]
pub(crate) struct Call<'a> {
    pub(crate) method: &'a str,
    pub(crate) object: CalledObject<'a>,
    pub(crate) args: &'a Value,
    #[serde(skip)]
    pub(crate) invocation: &'a str,
    /// How many triggers led to the call.
    #[serde(skip)]
    pub(crate) depth: u32,
    /// The objects whose methods led to the call, and this one.
    #[serde(skip)]
    pub(crate) chain: String,
    /// Headers that are passed on, such as the trace context.
    #[serde(skip)]
    pub(crate) headers: &'a [(HeaderName, HeaderValue)],
}

#[derive(Debug, Serialize)]
pub(crate) struct CalledObject<'a> {
    pub(crate) id: &'a str,
    pub(crate) version: u64,
    pub(crate) state: &'a State,
}

/// The response of a function.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reply {
    /// Omitted if the object stays as it is.
    #[serde(default)]
    object: Option<RepliedObject>,
    #[serde(default)]
    pub(crate) result: Value,
}

#[derive(Debug, PartialEq, Deserialize)]
struct RepliedObject {
    #[serde(default)]
    id: Option<String>,
    state: State,
}

impl Reply {
    /// The new state, if there is one.
    pub(crate) fn state(&mut self, of: &ObjectId) -> Result<Option<State>, Error> {
        let Some(object) = self.object.take() else { return Ok(None) };
        match object.id {
            Some(id) if id != of.as_str() => Err(Error::InvalidResponse(format!(
                "it has the object {id:?}, not {:?}",
                of.as_str()
            ))),
            _ => Ok(Some(object.state)),
        }
    }
}

impl Functions {
    pub(crate) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_TIMEOUT);
        Self { client: builder.build(connector) }
    }

    pub(crate) async fn call(&self, method: &Method, call: &Call<'_>) -> Result<Reply, Error> {
        let limit = method.timeout();
        let millis = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let called = timeout(limit, self.send(method, call)).await;
        let mut reply = called.unwrap_or(Err(Error::FunctionTimeout(millis)))?;
        // A method that only reads has nothing to store.
        if method.read_only && reply.object.take().is_some_and(|it| it.state != *call.object.state)
        {
            let reason = "a method that only reads must not change the object";
            return Err(Error::InvalidResponse(reason.to_owned()));
        }
        Ok(reply)
    }

    async fn send(&self, method: &Method, call: &Call<'_>) -> Result<Reply, Error> {
        let body = serde_json::to_vec(call).map_err(|it| Error::Corrupt(it.to_string()))?;
        let unreachable = |reason: String| Error::FunctionUnreachable(reason);
        let mut request = Request::post(&method.url)
            .header(CONTENT_TYPE, "application/json")
            .header(INVOCATION_ID, header(call.invocation))
            .header(CALL_CHAIN, header(&call.chain))
            .header(TRIGGER_DEPTH, call.depth)
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| unreachable(error.to_string()))?;
        request.headers_mut().extend(call.headers.iter().cloned());
        let response =
            self.client.request(request).await.map_err(|error| unreachable(chain(&error)))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
        let body = body.map_err(|error| {
            if error.is::<LengthLimitError>() {
                Error::InvalidResponse(format!("it has more than {MAX_RESPONSE_BYTES} bytes"))
            } else {
                unreachable(error.to_string())
            }
        })?;
        parse(status, &body.to_bytes())
    }
}

fn parse(status: StatusCode, body: &[u8]) -> Result<Reply, Error> {
    if status.is_client_error() {
        let detail = String::from_utf8_lossy(body).chars().take(MAX_DETAIL_CHARS).collect();
        return Err(Error::Refused { status: status.as_u16(), detail });
    }
    if !status.is_success() {
        return Err(Error::FunctionFailed(status.as_u16()));
    }
    let invalid = |error: serde_json::Error| Error::InvalidResponse(error.to_string());
    // A struct would also be read from a list.
    let reply: State = serde_json::from_slice(body).map_err(invalid)?;
    let reply: Reply = serde_json::from_value(reply.into()).map_err(invalid)?;
    let bytes = serde_json::to_vec(&reply.result).map_or(0, |it| it.len());
    if bytes > MAX_RESULT_BYTES {
        return Err(Error::TooLarge { what: "the result", bytes, limit: MAX_RESULT_BYTES });
    }
    Ok(reply)
}

/// The value of a header, with other characters than ASCII escaped.
fn header(text: &str) -> String {
    percent_encode(text.as_bytes(), CONTROLS).to_string()
}

/// An error and its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(status: u16, body: &str) -> Result<Reply, Error> {
        parse(StatusCode::from_u16(status).unwrap(), body.as_bytes())
    }

    #[test]
    fn replies_are_parsed() {
        let id = ObjectId::parse("a").unwrap();
        let mut reply = parsed(200, r#"{"object": {"state": {"n": 1}}, "result": 2}"#).unwrap();
        assert_eq!(reply.result, json!(2));
        assert_eq!(reply.state(&id).unwrap().unwrap()["n"], json!(1));
        let mut same = parsed(200, r#"{"object": {"id": "a", "state": {}}}"#).unwrap();
        assert_eq!((same.state(&id).unwrap(), same.result), (Some(State::new()), Value::Null));
        let mut other = parsed(200, r#"{"object": {"id": "b", "state": {}}}"#).unwrap();
        assert!(matches!(other.state(&id), Err(Error::InvalidResponse(_))));
        assert_eq!(parsed(200, "{}").unwrap().state(&id).unwrap(), None);
        for garbage in ["", "[]", "<html>", r#"{"object": 1}"#, r#"{"objet": {}}"#, "{\"result\": "]
        {
            assert!(matches!(parsed(200, garbage), Err(Error::InvalidResponse(_))), "{garbage}");
        }
        let large = json!({"result": "x".repeat(MAX_RESULT_BYTES)}).to_string();
        assert!(matches!(parsed(200, &large), Err(Error::TooLarge { .. })));
    }

    #[test]
    fn failures_are_told_apart() {
        let refused = Error::Refused { status: 409, detail: "sold out".to_owned() };
        assert_eq!(parsed(409, "sold out"), Err(refused));
        assert_eq!(parsed(500, ""), Err(Error::FunctionFailed(500)));
        assert_eq!(parsed(302, ""), Err(Error::FunctionFailed(302)));
    }
}
