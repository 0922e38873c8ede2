//! Which events are logged, and changing that at run time.

use tracing_subscriber::{EnvFilter, Registry, filter::LevelFilter, reload};

/// Why logs are not as wanted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A filter that is none.
    #[error(
        "the log filter {filter:?} is not allowed: {reason}; allowed is a level (off, error, \
         warn, info, debug, trace), target=level, or several of these separated by commas"
    )]
    Filter {
        /// The filter.
        filter: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A format that is none.
    #[error("the log format {0:?} is not allowed; allowed is json or pretty")]
    Format(String),
    /// Logs were set up before in this process.
    #[error("logs were set up before in this process")]
    AlreadySet,
    /// The filter cannot be changed any more.
    #[error("the log filter cannot be changed: {0}")]
    Gone(reload::Error),
}

/// Changes which events are logged, while the program runs.
#[derive(Clone, Debug)]
pub struct LevelHandle(pub(crate) reload::Handle<EnvFilter, Registry>);

impl LevelHandle {
    /// Logs what `filter` lets through from now on; an invalid one changes nothing.
    pub fn set(&self, filter: &str) -> Result<(), Error> {
        self.0.reload(parse(filter)?).map_err(Error::Gone)
    }

    /// The filter in force, in `EnvFilter`'s own spelling; empty if logs are gone.
    pub fn get(&self) -> String {
        self.0.with_current(EnvFilter::to_string).unwrap_or_default()
    }
}

pub(crate) fn parse(filter: &str) -> Result<EnvFilter, Error> {
    let wrong = |reason: String| Error::Filter { filter: filter.to_owned(), reason };
    // EnvFilter itself minds spaces.
    let parts: Vec<&str> =
        filter.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    if parts.is_empty() {
        return Err(wrong("it is empty".to_owned()));
    }
    // To EnvFilter a lone word is a target to trace, so that "inof" would silence all
    // else; a span in brackets is meant so.
    let mut lone = parts.iter().filter(|part| !part.contains(['=', '[']));
    if let Some(word) = lone.find(|word| word.parse::<LevelFilter>().is_err()) {
        return Err(wrong(format!("{word:?} is no level")));
    }
    EnvFilter::builder().parse(parts.join(",")).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters() {
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
    fn handles_can_be_shared() {
        fn shared<T: Clone + Send + Sync + 'static>() {}
        shared::<LevelHandle>();
    }
}
