//! A client layer that blocks at a chosen write, and counts writes.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::http::{Method, Request, Response};
use futures::{FutureExt as _, future::BoxFuture};
use kube::client::{Body, ClientBuilder};
use oprc_crm::cache::ApiHealth;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tower::{BoxError, Layer, Service};

use crate::{
    TestNamespace,
    crm::{Crm, Options, kube_config},
};

/// After this time without a write CRM is idle.
const QUIET: Duration = Duration::from_millis(1500);

/// Which writes count, by their bodies.
type Counts = Arc<dyn Fn(&Value) -> bool + Send + Sync>;

/// Forwards writes up to a chosen one, and none after it.
#[derive(Clone)]
pub struct WriteCutoff {
    /// Counted from 1.
    at: u64,
    counts: Counts,
    /// Whether that write is executed; its response is lost either way.
    carried_out: bool,
    writes: watch::Sender<u64>,
    reached: Arc<Notify>,
}

impl WriteCutoff {
    pub fn at(write: u64, carried_out: bool) -> Self {
        let (writes, _) = watch::channel(0);
        let counts = Arc::new(|_: &Value| true);
        Self { at: write, counts, carried_out, writes, reached: Arc::default() }
    }

    /// At the first write with such a body.
    pub fn at_first(
        counts: impl Fn(&Value) -> bool + Send + Sync + 'static,
        carried_out: bool,
    ) -> Self {
        Self { counts: Arc::new(counts), ..Self::at(1, carried_out) }
    }

    pub fn never() -> Self {
        Self::at(u64::MAX, true)
    }

    /// Starts a CRM with this layer.
    pub async fn start(&self, ns: &TestNamespace, options: &Options) -> Crm {
        let config = kube_config(ns, options).await;
        let client = ClientBuilder::try_from(config).unwrap().with_layer(self).build();
        Crm::with_client(ns, options, client, ApiHealth::default()).await
    }

    pub fn writes(&self) -> u64 {
        *self.writes.borrow()
    }

    pub async fn reached(&self) {
        self.reached.notified().await;
    }

    /// Waits until there are no more writes.
    pub async fn quiet(&self) {
        let mut writes = self.writes.subscribe();
        while tokio::time::timeout(QUIET, writes.changed()).await.is_ok() {}
    }
}

/// The JSON of a body that isn't streamed, otherwise null.
fn content(body: &Body) -> Value {
    let bytes = body.try_clone().and_then(|body| body.collect_bytes().now_or_never());
    let bytes = bytes.and_then(Result::ok).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

#[derive(Clone)]
pub struct CutoffService<S> {
    inner: S,
    cut: WriteCutoff,
}

impl<S> Layer<S> for WriteCutoff {
    type Service = CutoffService<S>;

    fn layer(&self, inner: S) -> CutoffService<S> {
        CutoffService { inner, cut: self.clone() }
    }
}

impl<S, C> Service<Request<Body>> for CutoffService<S>
where
    S: Service<Request<Body>, Response = Response<C>, Error = BoxError>,
    S::Future: Send + 'static,
    C: Send + 'static,
{
    type Response = Response<C>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<C>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if request.method() == Method::GET {
            return Box::pin(self.inner.call(request));
        }
        let cut = self.cut.clone();
        let counts = (cut.counts)(&content(request.body()));
        let (mut before, mut number) = (0, 0);
        cut.writes.send_modify(|writes| {
            before = *writes;
            *writes += u64::from(counts);
            number = *writes;
        });
        if before >= cut.at || (number == cut.at && !cut.carried_out) {
            cut.reached.notify_one();
            return Box::pin(std::future::pending());
        }
        let response = self.inner.call(request);
        Box::pin(async move {
            let response = response.await;
            if number == cut.at {
                cut.reached.notify_one();
                std::future::pending::<()>().await;
            }
            response
        })
    }
}
