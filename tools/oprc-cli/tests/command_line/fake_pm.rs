//! A package manager with fixed responses, including some that a real one never gives.

use std::{
    collections::BTreeMap,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use serde_json::Value;

/// Responses by method and path without query. A string is an event stream that stays open; an
/// object with a title is a problem document; null is an empty body, and true is a body that isn't
/// JSON.
pub(crate) type Responses = BTreeMap<String, Value>;

/// Returns its URL. It stops with the process.
pub(crate) fn start(responses: Responses) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let responses = Arc::new(responses);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let responses = responses.clone();
            thread::spawn(move || serve(stream, &responses));
        }
    });
    url
}

fn serve(mut stream: TcpStream, responses: &Responses) -> io::Result<()> {
    let request = read_request(&stream)?;
    let (status, kind, body) = match responses.get(&request) {
        Some(Value::String(events)) => ("200 OK", "text/event-stream", events.clone()),
        Some(problem) if problem["title"].is_string() => {
            ("409 Conflict", "application/problem+json", problem.to_string())
        }
        Some(Value::Null) => ("200 OK", "application/json", String::new()),
        Some(Value::Bool(true)) => ("200 OK", "text/plain", "done".to_owned()),
        Some(document) => ("200 OK", "application/json", document.to_string()),
        None => {
            let problem = serde_json::json!({"title": "Not found", "detail": request});
            ("404 Not Found", "application/problem+json", problem.to_string())
        }
    };
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    if kind == "text/event-stream" {
        // Until the client disconnects.
        io::copy(&mut stream, &mut io::sink())?;
    }
    Ok(())
}

/// Returns method and path.
fn read_request(stream: &TcpStream) -> io::Result<String> {
    let mut reader = BufReader::new(stream);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().unwrap();
            }
            Some(_) => {}
            None => break,
        }
    }
    io::copy(&mut reader.take(length), &mut io::sink())?;
    let request = first.split_once('?').or_else(|| first.rsplit_once(' '));
    Ok(request.map(|(request, _)| request.to_owned()).unwrap_or_default())
}
