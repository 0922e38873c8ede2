//! The log output.

use std::{
    io::{self, IsTerminal},
    str::FromStr,
};

use tracing_subscriber::{
    Layer, Registry,
    fmt::{self, MakeWriter},
    layer::{Layered, SubscriberExt},
    reload,
    util::SubscriberInitExt,
};

use crate::{Error, LevelHandle, filter};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One object per line.
    Json,
    /// Text, coloured on a terminal.
    Pretty,
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "json" => Ok(Self::Json),
            "pretty" => Ok(Self::Pretty),
            _ => Err(Error::Format(text.to_owned())),
        }
    }
}

/// Starts logging to stderr. Fails if called twice in a process.
pub fn init(format: Format, filter: &str) -> Result<LevelHandle, Error> {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colours = io::stderr().is_terminal() && !no_color;
    let (subscriber, handle) = subscriber(format, filter, colours, io::stderr)?;
    subscriber.try_init().map_err(|_| Error::AlreadyInitialized)?;
    Ok(handle)
}

type Filtered = Layered<reload::Layer<tracing_subscriber::EnvFilter, Registry>, Registry>;
type Output = Box<dyn Layer<Filtered> + Send + Sync>;

fn subscriber<W>(
    format: Format,
    filter: &str,
    colours: bool,
    writer: W,
) -> Result<(Layered<Output, Filtered>, LevelHandle), Error>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(filter::parse(filter)?);
    // Errors of the output would be printed to stderr as well, which panics if it is closed.
    let output = fmt::layer().with_writer(writer).log_internal_errors(false);
    let output: Output = match format {
        // The list of spans includes the current one.
        Format::Json => output.json().flatten_event(true).with_current_span(false).boxed(),
        Format::Pretty => output.with_ansi(colours).boxed(),
    };
    Ok((tracing_subscriber::registry().with(filter).with(output), LevelHandle(handle)))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Sink {
        fn take(&self) -> String {
            String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
        }
    }

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logs(format: Format, log: impl FnOnce(&LevelHandle, &Sink)) {
        let sink = Sink::default();
        let writer = sink.clone();
        let (subscriber, handle) =
            subscriber(format, "info", false, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || log(&handle, &sink));
    }

    #[test]
    fn json_has_fields_of_events_and_spans() {
        logs(Format::Json, |_, sink| {
            let outer = tracing::info_span!("request", correlation_id = "abc").entered();
            let inner = tracing::info_span!("apply", class = "c").entered();
            tracing::info!(target: "there", count = 3, "done");
            drop((inner, outer));
            let line: serde_json::Value = serde_json::from_str(&sink.take()).unwrap();
            assert_eq!(line["message"], "done");
            assert_eq!(line["count"], 3);
            assert_eq!(line["level"], "INFO");
            assert_eq!(line["target"], "there");
            assert_eq!(line["spans"][0]["correlation_id"], "abc");
            assert_eq!(line["spans"][1]["class"], "c");
            let time = line["timestamp"].as_str().unwrap();
            assert!(time.contains('T') && time.ends_with('Z'), "{time}");
        });
    }

    #[test]
    fn text_has_fields_of_events_and_spans() {
        logs(Format::Pretty, |_, sink| {
            let _span = tracing::info_span!("request", correlation_id = "abc").entered();
            tracing::info!("done");
            let line = sink.take();
            assert!(line.contains("abc") && line.contains("done"), "{line}");
            assert!(!line.contains('\u{1b}'), "{line}");
        });
    }

    #[test]
    fn changes_the_filter_at_run_time_unless_invalid() {
        logs(Format::Json, |handle, sink| {
            tracing::debug!("first");
            assert_eq!(sink.take(), "");
            assert_eq!(handle.get(), "info");
            handle.set("debug").unwrap();
            tracing::debug!("second");
            assert!(sink.take().contains("second"));
            handle.set("hyper=wran").unwrap_err();
            assert_eq!(handle.get(), "debug");
            tracing::debug!("third");
            assert!(sink.take().contains("third"));
        });
    }

    #[test]
    fn parses_formats() {
        assert_eq!("json".parse::<Format>().unwrap(), Format::Json);
        assert_eq!("pretty".parse::<Format>().unwrap(), Format::Pretty);
        assert!("xml".parse::<Format>().unwrap_err().to_string().contains("xml"));
    }
}
