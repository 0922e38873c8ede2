//! Client of the package manager's REST API. Every response has a timeout and a size limit.

mod events;
mod response;
mod tls;

use std::{path::Path, time::Duration};

use anyhow::{Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Method, Request, Response, Uri,
    body::Incoming,
    header::{self, HeaderValue},
    http::request,
};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use oprc_rest::Page;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Serialize, de::DeserializeOwned};

pub(crate) use self::{events::Events, response::read_body};
use crate::error::CliError;

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

impl Client {
    /// Doesn't connect yet.
    pub(crate) fn new(
        server: &str,
        token: Option<String>,
        ca: Option<&Path>,
        timeout: Duration,
    ) -> Result<Self> {
        let server = server.trim_end_matches('/').to_owned();
        let uri = server.parse::<Uri>().ok().filter(|uri| uri.host().is_some());
        if !matches!(uri.as_ref().and_then(Uri::scheme_str), Some("http" | "https")) {
            bail!(CliError::InvalidInput(format!(
                "invalid server URL {server:?}; expected a URL such as https://pm.example:8443"
            )));
        }
        let http = legacy::Client::builder(TokioExecutor::new()).build(tls::connector(ca)?);
        Ok(Self { http, server, token, timeout })
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.fetch(path, self.api_request(Method::GET, path)?, Bytes::new()).await
    }

    /// Fetches all pages of a list. `path` may have a query.
    pub(crate) async fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>> {
        let mut all = Vec::new();
        let mut cursor = String::new();
        let separator = if path.contains('?') { '&' } else { '?' };
        for _ in 0..MAX_PAGES {
            let page: Page<T> = self.get(&format!("{path}{separator}limit=200{cursor}")).await?;
            all.extend(page.items);
            match page.next {
                Some(next) => cursor = format!("&cursor={}", escape(&next)),
                None => return Ok(all),
            }
        }
        let server = &self.server;
        bail!(CliError::Failed(format!("{server} returned more than {MAX_PAGES} pages for {path}")))
    }

    /// Sends JSON.
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
        if_match: Option<&str>,
    ) -> Result<T> {
        let mut request = self.api_request(method, path)?;
        request = request.header(header::CONTENT_TYPE, "application/json");
        if let Some(tag) = if_match {
            request = request.header(header::IF_MATCH, format!("\"{tag}\""));
        }
        self.fetch(path, request, serde_json::to_vec(body)?).await
    }

    /// Like [`Self::send`], for a response whose body isn't needed.
    pub(crate) async fn send_only(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<()> {
        let request = self.api_request(method, path)?;
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let body = Bytes::from(serde_json::to_vec(body)?);
        self.read(request.body(Full::new(body))?).await.map(drop)
    }

    pub(crate) async fn send_yaml<T: DeserializeOwned>(
        &self,
        path: &str,
        text: String,
    ) -> Result<T> {
        let request = self.api_request(Method::POST, path)?;
        self.fetch(path, request.header(header::CONTENT_TYPE, "application/yaml"), text).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<()> {
        let request = self.api_request(Method::DELETE, path)?.body(Full::default())?;
        self.read(request).await.map(drop)
    }

    /// Fetches text outside of the versioned API, such as `/metrics`.
    pub(crate) async fn text(&self, path: &str) -> Result<String> {
        let request = self.request(Method::GET, path)?.body(Full::default())?;
        Ok(String::from_utf8_lossy(&self.read(request).await?).into_owned())
    }

    /// Opens the event stream, after the event with id `last` if given.
    pub(crate) async fn events(&self, last: Option<&str>) -> Result<Events> {
        let mut request = self.api_request(Method::GET, "/events")?.body(Full::default())?;
        let headers = request.headers_mut();
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(last) = last.and_then(|last| HeaderValue::from_str(last).ok()) {
            headers.insert("last-event-id", last);
        }
        let response = self.within_timeout(self.response(request)).await?;
        Ok(Events::new(response.into_body()))
    }

    /// Sends a request to another server, without the token. The caller sets a timeout.
    pub(crate) async fn send_external(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>> {
        let uri = request.uri().clone();
        self.http.request(request).await.map_err(|error| {
            let why = anyhow::Error::new(error);
            CliError::Unavailable(format!("cannot connect to {uri}: {why:#}")).into()
        })
    }

    fn api_request(&self, method: Method, path: &str) -> Result<request::Builder> {
        self.request(method, &format!("/api/v1{path}"))
    }

    fn request(&self, method: Method, path: &str) -> Result<request::Builder> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.server))
            .header(header::ACCEPT, "application/json, application/problem+json")
            .header(header::USER_AGENT, concat!("oprc/", env!("CARGO_PKG_VERSION")));
        if let Some(token) = &self.token {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| CliError::InvalidInput("the token contains characters that an HTTP header cannot have; check the token file".to_owned()))?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        Ok(request)
    }

    async fn fetch<T: DeserializeOwned>(
        &self,
        path: &str,
        request: request::Builder,
        body: impl Into<Bytes>,
    ) -> Result<T> {
        let bytes = self.read(request.body(Full::new(body.into()))?).await?;
        serde_json::from_slice(&bytes).map_err(|error| {
            let server = &self.server;
            CliError::Failed(format!(
                "unexpected response from {server}{path}: {error}; \
                 check that the URL is that of a package manager"
            ))
            .into()
        })
    }

    async fn read(&self, request: Request<Full<Bytes>>) -> Result<Bytes> {
        let work = async { read_body(self.response(request).await?.into_body()).await };
        self.within_timeout(work).await
    }

    /// Fails for a status other than success.
    async fn response(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>> {
        let response = self.http.request(request).await.map_err(|error| {
            let (server, why) = (&self.server, anyhow::Error::new(error));
            CliError::Unavailable(format!(
                "cannot connect to the package manager at {server}: {why:#}\n\
                 hint: check the address with `oprc context list`, or run `oprc check`"
            ))
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = Limited::new(response.into_body(), response::MAX_PROBLEM_BYTES).collect().await;
        let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        bail!(response::to_error(status, &body))
    }

    async fn within_timeout<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::time::timeout(self.timeout, work).await.map_err(|_| {
            let (server, seconds) = (&self.server, self.timeout.as_secs_f64());
            CliError::Unavailable(format!(
                "{server} did not respond within {seconds} s; see --request-timeout"
            ))
        })?
    }
}

/// Percent-encodes a path segment or query value.
pub(crate) fn escape(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// The path of a list with a query for the filters that are set.
pub(crate) fn filtered(path: &str, filters: &[(&str, Option<&str>)]) -> String {
    let set = filters.iter().filter_map(|(name, value)| Some((name, (*value)?)));
    let set: Vec<_> = set.map(|(name, value)| format!("{name}={}", escape(value))).collect();
    if set.is_empty() { path.to_owned() } else { format!("{path}?{}", set.join("&")) }
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
    fn escapes_filters() {
        assert_eq!(filtered("/a", &[("a", None), ("b", None)]), "/a");
        let set = [("labels", Some("team=x&y")), ("q", Some("ü"))];
        assert_eq!(filtered("/a", &set), "/a?labels=team%3Dx%26y&q=%C3%BC");
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
