//! A client layer that blocks at a chosen write, and counts writes.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::http::{Method, Request, Response};
use futures::future::BoxFuture;
use kube::client::ClientBuilder;
use oprc_crm::cache::ApiHealth;
use oprc_tests::{
    TestNamespace,
    crm::{Crm, Options, kube_config},
};
use tokio::sync::{Notify, watch};
use tower::{BoxError, Layer, Service};

/// After this time without a write CRM is idle.
const QUIET: Duration = Duration::from_millis(1500);

/// Forwards writes up to a chosen one, and none after it.
#[derive(Clone)]
pub(crate) struct WriteCutoff {
    /// Counted from 1.
    at: u64,
    /// Whether that write is executed; its response is lost either way.
    carried_out: bool,
    writes: watch::Sender<u64>,
    reached: Arc<Notify>,
}

impl WriteCutoff {
    pub(crate) fn at(write: u64, carried_out: bool) -> Self {
        let (writes, _) = watch::channel(0);
        Self { at: write, carried_out, writes, reached: Arc::default() }
    }

    pub(crate) fn never() -> Self {
        Self::at(u64::MAX, true)
    }

    /// Starts a CRM with this layer.
    pub(crate) async fn start(&self, ns: &TestNamespace, options: &Options) -> Crm {
        let config = kube_config(ns, options).await;
        let client = ClientBuilder::try_from(config).unwrap().with_layer(self).build();
        Crm::with_client(ns, options, client, ApiHealth::default()).await
    }

    pub(crate) fn writes(&self) -> u64 {
        *self.writes.borrow()
    }

    pub(crate) async fn reached(&self) {
        self.reached.notified().await;
    }

    /// Waits until there are no more writes.
    pub(crate) async fn quiet(&self) {
        let mut writes = self.writes.subscribe();
        while tokio::time::timeout(QUIET, writes.changed()).await.is_ok() {}
    }
}

#[derive(Clone)]
pub(crate) struct CutoffService<S> {
    inner: S,
    cut: WriteCutoff,
}

impl<S> Layer<S> for WriteCutoff {
    type Service = CutoffService<S>;

    fn layer(&self, inner: S) -> CutoffService<S> {
        CutoffService { inner, cut: self.clone() }
    }
}

impl<S, B, C> Service<Request<B>> for CutoffService<S>
where
    S: Service<Request<B>, Response = Response<C>, Error = BoxError>,
    S::Future: Send + 'static,
    C: Send + 'static,
{
    type Response = Response<C>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<C>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut number = 0;
        if request.method() != Method::GET {
            self.cut.writes.send_modify(|writes| {
                *writes += 1;
                number = *writes;
            });
        }
        let cut = self.cut.clone();
        if number > cut.at || (number == cut.at && !cut.carried_out) {
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
