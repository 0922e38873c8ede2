//! Calls of the grid of another class, by its HTTP API.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, header::CONTENT_TYPE};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    Error,
    call_token::CALL_TOKEN,
    class::MAX_STATE_BYTES,
    http_client::{HttpClient, SendError},
    invocation::Invocation,
};

/// An object or result with its names.
const MAX_RESPONSE_BYTES: usize = MAX_STATE_BYTES + 4096;
const MAX_DETAIL_CHARS: usize = 1024;

pub(crate) struct OtherGrid<'a> {
    pub(crate) client: &'a HttpClient,
    /// Without a path.
    pub(crate) url: &'a str,
    pub(crate) class: &'a str,
}

impl OtherGrid<'_> {
    pub(crate) async fn invoke(
        &self,
        call: &Invocation,
        tokens: &str,
        limit: Duration,
    ) -> Result<Value, Error> {
        let collection = call.collection.as_deref();
        let path = format!("{}/{}", path(collection, call.id.as_str()), encode(&call.method));
        let mut request = Request::post(self.address(&path))
            .header(CONTENT_TYPE, "application/json")
            .header(CALL_TOKEN, tokens);
        if let Some(key) = &call.idempotency_key {
            request = request.header("idempotency-key", key);
        }
        let body = Full::new(Bytes::from(call.args.to_string()));
        let mut request =
            request.body(body).map_err(|error| self.failed(502, error.to_string()))?;
        request.headers_mut().extend(call.headers.iter().cloned());
        self.send(request, limit).await
    }

    pub(crate) async fn get(&self, id: &str, limit: Duration) -> Result<Value, Error> {
        let request = Request::get(self.address(&path(None, id))).body(Full::default());
        let request = request.map_err(|error| self.failed(502, error.to_string()))?;
        self.send(request, limit).await
    }

    fn address(&self, path: &str) -> String {
        format!("{}{path}", self.url.trim_end_matches('/'))
    }

    async fn send(&self, request: Request<Full<Bytes>>, limit: Duration) -> Result<Value, Error> {
        let late = || self.failed(504, format!("no response within {} ms", limit.as_millis()));
        let sent = timeout(limit, self.client.send(request, MAX_RESPONSE_BYTES)).await;
        let (status, body) = sent.map_err(|_| late())?.map_err(|error| match error {
            SendError::Unreachable(reason) => self.failed(503, reason),
            SendError::TooLarge(limit) => self.failed(502, format!("more than {limit} bytes")),
        })?;
        let value: Option<Value> = serde_json::from_slice(&body).ok();
        if status.is_success() {
            return value.ok_or_else(|| self.failed(502, "the response is not JSON".to_owned()));
        }
        let detail = value.as_ref().and_then(|it| it.get("detail")?.as_str());
        let detail = detail.unwrap_or_default().chars().take(MAX_DETAIL_CHARS).collect();
        Err(self.failed(status.as_u16(), detail))
    }

    fn failed(&self, status: u16, detail: String) -> Error {
        Error::OtherGrid { class: self.class.to_owned(), status, detail }
    }
}

fn path(collection: Option<&str>, id: &str) -> String {
    match collection {
        Some(collection) => format!("/collections/{}/objects/{}", encode(collection), encode(id)),
        None => format!("/objects/{}", encode(id)),
    }
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
