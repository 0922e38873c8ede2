//! The stream of events (server-sent events).

use std::{convert::Infallible, time::Duration};

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{
        IntoResponse as _, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::{FutureExt as _, StreamExt as _};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    App,
    middleware::{LAST_EVENT_ID, auth::Viewer},
    problem::{Answer, Failure},
    query::Query,
};
use crate::dispatcher::StreamItem;

/// Comments sent this often keep proxies from closing an idle stream.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct EventParams {
    /// Only events about this package, deployment, unit or cluster.
    subject: Option<String>,
    /// Only events whose type has this prefix, such as `deployment.`.
    #[serde(rename = "type")]
    #[param(rename = "type")]
    kind: Option<String>,
    /// Id of the last received event, for clients that can't send `Last-Event-ID`.
    after: Option<String>,
}

impl EventParams {
    fn matches(&self, event: &oprc_rest::Event) -> bool {
        self.subject.as_ref().is_none_or(|subject| event.subject == *subject)
            && self.kind.as_ref().is_none_or(|kind| event.kind.starts_with(kind.as_str()))
    }
}

/// Streams events as server-sent events.
///
/// After a disconnect, send `Last-Event-ID` to resume after that event. An event of type `gap` means
/// that events were lost: read the current state again.
#[utoipa::path(
    get,
    path = "/api/v1/events",
    params(EventParams, ("Last-Event-ID" = Option<String>, Header, description = "Id of the last received event")),
    responses((status = 200, description = "A stream of events", body = oprc_rest::Event,
        content_type = "text/event-stream")),
)]
pub(super) async fn stream(
    _: Viewer,
    State(app): State<App>,
    Query(params): Query<EventParams>,
    headers: HeaderMap,
) -> Answer<Response> {
    let permit = app.streams.clone().try_acquire_owned().map_err(|_| {
        app.metrics.limited.inc();
        let detail = "Too many open event streams. Retry after the time in Retry-After.";
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "OVERLOADED", detail).retry_after(5)
    })?;
    let last_id = headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok()).map(str::to_owned);
    let last_id = last_id.or_else(|| params.after.clone()).filter(|id| !id.is_empty());
    let open = OpenStream::new(app.metrics.streams.clone());
    let mut stopping = app.stopping.clone();
    let stopped = async move {
        // An error means that the sender is gone, which is a shutdown too.
        let _ = stopping.wait_for(|stop| *stop).await;
    };
    let events = app.deployments.events.stream(last_id.as_deref());
    let stream = events
        .filter_map(move |item| {
            let _held = (&permit, &open);
            std::future::ready(to_sse(item, &params))
        })
        .take_until(stopped.boxed());
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL)).into_response())
}

/// None if the event doesn't match.
fn to_sse(item: StreamItem, params: &EventParams) -> Option<Result<Event, Infallible>> {
    match item {
        StreamItem::Gap => {
            let gap = oprc_rest::Event { kind: "gap".to_owned(), ..Default::default() };
            let data = serde_json::to_string(&gap).unwrap_or_default();
            Some(Ok(Event::default().event("gap").data(data)))
        }
        StreamItem::Event(event) if params.matches(&event) => {
            let data = serde_json::to_string(&*event).unwrap_or_default();
            let kind = event.kind.clone();
            Some(Ok(Event::default().id(&event.id).event(kind).data(data)))
        }
        StreamItem::Event(_) => None,
    }
}

/// Counts a stream while it is open.
struct OpenStream(prometheus_client::metrics::gauge::Gauge);

impl OpenStream {
    fn new(streams: prometheus_client::metrics::gauge::Gauge) -> Self {
        streams.inc();
        Self(streams)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_by_subject_and_type() {
        let event = oprc_rest::Event {
            kind: "deployment.condition".to_owned(),
            subject: "hello".to_owned(),
            ..Default::default()
        };
        let params = |subject: Option<&str>, kind: Option<&str>| EventParams {
            subject: subject.map(str::to_owned),
            kind: kind.map(str::to_owned),
            after: None,
        };
        assert!(params(None, None).matches(&event));
        assert!(params(Some("hello"), Some("deployment.")).matches(&event));
        assert!(!params(Some("other"), None).matches(&event));
        assert!(!params(None, Some("package.")).matches(&event));
    }
}
