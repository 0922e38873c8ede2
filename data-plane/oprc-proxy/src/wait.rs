//! `oprc-proxy wait`: waits until a gRPC server reports that it is serving.

use std::{fmt, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Method, Request, StatusCode, Version,
    client::conn::http2,
    header::{CONTENT_TYPE, HeaderValue, TE},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    net::TcpStream,
    time::{Instant, sleep, timeout, timeout_at},
};

use crate::grpc;

const USAGE: &str = "usage: oprc-proxy wait HOST:PORT [--timeout SECONDS]";
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(10);
const MAX_TIMEOUT_SECONDS: u64 = 24 * 60 * 60;
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(1);
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
const MAX_RESPONSE_SIZE: usize = 64 << 10;
/// `HealthCheckResponse { status: SERVING }`
const SERVING: [u8; 2] = [8, 1];

#[derive(Debug, PartialEq, Eq)]
pub struct WaitOptions {
    target: String,
    timeout: Duration,
}

impl WaitOptions {
    /// From the arguments after `wait`.
    pub fn parse(arguments: &[String]) -> Result<Self, String> {
        let (target, timeout) = match arguments {
            [target] => (target, DEFAULT_TIMEOUT),
            [target, option, seconds] if option == "--timeout" => (target, parse_timeout(seconds)?),
            _ => return Err(USAGE.to_owned()),
        };
        let port = target.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        if port.is_none_or(|(_, port)| !port.parse().is_ok_and(|port: u16| port > 0)) {
            return Err(format!("{target}: must be HOST:PORT; {USAGE}"));
        }
        Ok(Self { target: target.clone(), timeout })
    }
}

fn parse_timeout(seconds: &str) -> Result<Duration, String> {
    match seconds.parse() {
        Ok(number @ 1..=MAX_TIMEOUT_SECONDS) => Ok(Duration::from_secs(number)),
        _ => Err(format!("--timeout {seconds}: must be a number from 1 to {MAX_TIMEOUT_SECONDS}")),
    }
}

/// Returns when the server is serving, or has no health service. Fails after the timeout.
pub async fn wait(options: &WaitOptions) -> Result<(), String> {
    let WaitOptions { target, timeout } = options;
    println!("oprc-proxy: waiting for {target}");
    let started = Instant::now();
    let deadline = started + *timeout;
    let mut last_report = started;
    let mut delay = FIRST_DELAY;
    loop {
        let reason = match check(target).await {
            Ok(()) => {
                println!("oprc-proxy: {target} is ready after {} s", started.elapsed().as_secs());
                return Ok(());
            }
            Err(reason) => reason,
        };
        if last_report.elapsed() >= REPORT_INTERVAL {
            println!("oprc-proxy: still waiting for {target}: {reason}");
            last_report = Instant::now();
        }
        if timeout_at(deadline, sleep(delay)).await.is_err() {
            let seconds = timeout.as_secs();
            return Err(format!("{target} is not ready after {seconds} s: {reason}"));
        }
        delay = MAX_DELAY.min(delay * 5 / 4);
    }
}

#[derive(Debug)]
enum NotReady {
    TimedOut,
    Connect(std::io::Error),
    Http(hyper::Error),
    Status(StatusCode),
    GrpcStatus(u16),
    NotServing,
    InvalidResponse,
}

impl fmt::Display for NotReady {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => {
                write!(formatter, "no response within {} s", ATTEMPT_TIMEOUT.as_secs())
            }
            Self::Connect(error) => write!(formatter, "cannot connect: {error}"),
            Self::Http(error) => write!(formatter, "health check failed: {error}"),
            Self::Status(status) => write!(formatter, "health check failed: HTTP status {status}"),
            Self::GrpcStatus(status) => {
                write!(formatter, "health check failed: gRPC status {status}")
            }
            Self::NotServing => formatter.write_str("the server is not serving yet"),
            Self::InvalidResponse => {
                formatter.write_str("the health check has an invalid response")
            }
        }
    }
}

async fn check(target: &str) -> Result<(), NotReady> {
    timeout(ATTEMPT_TIMEOUT, call_health_service(target)).await.unwrap_or(Err(NotReady::TimedOut))
}

async fn call_health_service(target: &str) -> Result<(), NotReady> {
    let stream = TcpStream::connect(target).await.map_err(NotReady::Connect)?;
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(NotReady::Http)?;
    // Its errors are reported to the call on it.
    tokio::spawn(async { _ = connection.await });
    let request = health_request(target).map_err(|_| NotReady::InvalidResponse)?;
    let response = sender.send_request(request).await.map_err(NotReady::Http)?;
    if response.status() != StatusCode::OK {
        return Err(NotReady::Status(response.status()));
    }
    let status = grpc::status(response.headers());
    let body = Limited::new(response.into_body(), MAX_RESPONSE_SIZE);
    let body = body.collect().await.map_err(|_| NotReady::InvalidResponse)?;
    let status = status.or_else(|| body.trailers().and_then(grpc::status));
    evaluate(status, &body.to_bytes())
}

fn health_request(target: &str) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
    Request::builder()
        .method(Method::POST)
        .version(Version::HTTP_2)
        .uri(format!("http://{target}/grpc.health.v1.Health/Check"))
        .header(CONTENT_TYPE, HeaderValue::from_static(grpc::MEDIA_TYPE))
        .header(TE, HeaderValue::from_static("trailers"))
        .body(Full::new(Bytes::from_static(&grpc::EMPTY_MESSAGE)))
}

fn evaluate(status: Option<u16>, body: &[u8]) -> Result<(), NotReady> {
    match status {
        // The server runs, but has no health service.
        Some(grpc::UNIMPLEMENTED) => Ok(()),
        Some(grpc::OK) => match grpc::first_message(body) {
            Some(message) if message == SERVING => Ok(()),
            Some(_) => Err(NotReady::NotServing),
            None => Err(NotReady::InvalidResponse),
        },
        Some(status) => Err(NotReady::GrpcStatus(status)),
        None => Err(NotReady::InvalidResponse),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<WaitOptions, String> {
        let arguments: Vec<_> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        WaitOptions::parse(&arguments)
    }

    #[test]
    fn parses_its_arguments() {
        let options = parse(&["grid:50051", "--timeout", "5"]).unwrap();
        assert_eq!(options.target, "grid:50051");
        assert_eq!(options.timeout, Duration::from_secs(5));
        assert_eq!(parse(&["grid:50051"]).unwrap().timeout, DEFAULT_TIMEOUT);
        assert!(parse(&["grid"]).unwrap_err().contains("must be HOST:PORT"));
        assert!(parse(&["grid:0"]).unwrap_err().contains("must be HOST:PORT"));
        assert!(parse(&["grid:1", "--timeout", "0"]).unwrap_err().contains("--timeout 0"));
        assert!(parse(&[]).unwrap_err().contains("usage"));
    }

    #[test]
    fn serving_and_unimplemented_are_ready() {
        let serving = [0, 0, 0, 0, 2, 8, 1];
        let not_serving = [0, 0, 0, 0, 2, 8, 2];
        assert!(evaluate(Some(0), &serving).is_ok());
        assert!(evaluate(Some(12), &[]).is_ok());
        assert!(matches!(evaluate(Some(0), &not_serving), Err(NotReady::NotServing)));
        // The default value of an enum is not encoded: UNKNOWN.
        assert!(matches!(evaluate(Some(0), &[0; 5]), Err(NotReady::NotServing)));
        assert!(matches!(evaluate(Some(14), &[]), Err(NotReady::GrpcStatus(14))));
        assert!(matches!(evaluate(None, &serving), Err(NotReady::InvalidResponse)));
    }
}
