//! The way to the API server: a client that counts what it asks for and knows whether it was
//! answered last.

use std::task::{Context, Poll};

use axum::http::{Request, Response};
use futures::future::BoxFuture;
use kube::{Client, Config, client::ClientBuilder};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};
use tokio::sync::watch;
use tower::{BoxError, Layer, Service};

/// Requests to the API server.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct Counted {
    /// How: GET, PATCH and so on.
    pub verb: String,
    /// What came of it: a status code, or `error`.
    pub code: String,
}

/// Whether the API server answers, and how often it was asked.
#[derive(Clone)]
pub struct Contact {
    lost: watch::Sender<bool>,
    /// Requests so far.
    pub requests: Family<Counted, Counter>,
}

impl Default for Contact {
    fn default() -> Self {
        Self { lost: watch::channel(false).0, requests: Family::default() }
    }
}

impl Contact {
    /// Tells whenever that changes.
    pub fn changes(&self) -> watch::Receiver<bool> {
        self.lost.subscribe()
    }

    /// Whether the last request wasn't answered: what is known may be out of date.
    pub fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }
}

/// A client whose requests are counted.
pub fn client(mut config: Config, contact: &Contact) -> Result<Client, kube::Error> {
    // A proxy from the environment is meant for other hosts than this cluster's.
    config.proxy_url = None;
    let layer = CountLayer(contact.clone());
    Ok(ClientBuilder::try_from(config)?.with_layer(&layer).build())
}

#[derive(Clone)]
struct CountLayer(Contact);

impl<S> Layer<S> for CountLayer {
    type Service = Count<S>;

    fn layer(&self, inner: S) -> Count<S> {
        Count { inner, contact: self.0.clone() }
    }
}

#[derive(Clone)]
struct Count<S> {
    inner: S,
    contact: Contact,
}

impl<S, B, C> Service<Request<B>> for Count<S>
where
    S: Service<Request<B>, Response = Response<C>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<C>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<C>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let verb = request.method().as_str().to_owned();
        let contact = self.contact.clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code = answer
                .as_ref()
                .map_or_else(|_| "error".to_owned(), |it| it.status().as_u16().to_string());
            // A server that can't reach its own store says so with these.
            let lost = answer.as_ref().map_or(true, |it| it.status().is_server_error());
            contact.lost.send_if_modified(|before| std::mem::replace(before, lost) != lost);
            contact.requests.get_or_create(&Counted { verb, code }).inc();
            answer
        })
    }
}
