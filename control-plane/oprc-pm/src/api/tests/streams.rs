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

/// What comes until the stream ends, which it does when the server stops.
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
async fn a_stream_goes_on_where_it_broke() {
    let server = Server::new(LIMITS).await;
    let response = begin(&server, "/api/v1/events", None).await;
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
    let text = all(&server, response).await;
    assert!(text.contains("id: 1\n") && text.contains("id: 2\n"), "{text}");
    assert!(text.contains("event: package.published\n"), "{text}");
    let text = all(&server, begin(&server, "/api/v1/events", Some("1")).await).await;
    assert!(!text.contains("id: 1\n") && text.contains("id: 2\n"), "{text}");
    let text = all(&server, begin(&server, "/api/v1/events?after=0&type=deployment.", None).await);
    let text = text.await;
    assert!(text.starts_with("event: gap\n") && !text.contains("id: 1\n"), "{text}");
}

#[tokio::test]
async fn only_so_many_streams_are_open() {
    let server = Server::new(LIMITS).await;
    let first = begin(&server, "/api/v1/events", None).await;
    let _second = begin(&server, "/api/v1/events", None).await;
    let third = begin(&server, "/api/v1/events", None).await;
    assert_eq!(third.status(), StatusCode::SERVICE_UNAVAILABLE);
    drop(first);
    assert_eq!(begin(&server, "/api/v1/events", None).await.status(), StatusCode::OK);
}
