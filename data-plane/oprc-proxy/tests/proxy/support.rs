//! A function, a proxy in front of it, and clients, all on loopback.

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::{
    HeaderMap, Request, Response, StatusCode,
    body::{Body, Frame, Incoming},
    client::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use oprc_proxy::{Config, Proxy};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Fails a test that hangs.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("the test takes too long")
}

/// A body whose frames the test sends. It ends when the sender is dropped.
#[derive(Debug)]
pub(crate) struct TestBody(mpsc::Receiver<Frame<Bytes>>);

pub(crate) type BodySender = mpsc::Sender<Frame<Bytes>>;

pub(crate) fn channel() -> (BodySender, TestBody) {
    let (sender, receiver) = mpsc::channel(1);
    (sender, TestBody(receiver))
}

impl From<&'static str> for TestBody {
    fn from(text: &'static str) -> Self {
        let (sender, body) = channel();
        if !text.is_empty() {
            sender.try_send(Frame::data(Bytes::from_static(text.as_bytes()))).unwrap();
        }
        body
    }
}

impl Body for TestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|frame| frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_closed() && self.0.is_empty()
    }
}

/// A request that arrived in the function, which the test answers.
pub(crate) struct Arrived {
    pub(crate) request: Request<Incoming>,
    respond: oneshot::Sender<Response<TestBody>>,
}

impl Arrived {
    /// Fails if the call was canceled.
    pub(crate) fn respond(self, response: Response<TestBody>) -> Result<(), Response<TestBody>> {
        self.respond.send(response)
    }

    pub(crate) fn ok(self) {
        assert!(self.respond(Response::new("ok".into())).is_ok(), "the call was canceled");
    }

    /// Responds before the body of the request has been read.
    pub(crate) fn respond_early(self, response: Response<TestBody>) -> Request<Incoming> {
        assert!(self.respond.send(response).is_ok(), "the call was canceled");
        self.request
    }

    /// Returns when the proxy has canceled the call.
    pub(crate) async fn canceled(mut self) {
        self.respond.closed().await;
    }
}

pub(crate) struct Function {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    arrivals: mpsc::UnboundedReceiver<Arrived>,
    accepting: JoinHandle<()>,
}

impl Function {
    pub(crate) async fn start() -> Self {
        Self::start_on(0).await
    }

    pub(crate) async fn start_on(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (arrived, arrivals) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        let accepting = tokio::spawn(async move {
            // Connections are closed when this task is aborted.
            let mut serving = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                counter.fetch_add(1, Ordering::Relaxed);
                serving.spawn(serve(stream, arrived.clone()));
            }
        });
        Self { address, connections, arrivals, accepting }
    }

    pub(crate) async fn next(&mut self) -> Arrived {
        within(self.arrivals.recv()).await.unwrap()
    }

    /// Whether requests have arrived that the test has not taken yet.
    pub(crate) fn has_arrivals(&self) -> bool {
        !self.arrivals.is_empty()
    }

    /// Closes the listener and all connections.
    pub(crate) async fn stop(self) {
        self.accepting.abort();
        assert!(self.accepting.await.unwrap_err().is_cancelled());
    }

    /// Answers all further requests at once.
    pub(crate) fn answer(
        mut self,
        respond: impl Fn(&Request<Incoming>) -> Response<TestBody> + Send + 'static,
    ) {
        tokio::spawn(async move {
            while let Some(arrived) = self.arrivals.recv().await {
                let response = respond(&arrived.request);
                // The client may have gone away.
                _ = arrived.respond(response);
            }
        });
    }
}

async fn serve(stream: TcpStream, arrived: mpsc::UnboundedSender<Arrived>) {
    let service = service_fn(move |request| {
        let arrived = arrived.clone();
        async move {
            let (respond, response) = oneshot::channel();
            arrived.send(Arrived { request, respond }).map_err(|_| "the test has ended")?;
            response.await.map_err(|_| "the test did not answer")
        }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    // Errors show at the client.
    _ = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
}

pub(crate) struct TestProxy {
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    shutdown: Option<oneshot::Sender<()>>,
    pub(crate) running: JoinHandle<()>,
}

impl TestProxy {
    pub(crate) async fn start(app_port: u16, configure: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(app_port);
        config.port = 0;
        config.admin_port = 0;
        config.lame_duck = Duration::ZERO;
        configure(&mut config);
        let proxy = Proxy::bind(config).await.unwrap();
        let (address, admin) = (proxy.address().unwrap(), proxy.admin_address().unwrap());
        let (shutdown, stopped) = oneshot::channel();
        let running = tokio::spawn(proxy.run(async { _ = stopped.await }));
        Self { address, admin, shutdown: Some(shutdown), running }
    }

    pub(crate) fn shut_down(&mut self) {
        self.shutdown.take().unwrap().send(()).unwrap();
    }

    /// A GET request on a connection of its own.
    pub(crate) async fn get(&self, path: &'static str) -> Collected {
        get(self.address, path).await
    }

    pub(crate) fn spawn_get(&self, path: &'static str) -> JoinHandle<Collected> {
        tokio::spawn(get(self.address, path))
    }

    pub(crate) async fn metrics(&self) -> String {
        get(self.admin, "/metrics").await.text()
    }

    /// `series` is a name with its labels, as in the text format.
    pub(crate) async fn metric(&self, series: &str) -> usize {
        let text = self.metrics().await;
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {series} in {text}")).parse().unwrap()
    }

    pub(crate) async fn outcome(&self, outcome: &str) -> usize {
        self.metric(&format!("oprc_proxy_requests_total{{outcome=\"{outcome}\"}}")).await
    }

    /// Reads a metric until it has the value; it can't be watched.
    pub(crate) async fn until_metric(&self, series: &str, value: usize) {
        within(async { while self.metric(series).await != value {} }).await;
    }
}

#[derive(Debug)]
pub(crate) struct Collected {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Collected {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    /// From the headers or the trailers.
    pub(crate) fn grpc_status(&self) -> &str {
        let headers = self.trailers.as_ref().unwrap_or(&self.headers);
        headers["grpc-status"].to_str().unwrap()
    }
}

pub(crate) async fn collect(response: Response<Incoming>) -> Collected {
    let (head, body) = response.into_parts();
    let body = within(body.collect()).await.unwrap();
    let trailers = body.trailers().cloned();
    Collected { status: head.status, headers: head.headers, body: body.to_bytes(), trailers }
}

pub(crate) async fn get(address: SocketAddr, path: &'static str) -> Collected {
    let mut client = http1_client(address).await;
    collect(within(client.send_request(request(path))).await.unwrap()).await
}

pub(crate) fn request(path: &'static str) -> Request<TestBody> {
    let request = Request::builder().uri(path).header("host", "hello.example");
    request.body("".into()).unwrap()
}

pub(crate) fn grpc_request(body: TestBody) -> Request<TestBody> {
    Request::builder()
        .method("POST")
        .uri("http://hello.example/greeter/Hello")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body)
        .unwrap()
}

pub(crate) async fn http1_client(address: SocketAddr) -> http1::SendRequest<TestBody> {
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (client, connection) = http1::handshake(stream).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    client
}

/// The task ends when the connection is closed.
pub(crate) async fn http2_client(
    address: SocketAddr,
) -> (http2::SendRequest<TestBody>, JoinHandle<hyper::Result<()>>) {
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (client, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    (client, tokio::spawn(connection))
}

pub(crate) async fn grpc_call(address: SocketAddr) -> Collected {
    let (mut client, _) = http2_client(address).await;
    collect(within(client.send_request(grpc_request("".into()))).await.unwrap()).await
}
