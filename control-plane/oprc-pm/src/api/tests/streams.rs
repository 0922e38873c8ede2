//! The stream of events.

use axum::response::Response;

use super::*;

async fn begin(server: &Server, path: &str, last: Option<&str>) -> Response {
    let mut request = as_(VIEWER, "GET", path);
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    server.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
}

/// All events until the stream ends, which it does when the server stops.
async fn all(server: &Server, response: Response) -> String {
    let mut body = response.into_body();
    let mut text = String::new();
    while let Ok(Some(frame)) = tokio::time::timeout(Duration::from_millis(200), body.frame()).await
    {
        text.push_str(&String::from_utf8_lossy(&frame.unwrap().into_data().unwrap()));
    }
    server.stop.send_replace(true);
    let end = tokio::time::timeout(Duration::from_secs(10), body.frame()).await;
    assert!(end.unwrap().is_none(), "a stream ends when the server stops");
    server.stop.send_replace(false);
    text
}

#[tokio::test]
async fn resumes_after_last_event_id() {
    let server = Server::new(LIMITS).await;
    let response = begin(&server, "/api/v1/events?subject=hello", None).await;
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
    for kind in ["package.published", "deployment.created"] {
        let (kind, subject) = (kind.to_owned(), "hello".to_owned());
        let event = oprc_rest::Event { kind, subject, ..oprc_rest::Event::default() };
        server.deployments.events.publish(event);
    }
    let text = all(&server, response).await;
    let ids: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(ids.len(), 2, "{text}");
    assert!(text.contains("event: package.published\n"), "{text}");
    let id = |at: usize| format!("id: {}\n", ids[at]);
    let path = "/api/v1/events?subject=hello";
    let again = all(&server, begin(&server, path, Some(ids[0])).await).await;
    assert!(!again.contains(&id(0)) && again.contains(&id(1)), "{again}");
    assert!(!again.contains("event: gap\n"), "{again}");
    let path = "/api/v1/events?subject=hello&after=0&type=deployment.";
    let text = all(&server, begin(&server, path, None).await).await;
    assert!(text.starts_with("event: gap\n"), "{text}");
    assert!(!text.contains(&id(0)) && text.contains(&id(1)), "{text}");
}

#[tokio::test]
async fn limits_open_streams() {
    let server = Server::new(LIMITS).await;
    let first = begin(&server, "/api/v1/events", None).await;
    let _second = begin(&server, "/api/v1/events", None).await;
    let third = begin(&server, "/api/v1/events", None).await;
    assert_eq!(third.status(), StatusCode::SERVICE_UNAVAILABLE);
    drop(first);
    assert_eq!(begin(&server, "/api/v1/events", None).await.status(), StatusCode::OK);
}
