//! Calls of functions: the state of the object travels with the call.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Request, StatusCode,
    header::{CONTENT_TYPE, HeaderName, HeaderValue},
};
use percent_encoding::{CONTROLS, percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    Error, ObjectId,
    call_token::CALL_TOKEN,
    class::{MAX_STATE_BYTES, Method, State},
    concurrency::ConcurrencyLimits,
    equality::same_state,
    http_client::{HttpClient, SendError},
};

/// A state and a result of the largest size, and their names.
const MAX_RESPONSE_BYTES: usize = MAX_STATE_BYTES + MAX_RESULT_BYTES + 1024;
pub(crate) const MAX_RESULT_BYTES: usize = 256 << 10;
/// Of the response of a function that refuses a call.
const MAX_DETAIL_CHARS: usize = 1024;
const INVOCATION_ID: HeaderName = HeaderName::from_static("oprc-invocation-id");
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(2);

/// Calls functions by HTTP. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Functions {
    client: HttpClient,
    pub(crate) limits: ConcurrencyLimits,
}

/// What a function is called with.
#[derive(Debug, Serialize)]
pub(crate) struct Call<'a> {
    pub(crate) method: &'a str,
    pub(crate) object: CalledObject<'a>,
    pub(crate) args: &'a Value,
    #[serde(skip)]
    pub(crate) invocation: &'a str,
    /// The header of call tokens, which a function that calls the grid passes on.
    #[serde(skip)]
    pub(crate) tokens: String,
    #[serde(skip)]
    pub(crate) deadline: Instant,
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
    pub(crate) fn new(client: HttpClient) -> Self {
        Self { client, limits: ConcurrencyLimits::default() }
    }

    /// Waits for other calls of the function if they are limited, and repeats the call if it isn't reached
    /// and has retries. All of it ends at the deadline.
    pub(crate) async fn call(&self, method: &Method, call: &Call<'_>) -> Result<Reply, Error> {
        let late = || {
            let millis = method.timeout().as_millis();
            Error::FunctionTimeout(u64::try_from(millis).unwrap_or(u64::MAX))
        };
        let called = timeout_at(call.deadline, async {
            let _permit = self.limits.acquire(call.method, method.max_concurrency).await?;
            self.call_with_retries(method, call).await
        });
        let mut reply = called.await.unwrap_or_else(|_| Err(late()))?;
        let is_other = |it: RepliedObject| !same_state(&it.state, call.object.state);
        // What doesn't change the object may return it.
        if method.is_read_only() && reply.object.take().is_some_and(is_other) {
            return Err(Error::Immutable(call.method.to_owned()));
        }
        Ok(reply)
    }

    async fn call_with_retries(&self, method: &Method, call: &Call<'_>) -> Result<Reply, Error> {
        let (mut left, mut backoff) = (method.retries, FIRST_BACKOFF);
        loop {
            match self.send(method, call).await {
                Err(error) if left > 0 && is_retried(&error) => {
                    tracing::debug!(method = call.method, %error, "function call failed, retrying");
                    left -= 1;
                    sleep(backoff.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
                    backoff = (backoff * 2).min(MAX_BACKOFF);
                }
                outcome => return outcome,
            }
        }
    }

    async fn send(&self, method: &Method, call: &Call<'_>) -> Result<Reply, Error> {
        let body = serde_json::to_vec(call).map_err(|it| Error::Corrupt(it.to_string()))?;
        let mut request = Request::post(&method.url)
            .header(CONTENT_TYPE, "application/json")
            .header(INVOCATION_ID, header(call.invocation))
            .header(CALL_TOKEN, &call.tokens)
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| Error::FunctionUnreachable(error.to_string()))?;
        request.headers_mut().extend(call.headers.iter().cloned());
        let response = self.client.send(request, MAX_RESPONSE_BYTES).await;
        let (status, body) = response.map_err(|error| match error {
            SendError::Unreachable(reason) => Error::FunctionUnreachable(reason),
            SendError::TooLarge(limit) => {
                Error::InvalidResponse(format!("it has more than {limit} bytes"))
            }
        })?;
        parse(status, &body)
    }
}

/// Nothing is stored before the function has answered, so a call may be repeated. Only failures to
/// reach the function are retried, because functions may have effects elsewhere.
fn is_retried(error: &Error) -> bool {
    matches!(error, Error::FunctionUnreachable(_) | Error::FunctionFailed(502..=504))
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
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(Error::InvalidResponse("it is a list, expected an object".to_owned()));
    }
    let reply: Reply = serde_json::from_slice(body).map_err(invalid)?;
    // A part isn't longer than the whole.
    if body.len() > MAX_RESULT_BYTES {
        let bytes = serde_json::to_vec(&reply.result).map_or(0, |it| it.len());
        if bytes > MAX_RESULT_BYTES {
            return Err(Error::TooLarge { what: "the result", bytes, limit: MAX_RESULT_BYTES });
        }
    }
    Ok(reply)
}

/// The value of a header, with other characters than ASCII escaped.
fn header(text: &str) -> String {
    percent_encode(text.as_bytes(), CONTROLS).to_string()
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
