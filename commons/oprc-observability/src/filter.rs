//! The log filter, which can be changed at run time.

use tracing_subscriber::{EnvFilter, Registry, filter::LevelFilter, reload};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "invalid log filter {filter:?}: {reason}; expected a level (off, error, warn, info, debug, \
         trace), target=level, or a comma-separated list of these"
    )]
    Filter { filter: String, reason: String },
    #[error("invalid log format {0:?}: expected json or pretty")]
    Format(String),
    #[error("logging is already initialized in this process")]
    AlreadyInitialized,
    #[error("cannot change the log filter: {0}")]
    Reload(reload::Error),
}

/// Changes the log filter at run time.
#[derive(Clone, Debug)]
pub struct LevelHandle(pub(crate) reload::Handle<EnvFilter, Registry>);

impl LevelHandle {
    /// An invalid filter changes nothing.
    pub fn set(&self, filter: &str) -> Result<(), Error> {
        self.0.reload(parse(filter)?).map_err(Error::Reload)
    }

    /// The current filter as `EnvFilter` formats it; empty if the subscriber was dropped.
    pub fn get(&self) -> String {
        self.0.with_current(EnvFilter::to_string).unwrap_or_default()
    }
}

pub(crate) fn parse(filter: &str) -> Result<EnvFilter, Error> {
    let invalid = |reason: String| Error::Filter { filter: filter.to_owned(), reason };
    // EnvFilter rejects spaces.
    let parts: Vec<&str> =
        filter.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    if parts.is_empty() {
        return Err(invalid("it is empty".to_owned()));
    }
    // EnvFilter takes a single word as a target, so that "inof" would silence everything else.
    // Spans in brackets are valid without a level.
    let mut words = parts.iter().filter(|part| !part.contains(['=', '[']));
    if let Some(word) = words.find(|word| word.parse::<LevelFilter>().is_err()) {
        return Err(invalid(format!("{word:?} is not a level")));
    }
    EnvFilter::builder().parse(parts.join(",")).map_err(|error| invalid(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validates_filters() {
        for filter in ["info", "WARN", "off", "info,hyper=warn", "a::b=trace, debug", "info,"] {
            parse(filter).unwrap();
        }
        parse("info,[request{id=x}]=debug,[apply]").unwrap();
        for filter in ["", " ", "inof", "info,debgu", "hyper=wran", "[a"] {
            let error = parse(filter).unwrap_err().to_string();
            assert!(error.contains(&format!("{filter:?}")), "{error}");
        }
    }

    #[test]
    fn handle_is_clone_send_and_sync() {
        fn shared<T: Clone + Send + Sync + 'static>() {}
        shared::<LevelHandle>();
    }
}
