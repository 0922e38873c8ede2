//! HTTP requests from this machine.

use std::{fmt::Write as _, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::{Request, StatusCode};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(70);

/// A client with a connection pool.
pub type Client = legacy::Client<HttpConnector, Empty<Bytes>>;

pub fn client() -> Client {
    legacy::Client::builder(TokioExecutor::new()).build_http()
}

/// A client that closes connections after this idle time.
pub fn client_with_idle_timeout(idle_timeout: Duration) -> Client {
    legacy::Client::builder(TokioExecutor::new()).pool_idle_timeout(idle_timeout).build_http()
}

/// Status and body of a GET on a new connection, with another Host header if one is given.
pub async fn get(url: &str, host: Option<&str>) -> Result<(StatusCode, String), String> {
    get_by(&client(), url, host).await
}

/// Like [`get`], with a client that may reuse a connection.
pub async fn get_by(
    client: &Client,
    url: &str,
    host: Option<&str>,
) -> Result<(StatusCode, String), String> {
    let mut request = Request::get(url);
    if let Some(host) = host {
        request = request.header(hyper::header::HOST, host);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
    let exchange = async {
        let response = client.request(request).await.map_err(|error| format!("{url}: {error}"))?;
        let status = response.status();
        let body =
            response.into_body().collect().await.map_err(|error| format!("{url}: {error}"))?;
        Ok((status, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
    };
    tokio::time::timeout(REQUEST_TIMEOUT, exchange)
        .await
        .map_err(|_| format!("{url}: no response"))?
}

/// The body of a GET that must succeed.
pub async fn get_ok(url: &str) -> Result<String, String> {
    match get(url, None).await? {
        (StatusCode::OK, body) => Ok(body),
        (status, body) => Err(format!("{url}: {status}: {body}")),
    }
}

/// The series of a PromQL expression, with labels and value.
pub async fn series(prometheus: &str, expression: &str) -> Result<Vec<(Value, f64)>, String> {
    let mut encoded = String::new();
    for byte in expression.bytes() {
        write!(encoded, "%{byte:02X}").unwrap();
    }
    let body = get_ok(&format!("{prometheus}/api/v1/query?query={encoded}")).await?;
    let response: Value = serde_json::from_str(&body).map_err(|error| error.to_string())?;
    let found =
        response.pointer("/data/result").and_then(Value::as_array).cloned().unwrap_or_default();
    let read = |series: Value| {
        let value = series.pointer("/value/1")?.as_str()?.parse().ok()?;
        Some((series.get("metric")?.clone(), value))
    };
    let found: Vec<_> = found.into_iter().filter_map(read).collect();
    if found.is_empty() { Err(format!("no series for {expression}")) } else { Ok(found) }
}
