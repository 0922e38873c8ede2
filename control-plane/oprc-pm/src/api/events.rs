//! What happens, as it happens (server-sent events).

use std::{convert::Infallible, time::Duration};

use axum::{
    extract::State,
    http::{HeaderMap, HeaderName, StatusCode},
    response::{
        IntoResponse as _, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::{FutureExt as _, StreamExt as _};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    App, Told,
    caller::Viewer,
    problem::{Answer, Failure},
    query::Query,
};

const LAST: HeaderName = HeaderName::from_static("last-event-id");
/// Something is sent so often, so that what is in between doesn't take the connection for dead.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// Which events are wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Wanted {
    /// Only events about this package, deployment, unit or cluster.
    subject: Option<String>,
    /// Only events whose type begins so, such as `deployment.`.
    #[serde(rename = "type")]
    #[param(rename = "type")]
    kind: Option<String>,
    /// Where to go on, for those who can't send the header `Last-Event-ID`.
    after: Option<String>,
}

impl Wanted {
    fn takes(&self, event: &oprc_rest::Event) -> bool {
        self.subject.as_ref().is_none_or(|subject| event.subject == *subject)
            && self.kind.as_ref().is_none_or(|kind| event.kind.starts_with(kind.as_str()))
    }
}

/// Events, as they happen.
///
/// After a break, `Last-Event-ID` has the stream go on behind that event. An event `gap` says that
/// some in between are lost: read anew what you need.
#[utoipa::path(
    get,
    path = "/api/v1/events",
    tag = "events",
    params(Wanted, ("Last-Event-ID" = Option<String>, Header, description = "Where to go on")),
    responses((status = 200, description = "A stream of events", body = oprc_rest::Event,
        content_type = "text/event-stream")),
)]
pub(super) async fn stream(
    _: Viewer,
    State(app): State<App>,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
) -> Answer<Response> {
    let permit = app.streams.clone().try_acquire_owned().map_err(|_| {
        app.metrics.limited.inc();
        let detail = "Too many event streams are open.";
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "OVERLOADED", detail).retry_after(5)
    })?;
    let last = headers.get(LAST).and_then(|id| id.to_str().ok()).map(str::to_owned);
    let last = last.or_else(|| wanted.after.clone()).filter(|id| !id.is_empty());
    let open = Open::new(app.metrics.streams.clone());
    let mut stopping = app.stopping.clone();
    let stopped = async move {
        // A sender that is gone can't say it any more.
        let _ = stopping.wait_for(|stop| *stop).await;
    };
    let events = app.deployments.follow(last.as_deref());
    let told = events
        .filter_map(move |told| {
            let _held = (&permit, &open);
            std::future::ready(written(told, &wanted))
        })
        .take_until(stopped.boxed());
    Ok(Sse::new(told).keep_alive(KeepAlive::new().interval(SIGN_OF_LIFE)).into_response())
}

/// An event as it is sent; none where it isn't wanted.
fn written(told: Told, wanted: &Wanted) -> Option<Result<Event, Infallible>> {
    match told {
        Told::Gap => {
            let gap = oprc_rest::Event { kind: "gap".to_owned(), ..Default::default() };
            let data = serde_json::to_string(&gap).unwrap_or_default();
            Some(Ok(Event::default().event("gap").data(data)))
        }
        Told::Event(event) if wanted.takes(&event) => {
            let data = serde_json::to_string(&*event).unwrap_or_default();
            let kind = event.kind.clone();
            Some(Ok(Event::default().id(&event.id).event(kind).data(data)))
        }
        Told::Event(_) => None,
    }
}

/// Counts a stream while it is open.
struct Open(prometheus_client::metrics::gauge::Gauge);

impl Open {
    fn new(streams: prometheus_client::metrics::gauge::Gauge) -> Self {
        streams.inc();
        Self(streams)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_chosen_by_subject_and_type() {
        let event = oprc_rest::Event {
            kind: "deployment.condition".to_owned(),
            subject: "hello".to_owned(),
            ..Default::default()
        };
        let wanted = |subject: Option<&str>, kind: Option<&str>| Wanted {
            subject: subject.map(str::to_owned),
            kind: kind.map(str::to_owned),
            after: None,
        };
        assert!(wanted(None, None).takes(&event));
        assert!(wanted(Some("hello"), Some("deployment.")).takes(&event));
        assert!(!wanted(Some("other"), None).takes(&event));
        assert!(!wanted(None, Some("package.")).takes(&event));
    }
}
