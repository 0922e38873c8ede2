//! A minimal HTTP client.

use std::time::Duration;

use axum::http::Uri;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_RESPONSE_SIZE: u64 = 1 << 20;

/// Prints the body of the response; fails unless its status is 200.
pub(crate) async fn get(url: &str) -> Result<(), String> {
    let uri: Uri = url.parse().map_err(|error| format!("{url}: {error}"))?;
    let host = uri.host().filter(|_| uri.scheme_str() == Some("http"));
    let host = host.ok_or_else(|| format!("{url}: not an http:// URL"))?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let exchange = async {
        let mut stream = TcpStream::connect((host, uri.port_u16().unwrap_or(80))).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut response = String::new();
        stream.take(MAX_RESPONSE_SIZE).read_to_string(&mut response).await?;
        Ok::<_, std::io::Error>(response)
    };
    let response =
        timeout(REQUEST_TIMEOUT, exchange).await.map_err(|_| format!("{url}: no response"))?;
    let response = response.map_err(|error| format!("{url}: {error}"))?;
    let (head, body) =
        response.split_once("\r\n\r\n").ok_or_else(|| format!("{url}: not an HTTP response"))?;
    print!("{body}");
    match head.split_whitespace().nth(1) {
        Some("200") => Ok(()),
        status => Err(format!("{url}: status {}", status.unwrap_or("missing"))),
    }
}
