//! How much is asked at once: decided before the body of a call is read, and while it is.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use futures::StreamExt as _;
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tonic::{Code, Status};

use super::status::too_large;
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
        let mut own = self.own.lock();
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
        Ok(answer) if is_out_of_range(&answer) => limit.refuse(too_large()),
        Ok(answer) => answer,
        Err(_) => limit.refuse(Status::deadline_exceeded("the call wasn't sent in time")),
    }
}

/// Whether a call was refused with a code that none of ours has: tonic says so of a message that is
/// larger than it may be, where gRPC's own word is another.
fn is_out_of_range(answer: &Response) -> bool {
    let status = Status::from_header_map(answer.headers());
    status.is_some_and(|status| status.code() == Code::OutOfRange)
}

#[cfg(test)]
mod tests {
    use axum::{Router, middleware::from_fn_with_state, routing::post};
    use tokio::sync::Notify;
    use tonic::service::Routes;
    use tonic_types::StatusExt as _;
    use tower::ServiceExt as _;

    use super::*;
    use crate::cluster::Contact;

    /// Asks for something, and gives the status where there is one in the head of the answer.
    async fn ask(router: Router, path: &str, body: Vec<u8>) -> Option<Status> {
        let request = Request::post(path).header("content-type", "application/grpc");
        let answer = router.oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
        Status::from_header_map(answer.headers())
    }

    fn limited(router: Router, calls: usize) -> (Router, Arc<Metrics>) {
        let metrics = Arc::new(Metrics::new(&Contact::default()));
        let limits = Limit::new(calls, Arc::clone(&metrics));
        (router.layer(from_fn_with_state(limits, limit)), metrics)
    }

    fn refused(metrics: &Metrics) -> u64 {
        let call = Call { method: "any".to_owned(), code: "ResourceExhausted".to_owned() };
        metrics.calls.get_or_create(&call).get()
    }

    #[tokio::test]
    async fn a_call_too_many_is_refused_at_once_and_taken_later() {
        let (begun, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let wait = {
            let (begun, end) = (Arc::clone(&begun), Arc::clone(&end));
            move || async move {
                begun.notify_one();
                end.notified().await;
            }
        };
        let (router, metrics) = limited(Router::new().route("/wait", post(wait)), 1);
        let first = tokio::spawn(ask(router.clone(), "/wait", Vec::new()));
        begun.notified().await;
        let status = ask(router.clone(), "/wait", Vec::new()).await.unwrap();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert_eq!(refused(&metrics), 1);
        end.notify_one();
        assert!(first.await.unwrap().is_none());
        end.notify_one();
        assert!(ask(router.clone(), "/wait", Vec::new()).await.is_none());
        assert_eq!(refused(&metrics), 1);
    }

    #[tokio::test]
    async fn a_message_that_is_too_large_has_exhausted_what_it_may_have() {
        let (_, health) = tonic_health::server::health_reporter();
        let health = Routes::new(health.max_decoding_message_size(8)).into_axum_router();
        let (router, metrics) = limited(health, 1);
        // The name of a service of so many bytes, as a message in its frame.
        let message = |bytes: u8| {
            let frame = [0, 0, 0, 0, bytes + 2, 0x0a, bytes];
            frame.into_iter().chain(std::iter::repeat_n(b'a', bytes.into())).collect()
        };
        let path = "/grpc.health.v1.Health/Check";
        let status = ask(router.clone(), path, message(7)).await.unwrap();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert_eq!(status.get_error_details().error_info().unwrap().reason, "TOO_LARGE");
        assert_eq!(refused(&metrics), 1);
        // Nobody knows such a service, but it is read.
        let status = ask(router.clone(), path, message(6)).await.unwrap();
        assert_eq!(status.code(), Code::NotFound, "{status}");
    }

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
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        drop((first, second));
        assert_eq!(bytes.available_permits(), 10);
    }
}
