//! A client of the package manager's REST API. Every answer has a deadline and a bound.

mod answer;
mod events;
mod tls;

use std::{fmt::Write as _, path::Path, time::Duration};

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
use serde::{Serialize, de::DeserializeOwned};

pub(crate) use self::events::Events;
use crate::failure::Failure;

/// No document of the API is larger.
const MAX_ANSWER: usize = 64 << 20;
/// More than this is no list to go through by hand.
const MAX_PAGES: usize = 10_000;

type Http = legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Speaks to one package manager.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: Http,
    server: String,
    token: Option<String>,
    limit: Duration,
}

/// What is sent along.
enum Payload {
    Nothing,
    Json(Vec<u8>),
    Yaml(String),
}

impl Client {
    /// A client; nothing is connected yet.
    pub(crate) fn new(
        server: &str,
        token: Option<String>,
        ca: Option<&Path>,
        limit: Duration,
    ) -> Result<Self> {
        let server = server.trim_end_matches('/').to_owned();
        let uri = server.parse::<Uri>().ok();
        let uri = uri.filter(|uri| uri.host().is_some());
        let scheme = uri.as_ref().and_then(Uri::scheme_str);
        if !matches!(scheme, Some("http" | "https")) {
            let told = format!("server {server:?} is no address such as https://pm.example:8443");
            return Err(Failure::Wrong(told).into());
        }
        let http = legacy::Client::builder(TokioExecutor::new()).build(tls::connector(ca)?);
        Ok(Self { http, server, token, limit })
    }

    /// Where it answers.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Reads a document.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.document(Method::GET, path, None, Payload::Nothing).await
    }

    /// Reads all pages of a list. `path` may have a query.
    pub(crate) async fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>> {
        let mut all = Vec::new();
        let mut cursor: Option<String> = None;
        let mark = if path.contains('?') { '&' } else { '?' };
        for _ in 0..MAX_PAGES {
            let next = cursor.take().map(|it| format!("&cursor={}", escape(&it)));
            let next = next.unwrap_or_default();
            let page: Page<T> = self.get(&format!("{path}{mark}limit=200{next}")).await?;
            all.extend(page.items);
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(all),
            }
        }
        Err(Failure::Failed(format!("the list {path} doesn't end")).into())
    }

    /// Sends a document.
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
        if_match: Option<&str>,
    ) -> Result<T> {
        self.document(method, path, if_match, Payload::Json(serde_json::to_vec(body)?)).await
    }

    /// Sends a document, and reads nothing of what is answered.
    pub(crate) async fn tell(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<()> {
        let payload = match body {
            Some(body) => Payload::Json(serde_json::to_vec(body)?),
            None => Payload::Nothing,
        };
        self.bytes(method, path, None, payload).await.map(drop)
    }

    /// Sends a package file.
    pub(crate) async fn send_yaml<T: DeserializeOwned>(&self, path: &str, text: &str) -> Result<T> {
        self.document(Method::POST, path, None, Payload::Yaml(text.to_owned())).await
    }

    /// Sends a package file, and reads nothing of what is answered.
    pub(crate) async fn tell_yaml(&self, path: &str, text: &str) -> Result<()> {
        let payload = Payload::Yaml(text.to_owned());
        self.bytes(Method::POST, path, None, payload).await.map(drop)
    }

    /// Removes something.
    pub(crate) async fn delete(&self, path: &str) -> Result<()> {
        self.bytes(Method::DELETE, path, None, Payload::Nothing).await.map(drop)
    }

    /// Reads a text that is outside of the versioned API, such as `/metrics`.
    pub(crate) async fn text(&self, path: &str) -> Result<String> {
        let request = self.request(Method::GET, path, None, Payload::Nothing)?;
        let bytes = self.ask(request).await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Opens the stream of events, after `last` where something was seen already.
    pub(crate) async fn events(&self, last: Option<&str>) -> Result<Events> {
        let mut request = self.request(Method::GET, "/api/v1/events", None, Payload::Nothing)?;
        let headers = request.headers_mut();
        headers.insert(header::ACCEPT, header::HeaderValue::from_static("text/event-stream"));
        if let Some(last) = last.and_then(|last| header::HeaderValue::from_str(last).ok()) {
            headers.insert("last-event-id", last);
        }
        let answer = self.within(self.http.request(request)).await?;
        let answer = self.accepted(answer).await?;
        Ok(Events::new(answer.into_body()))
    }

    /// Sends a request to somebody else, who is shown no token. The caller sees to a deadline.
    pub(crate) async fn elsewhere(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>> {
        let to = request.uri().clone();
        let answer = self.http.request(request).await;
        answer.map_err(|error| {
            let why = answer::causes(&error);
            Failure::Away(format!("nothing answers at {to}: {why}")).into()
        })
    }

    async fn document<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        if_match: Option<&str>,
        payload: Payload,
    ) -> Result<T> {
        let bytes = self.bytes(method, path, if_match, payload).await?;
        serde_json::from_slice(&bytes).map_err(|error| {
            let server = &self.server;
            Failure::Failed(format!("{server}{path} answered something else: {error}")).into()
        })
    }

    async fn bytes(
        &self,
        method: Method,
        path: &str,
        if_match: Option<&str>,
        payload: Payload,
    ) -> Result<Bytes> {
        let request = self.request(method, &format!("/api/v1{path}"), if_match, payload)?;
        self.ask(request).await
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
                .map_err(|_| Failure::Wrong("the token isn't plain text".to_owned()))?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        if let Some(tag) = if_match {
            request = request.header(header::IF_MATCH, format!("\"{tag}\""));
        }
        let body = match payload {
            Payload::Nothing => Bytes::new(),
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

    /// The body of an answer that says yes, whole and in time.
    async fn ask(&self, request: Request<Full<Bytes>>) -> Result<Bytes> {
        let work = async {
            let answer = self.within(self.http.request(request)).await?;
            let answer = self.accepted(answer).await?;
            answer::whole(Limited::new(answer.into_body(), MAX_ANSWER)).await
        };
        let timed = tokio::time::timeout(self.limit, work).await;
        timed.map_err(|_| self.late())?
    }

    async fn within(
        &self,
        work: impl Future<Output = Result<Response<Incoming>, legacy::Error>>,
    ) -> Result<Response<Incoming>> {
        let timed = tokio::time::timeout(self.limit, work).await.map_err(|_| self.late())?;
        timed.map_err(|error| {
            let why = answer::causes(&error);
            let server = &self.server;
            Failure::Away(format!(
                "no package manager answers at {server}: {why}. \
                 `oprc context list` tells which ones there are, `oprc check` what is wrong"
            ))
            .into()
        })
    }

    fn late(&self) -> Failure {
        let seconds = self.limit.as_secs_f64();
        Failure::Away(format!("{} didn't answer within {seconds} s", self.server))
    }

    async fn accepted(&self, answer: Response<Incoming>) -> Result<Response<Incoming>> {
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let body = Limited::new(answer.into_body(), answer::MAX_PROBLEM).collect();
        let body = tokio::time::timeout(self.limit, body).await.map_err(|_| self.late())?;
        let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        Err(answer::refusal(status, &body).into())
    }
}

/// Writes a text so that it can stand in a path or a query.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_anything_in_them_stay_one_segment() {
        assert_eq!(escape("a-b.c_d~1"), "a-b.c_d~1");
        assert_eq!(escape("../x?y=é"), "..%2Fx%3Fy%3D%C3%A9");
    }

    #[test]
    fn servers_that_are_no_addresses_are_refused() {
        for server in ["", "pm.example", "ftp://pm.example", "http://", "/api"] {
            let made = Client::new(server, None, None, Duration::from_secs(1));
            assert!(made.is_err(), "{server}");
        }
        assert!(Client::new("http://[::1]:8080/", None, None, Duration::from_secs(1)).is_ok());
    }
}
