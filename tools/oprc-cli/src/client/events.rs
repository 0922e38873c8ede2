//! Server-sent events (`text/event-stream`).

use std::collections::VecDeque;

use anyhow::Result;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use oprc_rest::Event;

use crate::error::CliError;

const MAX_EVENT_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Events {
    body: Incoming,
    parser: Parser,
    ready: VecDeque<Event>,
}

impl Events {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body, parser: Parser::default(), ready: VecDeque::new() }
    }

    /// `None` when the stream has ended.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.map_err(|error| {
                CliError::Unavailable(format!("the event stream was interrupted: {error}"))
            })?;
            if let Some(data) = frame.data_ref() {
                self.ready.extend(self.parser.feed(data)?);
            }
        }
    }
}

/// Incremental parser; chunks may be split anywhere.
#[derive(Debug, Default)]
struct Parser {
    line: Vec<u8>,
    data: String,
    id: String,
    after_return: bool,
}

impl Parser {
    /// Returns the events that are complete.
    fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Event>, CliError> {
        let mut events = Vec::new();
        for &byte in bytes {
            // A line ends with CR, LF, or both.
            let after_return = std::mem::replace(&mut self.after_return, byte == b'\r');
            match byte {
                b'\n' if after_return => {}
                b'\n' | b'\r' => events.extend(self.end_of_line()?),
                _ if self.line.len() + self.data.len() >= MAX_EVENT_BYTES => {
                    return Err(CliError::Unavailable(
                        "an event exceeds the size limit".to_owned(),
                    ));
                }
                _ => self.line.push(byte),
            }
        }
        Ok(events)
    }

    fn end_of_line(&mut self) -> Result<Option<Event>, CliError> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        if line.is_empty() {
            return self.end_of_event();
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            "id" => value.clone_into(&mut self.id),
            // Keep-alive comments and unknown fields.
            _ => {}
        }
        Ok(None)
    }

    fn end_of_event(&mut self) -> Result<Option<Event>, CliError> {
        let data = std::mem::take(&mut self.data);
        if data.is_empty() {
            return Ok(None);
        }
        let mut event: Event = serde_json::from_str(&data)
            .map_err(|error| CliError::Failed(format!("invalid event from the server: {error}")))?;
        if event.id.is_empty() {
            event.id.clone_from(&self.id);
        }
        Ok(Some(event))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = ": hello\r\n\r\nid: 7\nevent: unit.condition\ndata: {\"type\":\"unit.condition\",\n\
                        data: \"subject\":\"ü\"}\n\ndata:{\"id\":\"8\",\"subject\":\"b\"}\r\r: alive\n\n";

    #[test]
    fn parses_all_line_endings() {
        let events = Parser::default().feed(TEXT.as_bytes()).unwrap();
        let parsed: Vec<_> =
            events.iter().map(|it| (it.id.as_str(), it.subject.as_str())).collect();
        assert_eq!(parsed, [("7", "ü"), ("8", "b")]);
        assert_eq!(events[0].kind, "unit.condition");
    }

    #[test]
    fn rejects_endless_events() {
        let mut parser = Parser::default();
        let flood = vec![b'x'; MAX_EVENT_BYTES + 1];
        assert!(parser.feed(b"data: ").is_ok());
        assert!(parser.feed(&flood).is_err());
    }

    proptest! {
        #[test]
        fn chunk_boundaries_do_not_matter(cuts in prop::collection::vec(0..TEXT.len(), 0..8)) {
            let mut cuts = cuts;
            cuts.sort_unstable();
            let (mut parser, mut events, mut from) = (Parser::default(), Vec::new(), 0);
            for cut in cuts.into_iter().chain([TEXT.len()]) {
                events.extend(parser.feed(&TEXT.as_bytes()[from..cut]).unwrap());
                from = cut;
            }
            prop_assert_eq!(events, Parser::default().feed(TEXT.as_bytes()).unwrap());
        }

        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Parser::default().feed(&bytes);
        }
    }
}
