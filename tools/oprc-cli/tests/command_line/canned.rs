//! A package manager that gives fixed answers: some that no real one gives on demand.

use std::{
    collections::BTreeMap,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use serde_json::Value;

/// What is answered, by method and path without its query. A text is a stream of events, which goes
/// on without anything happening; what has a title is a problem.
pub(crate) type Answers = BTreeMap<String, Value>;

/// Starts one; gives its address. It ends with the process.
pub(crate) fn start(answers: Answers) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answers = Arc::new(answers);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answers = answers.clone();
            thread::spawn(move || serve(stream, &answers));
        }
    });
    url
}

/// Answers one request.
fn serve(mut stream: TcpStream, answers: &Answers) -> io::Result<()> {
    let asked = ask(&stream)?;
    let (status, kind, body) = match answers.get(&asked) {
        Some(Value::String(events)) => ("200 OK", "text/event-stream", events.clone()),
        Some(problem) if problem["title"].is_string() => {
            ("409 Conflict", "application/problem+json", problem.to_string())
        }
        Some(document) => ("200 OK", "application/json", document.to_string()),
        None => {
            let problem = serde_json::json!({"title": "Not found", "detail": asked});
            ("404 Not Found", "application/problem+json", problem.to_string())
        }
    };
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    if kind == "text/event-stream" {
        // Until nobody listens any more.
        io::copy(&mut stream, &mut io::sink())?;
    }
    Ok(())
}

/// Reads a request; gives its method and path.
fn ask(stream: &TcpStream) -> io::Result<String> {
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
    let asked = first.split_once('?').or_else(|| first.rsplit_once(' '));
    Ok(asked.map(|(asked, _)| asked.to_owned()).unwrap_or_default())
}
