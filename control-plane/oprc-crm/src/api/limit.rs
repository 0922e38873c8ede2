//! How much is asked at once: decided before the body of a call is read, and while it is.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use futures::StreamExt as _;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tonic::Status;

use crate::metrics::{Call, Metrics};

/// How long a call may take until its answer begins, its body being sent included. A call's own
/// deadline ends before that.
const BEGIN: Duration = Duration::from_secs(35);
/// How many bytes the bodies of all calls may have that are worked on at once: what is made of them
/// takes several times as much.
const BYTES: usize = 32 << 20;

/// What calls are limited by.
#[derive(Clone)]
pub(super) struct Limit {
    calls: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    metrics: Arc<Metrics>,
}

impl Limit {
    /// So many at once.
    pub(super) fn new(calls: usize, metrics: Arc<Metrics>) -> Self {
        let bytes = Arc::new(Semaphore::new(BYTES));
        Self { calls: Arc::new(Semaphore::new(calls)), bytes, metrics }
    }

    fn refuse(&self, status: Status) -> Response {
        let code = format!("{:?}", status.code());
        self.metrics.calls.get_or_create(&Call { method: "any".to_owned(), code }).inc();
        status.into_http::<Body>()
    }
}

/// What a call holds of the bytes that there may be, until its answer begins.
struct Held {
    bytes: Arc<Semaphore>,
    own: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Held {
    fn none_of(bytes: &Arc<Semaphore>) -> Arc<Self> {
        Arc::new(Self { bytes: Arc::clone(bytes), own: Mutex::default() })
    }

    /// Nobody waits here: all might wait for each other.
    fn take(&self, part: &Bytes) -> Result<(), Status> {
        let full = |_| Status::resource_exhausted("too much is asked at once; try again later");
        let size = u32::try_from(part.len()).unwrap_or(u32::MAX);
        let more = Arc::clone(&self.bytes).try_acquire_many_owned(size).map_err(full)?;
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *own {
            Some(own) => own.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }

    /// A body whose bytes are counted as they come. Those of a stream that goes on after its answer
    /// has begun are worked on one message at a time.
    fn counted(self: &Arc<Self>, body: Body) -> Body {
        let held = Arc::downgrade(self);
        Body::from_stream(body.into_data_stream().map(move |part| {
            let part = part.map_err(axum::BoxError::from)?;
            if let Some(held) = held.upgrade() {
                held.take(&part)?;
            }
            Ok::<_, axum::BoxError>(part)
        }))
    }
}

/// Lets so many calls be read and answered at once, for [`axum::middleware::from_fn_with_state`].
pub(super) async fn limit(State(limit): State<Limit>, request: Request, next: Next) -> Response {
    let Ok(_permit) = limit.calls.try_acquire() else {
        let message = "too many calls at once; try again later";
        return limit.refuse(Status::resource_exhausted(message));
    };
    let held = Held::none_of(&limit.bytes);
    let request = request.map(|body| held.counted(body));
    match timeout(BEGIN, next.run(request)).await {
        Ok(answer) => answer,
        Err(_) => limit.refuse(Status::deadline_exceeded("the call wasn't sent in time")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bytes_are_held_until_a_call_ends() {
        let bytes = Arc::new(Semaphore::new(10));
        let read = async |held: &Arc<Held>, text: &'static str| {
            axum::body::to_bytes(held.counted(Body::from(text)), usize::MAX).await
        };
        let first = Held::none_of(&bytes);
        assert_eq!(read(&first, "seven b").await.unwrap(), "seven b");
        assert_eq!(bytes.available_permits(), 3, "its body was read, and it isn't answered");
        let second = Held::none_of(&bytes);
        let error = read(&second, "four").await.unwrap_err();
        let status = Status::from_error(error.into());
        assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status}");
        drop((first, second));
        assert_eq!(bytes.available_permits(), 10);
    }
}
