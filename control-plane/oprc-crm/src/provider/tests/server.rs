//! A server that lies on purpose, which Prometheus can't be made to do. It speaks HTTP/1.1 on a plain
//! socket, so that it can also break the protocol.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Status and body.
    Body(u16, String),
    /// As above, after some time.
    Slow(Duration, String),
    /// Announces more bytes than it sends, and closes the connection.
    Truncated(String),
    /// Sends this many bytes of JSON, without a length.
    Stream(usize),
    /// Announces this many bytes, and sends none.
    Announced(usize),
    Reset,
    /// Answers health checks as Prometheus does, and other queries with this body.
    Healthy(String),
}

pub(crate) struct LyingServer {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    /// The last one is repeated.
    replies: Mutex<VecDeque<Reply>>,
    /// Head and body of each request.
    requests: Mutex<Vec<(String, String)>>,
    sent: AtomicUsize,
}

impl LyingServer {
    pub(crate) async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::start_with(replies, None).await
    }

    pub(crate) async fn start_with(
        replies: impl IntoIterator<Item = Reply>,
        tls: Option<Arc<ServerConfig>>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        shared.replies.lock().extend(replies);
        let serving = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (shared, tls) = (Arc::clone(&serving), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => shared.serve(stream).await,
                        Some(config) => match TlsAcceptor::from(config).accept(stream).await {
                            Ok(stream) => shared.serve(stream).await,
                            Err(_) => None,
                        },
                    }
                });
            }
        });
        Self { address, shared, task }
    }

    pub(crate) fn reply(&self, replies: impl IntoIterator<Item = Reply>) {
        *self.shared.replies.lock() = replies.into_iter().collect();
    }

    pub(crate) fn requests(&self) -> Vec<(String, String)> {
        self.shared.requests.lock().clone()
    }

    /// Bytes of bodies without a length that the client has taken.
    pub(crate) fn sent(&self) -> usize {
        self.shared.sent.load(Ordering::SeqCst)
    }
}

impl Drop for LyingServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

trait Socket: AsyncRead + AsyncWrite + Send + Unpin {
    /// Makes closing send a reset.
    fn reset(self);
}

impl Socket for TcpStream {
    fn reset(self) {
        self.set_zero_linger().unwrap();
    }
}

impl Socket for tokio_rustls::server::TlsStream<TcpStream> {
    fn reset(self) {
        self.get_ref().0.set_zero_linger().unwrap();
    }
}

impl Shared {
    /// One request for each connection. None if the client has closed it.
    async fn serve(&self, mut socket: impl Socket) -> Option<()> {
        let request = read_request(&mut socket).await?;
        self.requests.lock().push(request.clone());
        let reply = {
            let mut replies = self.replies.lock();
            if replies.len() > 1 { replies.pop_front() } else { replies.front().cloned() }
        };
        match reply.unwrap() {
            Reply::Body(status, body) => write(&mut socket, status, body.len(), &body).await,
            Reply::Healthy(body) => {
                let body = if request.0.contains("/query_range") { body } else { one(&request.1) };
                write(&mut socket, 200, body.len(), &body).await
            }
            Reply::Slow(delay, body) => {
                tokio::time::sleep(delay).await;
                write(&mut socket, 200, body.len(), &body).await
            }
            Reply::Truncated(body) => write(&mut socket, 200, body.len() + 1000, &body).await,
            Reply::Announced(bytes) => {
                write(&mut socket, 200, bytes, "").await;
                std::future::pending().await
            }
            Reply::Stream(bytes) => self.stream(&mut socket, bytes).await,
            Reply::Reset => {
                socket.reset();
                Some(())
            }
        }
    }

    async fn stream(&self, socket: &mut impl Socket, bytes: usize) -> Option<()> {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
        socket.write_all(head.as_bytes()).await.ok()?;
        let start = br#"{"status":"success","data":{"resultType":"matrix","result":["#;
        socket.write_all(start).await.ok()?;
        let points = r#"[1,"1"],"#.repeat(1000);
        for number in 0_u64.. {
            if self.sent.load(Ordering::SeqCst) >= bytes {
                break;
            }
            let series =
                format!(r#"{{"metric":{{"pod":"{number}"}},"other":[{points}0],"values":[]}},"#);
            socket.write_all(series.as_bytes()).await.ok()?;
            self.sent.fetch_add(series.len(), Ordering::SeqCst);
        }
        socket.shutdown().await.ok()
    }
}

/// The answer to `vector(1)`.
fn one(form: &str) -> String {
    let time = form.split('&').find_map(|it| it.strip_prefix("time=")).unwrap();
    format!(
        r#"{{"status":"success","data":{{"resultType":"vector","result":[
            {{"metric":{{}},"value":[{time},"1"]}}]}}}}"#
    )
}

async fn read_request(socket: &mut impl Socket) -> Option<(String, String)> {
    let mut received = Vec::new();
    loop {
        if socket.read_buf(&mut received).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8(received.clone()).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
            return Some((head.to_owned(), body.to_owned()));
        }
    }
}

async fn write(socket: &mut impl Socket, status: u16, length: usize, body: &str) -> Option<()> {
    let head =
        format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    socket.write_all(format!("{head}{body}").as_bytes()).await.ok()?;
    socket.flush().await.ok()
}
