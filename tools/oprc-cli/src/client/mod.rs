//! Client of the package manager's REST API. Every response has a timeout and a size limit.

mod events;
mod response;
mod tls;

use std::{path::Path, time::Duration};

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Method, Request, Response, Uri, body::Incoming, header};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use oprc_rest::Page;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Serialize, de::DeserializeOwned};

pub(crate) use self::events::Events;
use crate::error::CliError;

const MAX_RESPONSE_BYTES: usize = 64 << 20;
/// Stops a server that never ends a list.
const MAX_PAGES: usize = 10_000;

/// Everything but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

type Http = legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: Http,
    server: String,
    token: Option<String>,
    timeout: Duration,
}

enum Payload {
    Empty,
    Json(Vec<u8>),
    Yaml(String),
}

impl Client {
    /// Doesn't connect yet.
    pub(crate) fn new(
        server: &str,
        token: Option<String>,
        ca: Option<&Path>,
        timeout: Duration,
    ) -> Result<Self> {
        let server = server.trim_end_matches('/').to_owned();
        let uri = server.parse::<Uri>().ok();
        let uri = uri.filter(|uri| uri.host().is_some());
        let scheme = uri.as_ref().and_then(Uri::scheme_str);
        if !matches!(scheme, Some("http" | "https")) {
            return Err(CliError::InvalidInput(format!(
                "invalid server URL {server:?}; expected a URL such as https://pm.example:8443"
            ))
            .into());
        }
        let http = legacy::Client::builder(TokioExecutor::new()).build(tls::connector(ca)?);
        Ok(Self { http, server, token, timeout })
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.fetch_json(Method::GET, path, None, Payload::Empty).await
    }

    /// Fetches all pages of a list. `path` may have a query.
    pub(crate) async fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>> {
        let mut all = Vec::new();
        let mut cursor: Option<String> = None;
        let separator = if path.contains('?') { '&' } else { '?' };
        for _ in 0..MAX_PAGES {
            let next = cursor.take().map(|it| format!("&cursor={}", escape(&it)));
            let next = next.unwrap_or_default();
            let page: Page<T> = self.get(&format!("{path}{separator}limit=200{next}")).await?;
            all.extend(page.items);
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(all),
            }
        }
        Err(CliError::Failed(format!(
            "{} returned more than {MAX_PAGES} pages for {path}",
            self.server
        ))
        .into())
    }

    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
        if_match: Option<&str>,
    ) -> Result<T> {
        self.fetch_json(method, path, if_match, Payload::Json(serde_json::to_vec(body)?)).await
    }

    pub(crate) async fn send_ignoring_body(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<()> {
        let payload = match body {
            Some(body) => Payload::Json(serde_json::to_vec(body)?),
            None => Payload::Empty,
        };
        self.fetch(method, path, None, payload).await.map(drop)
    }

    pub(crate) async fn send_yaml<T: DeserializeOwned>(&self, path: &str, text: &str) -> Result<T> {
        self.fetch_json(Method::POST, path, None, Payload::Yaml(text.to_owned())).await
    }

    pub(crate) async fn send_yaml_ignoring_body(&self, path: &str, text: &str) -> Result<()> {
        let payload = Payload::Yaml(text.to_owned());
        self.fetch(Method::POST, path, None, payload).await.map(drop)
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<()> {
        self.fetch(Method::DELETE, path, None, Payload::Empty).await.map(drop)
    }

    /// Fetches text outside of the versioned API, such as `/metrics`.
    pub(crate) async fn text(&self, path: &str) -> Result<String> {
        let request = self.request(Method::GET, path, None, Payload::Empty)?;
        let bytes = self.send_request(request).await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Opens the event stream, after the event with id `last` if given.
    pub(crate) async fn events(&self, last: Option<&str>) -> Result<Events> {
        let mut request = self.request(Method::GET, "/api/v1/events", None, Payload::Empty)?;
        let headers = request.headers_mut();
        headers.insert(header::ACCEPT, header::HeaderValue::from_static("text/event-stream"));
        if let Some(last) = last.and_then(|last| header::HeaderValue::from_str(last).ok()) {
            headers.insert("last-event-id", last);
        }
        let response = self.response(self.http.request(request)).await?;
        let response = self.check_status(response).await?;
        Ok(Events::new(response.into_body()))
    }

    /// Sends a request to another server, without the token. The caller sets a timeout.
    pub(crate) async fn send_external(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>> {
        let uri = request.uri().clone();
        let response = self.http.request(request).await;
        response.map_err(|error| {
            let why = response::error_chain(&error);
            CliError::Unavailable(format!("cannot connect to {uri}: {why}")).into()
        })
    }

    async fn fetch_json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        if_match: Option<&str>,
        payload: Payload,
    ) -> Result<T> {
        let bytes = self.fetch(method, path, if_match, payload).await?;
        serde_json::from_slice(&bytes).map_err(|error| {
            let server = &self.server;
            CliError::Failed(format!(
                "unexpected response from {server}{path}: {error}; \
                 check that the URL is that of a package manager"
            ))
            .into()
        })
    }

    async fn fetch(
        &self,
        method: Method,
        path: &str,
        if_match: Option<&str>,
        payload: Payload,
    ) -> Result<Bytes> {
        let request = self.request(method, &format!("/api/v1{path}"), if_match, payload)?;
        self.send_request(request).await
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        if_match: Option<&str>,
        payload: Payload,
    ) -> Result<Request<Full<Bytes>>> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.server))
            .header(header::ACCEPT, "application/json, application/problem+json")
            .header(header::USER_AGENT, concat!("oprc/", env!("CARGO_PKG_VERSION")));
        if let Some(token) = &self.token {
            let mut value = header::HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| CliError::InvalidInput("the token contains characters that an HTTP header cannot have; check the token file".to_owned()))?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        if let Some(tag) = if_match {
            request = request.header(header::IF_MATCH, format!("\"{tag}\""));
        }
        let body = match payload {
            Payload::Empty => Bytes::new(),
            Payload::Json(json) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                json.into()
            }
            Payload::Yaml(text) => {
                request = request.header(header::CONTENT_TYPE, "application/yaml");
                text.into()
            }
        };
        Ok(request.body(Full::new(body))?)
    }

    async fn send_request(&self, request: Request<Full<Bytes>>) -> Result<Bytes> {
        let work = async {
            let response = self.response(self.http.request(request)).await?;
            let response = self.check_status(response).await?;
            response::read_body(Limited::new(response.into_body(), MAX_RESPONSE_BYTES)).await
        };
        let timed = tokio::time::timeout(self.timeout, work).await;
        timed.map_err(|_| self.timeout_error())?
    }

    async fn response(
        &self,
        work: impl Future<Output = Result<Response<Incoming>, legacy::Error>>,
    ) -> Result<Response<Incoming>> {
        let timed =
            tokio::time::timeout(self.timeout, work).await.map_err(|_| self.timeout_error())?;
        timed.map_err(|error| {
            let why = response::error_chain(&error);
            let server = &self.server;
            CliError::Unavailable(format!(
                "cannot connect to the package manager at {server}: {why}\n\
                 hint: check the address with `oprc context list`, or run `oprc check`"
            ))
            .into()
        })
    }

    fn timeout_error(&self) -> CliError {
        let seconds = self.timeout.as_secs_f64();
        CliError::Unavailable(format!(
            "{} did not respond within {seconds} s; see --request-timeout",
            self.server
        ))
    }

    async fn check_status(&self, response: Response<Incoming>) -> Result<Response<Incoming>> {
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = Limited::new(response.into_body(), response::MAX_PROBLEM_BYTES).collect();
        let body =
            tokio::time::timeout(self.timeout, body).await.map_err(|_| self.timeout_error())?;
        let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        Err(response::to_error(status, &body).into())
    }
}

/// Percent-encodes a path segment or query value.
pub(crate) fn escape(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_to_a_single_path_segment() {
        assert_eq!(escape("a-b.c_d~1"), "a-b.c_d~1");
        assert_eq!(escape("../x?y=é"), "..%2Fx%3Fy%3D%C3%A9");
    }

    #[test]
    fn rejects_invalid_server_urls() {
        for server in ["", "pm.example", "ftp://pm.example", "http://", "/api"] {
            let client = Client::new(server, None, None, Duration::from_secs(1));
            assert!(client.is_err(), "{server}");
        }
        assert!(Client::new("http://[::1]:8080/", None, None, Duration::from_secs(1)).is_ok());
    }
}
