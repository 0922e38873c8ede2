//! How much is asked at once: decided before the body of a call is read.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use tokio::{sync::Semaphore, time::timeout};
use tonic::Status;

use crate::metrics::{Call, Metrics};

/// How long a call may take until its answer begins, its body being sent included. A call's own
/// deadline ends before that.
const BEGIN: Duration = Duration::from_secs(35);

/// What calls are limited by.
#[derive(Clone)]
pub(super) struct Limit {
    calls: Arc<Semaphore>,
    metrics: Arc<Metrics>,
}

impl Limit {
    /// So many at once.
    pub(super) fn new(calls: usize, metrics: Arc<Metrics>) -> Self {
        Self { calls: Arc::new(Semaphore::new(calls)), metrics }
    }

    fn refuse(&self, status: Status) -> Response {
        let code = format!("{:?}", status.code());
        self.metrics.calls.get_or_create(&Call { method: "any".to_owned(), code }).inc();
        status.into_http::<Body>()
    }
}

/// Lets so many calls be read and answered at once, for [`axum::middleware::from_fn_with_state`].
pub(super) async fn limit(State(limit): State<Limit>, request: Request, next: Next) -> Response {
    let Ok(_permit) = limit.calls.try_acquire() else {
        let message = "too many calls at once; try again later";
        return limit.refuse(Status::resource_exhausted(message));
    };
    match timeout(BEGIN, next.run(request)).await {
        Ok(answer) => answer,
        Err(_) => limit.refuse(Status::deadline_exceeded("the call wasn't sent in time")),
    }
}
