//! Limits on concurrent calls and on the bytes of their bodies, enforced before and while a body is
//! read.

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
use crate::metrics::Metrics;

/// Bound on the time until the response headers, with the upload of the body. The deadline of a call
/// is shorter.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(35);
/// Bound on the bytes of the bodies of all concurrent calls; decoded they take several times as much.
const MAX_BODY_BYTES: usize = 32 << 20;

#[derive(Clone)]
pub(super) struct Limit {
    calls: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    metrics: Arc<Metrics>,
}

impl Limit {
    pub(super) fn new(calls: usize, metrics: Arc<Metrics>) -> Self {
        let bytes = Arc::new(Semaphore::new(MAX_BODY_BYTES));
        Self { calls: Arc::new(Semaphore::new(calls)), bytes, metrics }
    }

    fn reject(&self, status: Status) -> Response {
        self.metrics.count_call("any", status.code());
        status.into_http::<Body>()
    }
}

/// The share of a call in the byte budget, held until its response starts.
struct BodyBudget {
    bytes: Arc<Semaphore>,
    acquired: Mutex<Option<OwnedSemaphorePermit>>,
}

impl BodyBudget {
    fn new(bytes: &Arc<Semaphore>) -> Arc<Self> {
        Arc::new(Self { bytes: Arc::clone(bytes), acquired: Mutex::default() })
    }

    /// Fails instead of waiting: calls that wait for each other would deadlock.
    fn acquire(&self, part: &Bytes) -> Result<(), Status> {
        let full =
            |_| Status::resource_exhausted("too many bytes in concurrent calls; retry later");
        let size = u32::try_from(part.len()).unwrap_or(u32::MAX);
        let more = Arc::clone(&self.bytes).try_acquire_many_owned(size).map_err(full)?;
        match &mut *self.acquired.lock() {
            Some(acquired) => acquired.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }

    /// A body whose bytes are counted as they arrive. A stream that continues after its response has
    /// started is decoded one message at a time and not counted any more.
    fn counted(self: &Arc<Self>, body: Body) -> Body {
        let budget = Arc::downgrade(self);
        Body::from_stream(body.into_data_stream().map(move |part| {
            let part = part.map_err(axum::BoxError::from)?;
            if let Some(budget) = budget.upgrade() {
                budget.acquire(&part)?;
            }
            Ok::<_, axum::BoxError>(part)
        }))
    }
}

/// A middleware for [`axum::middleware::from_fn_with_state`].
pub(super) async fn limit(State(limit): State<Limit>, request: Request, next: Next) -> Response {
    let Ok(_permit) = limit.calls.try_acquire() else {
        let message = "too many concurrent calls; retry later";
        return limit.reject(Status::resource_exhausted(message));
    };
    let budget = BodyBudget::new(&limit.bytes);
    let request = request.map(|body| budget.counted(body));
    match timeout(RESPONSE_TIMEOUT, next.run(request)).await {
        Ok(response) if is_out_of_range(&response) => limit.reject(too_large()),
        Ok(response) => response,
        Err(_) => limit.reject(Status::deadline_exceeded("the call was not received in time")),
    }
}

/// tonic rejects a message over the size limit with OUT_OF_RANGE, where gRPC specifies
/// RESOURCE_EXHAUSTED. CRM never returns OUT_OF_RANGE itself.
fn is_out_of_range(response: &Response) -> bool {
    let status = Status::from_header_map(response.headers());
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
    use crate::{cache::ApiHealth, leader::Leadership};

    /// The gRPC status in the response headers, if there is one.
    async fn call(router: Router, path: &str, body: Vec<u8>) -> Option<Status> {
        let request = Request::post(path).header("content-type", "application/grpc");
        let response = router.oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
        Status::from_header_map(response.headers())
    }

    fn limited(router: Router, calls: usize) -> (Router, Arc<Metrics>) {
        let metrics = Arc::new(Metrics::new(
            &ApiHealth::default(),
            Arc::default(),
            Leadership::always(),
            Arc::default(),
        ));
        let limits = Limit::new(calls, Arc::clone(&metrics));
        (router.layer(from_fn_with_state(limits, limit)), metrics)
    }

    fn rejected(metrics: &Metrics) -> u64 {
        metrics.calls("any", Code::ResourceExhausted)
    }

    #[tokio::test]
    async fn call_over_the_limit_is_rejected_at_once_and_accepted_later() {
        let (begun, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let wait = {
            let (begun, end) = (Arc::clone(&begun), Arc::clone(&end));
            move || async move {
                begun.notify_one();
                end.notified().await;
            }
        };
        let (router, metrics) = limited(Router::new().route("/wait", post(wait)), 1);
        let first = tokio::spawn(call(router.clone(), "/wait", Vec::new()));
        begun.notified().await;
        let status = call(router.clone(), "/wait", Vec::new()).await.unwrap();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert_eq!(rejected(&metrics), 1);
        end.notify_one();
        assert!(first.await.unwrap().is_none());
        end.notify_one();
        assert!(call(router.clone(), "/wait", Vec::new()).await.is_none());
        assert_eq!(rejected(&metrics), 1);
    }

    #[tokio::test]
    async fn oversized_message_is_resource_exhausted() {
        let (_, health) = tonic_health::server::health_reporter();
        let health = Routes::new(health.max_decoding_message_size(8)).into_axum_router();
        let (router, metrics) = limited(health, 1);
        // A framed message with a service name of this many bytes.
        let message = |bytes: u8| {
            let frame = [0, 0, 0, 0, bytes + 2, 0x0a, bytes];
            frame.into_iter().chain(std::iter::repeat_n(b'a', bytes.into())).collect()
        };
        let path = "/grpc.health.v1.Health/Check";
        let status = call(router.clone(), path, message(7)).await.unwrap();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert_eq!(status.get_error_details().error_info().unwrap().reason, "TOO_LARGE");
        assert_eq!(rejected(&metrics), 1);
        // The service is unknown, but the message is read.
        let status = call(router.clone(), path, message(6)).await.unwrap();
        assert_eq!(status.code(), Code::NotFound, "{status}");
    }

    #[tokio::test]
    async fn body_bytes_are_held_until_the_call_ends() {
        let bytes = Arc::new(Semaphore::new(10));
        let read = async |budget: &Arc<BodyBudget>, text: &'static str| {
            axum::body::to_bytes(budget.counted(Body::from(text)), usize::MAX).await
        };
        let first = BodyBudget::new(&bytes);
        assert_eq!(read(&first, "seven b").await.unwrap(), "seven b");
        assert_eq!(
            bytes.available_permits(),
            3,
            "the body was read, and the response hasn't started"
        );
        let second = BodyBudget::new(&bytes);
        let error = read(&second, "four").await.unwrap_err();
        let status = Status::from_error(error.into());
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        drop((first, second));
        assert_eq!(bytes.available_permits(), 10);
    }
}
