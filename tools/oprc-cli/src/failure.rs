//! How commands fail, and the exit codes that scripts can go by.

use std::process::ExitCode;

use oprc_sandbox::Error;

/// What went wrong, as far as the exit code tells it apart.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// It was tried and didn't come about: a deployment that is Down, a check that fails.
    #[error("{0}")]
    Failed(String),
    /// What was said can't be: a file with faults, a context that isn't there.
    #[error("{0}")]
    Wrong(String),
    /// The package manager said no.
    #[error("{0}")]
    Refused(String),
    /// There is no such thing.
    #[error("{0}")]
    Missing(String),
    /// No answer, none in time, or one that says that it can't now.
    #[error("{0}")]
    Away(String),
    /// Some of it came about.
    #[error("{0}")]
    Partial(String),
}

/// What `--help` says of exit codes.
pub(crate) const CODES: &str = "\
Exit codes:
  0  done; for diff: nothing differs
  1  it failed; for diff: something differs
  2  what was said is wrong: an argument, a file, a context
  3  the package manager refused, or there is no such thing
  4  no answer, or none in time
  5  only some of it came about";

impl Failure {
    fn code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Wrong(_) => 2,
            Self::Refused(_) | Self::Missing(_) => 3,
            Self::Away(_) => 4,
            Self::Partial(_) => 5,
        }
    }
}

/// The exit code for an error, wherever it comes from.
pub(crate) fn code(error: &anyhow::Error) -> ExitCode {
    let sandbox = || error.downcast_ref().map_or(1, sandbox_code);
    ExitCode::from(error.downcast_ref::<Failure>().map_or_else(sandbox, Failure::code))
}

/// The same for clusters of this machine.
fn sandbox_code(error: &Error) -> u8 {
    match error {
        Error::BadName { .. }
        | Error::BadOption(_)
        | Error::OptionsDiffer { .. }
        | Error::NotAnImage { .. } => 2,
        Error::UnknownCluster { .. } | Error::UnknownComponent { .. } => 3,
        Error::NotRunning { .. } | Error::Timeout { .. } => 4,
        _ => 1,
    }
}

/// Whether an error says that there is no such thing.
pub(crate) fn is_missing(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Failure::Missing(_)))
}

/// Whether an error says that there was no answer.
pub(crate) fn is_away(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Failure::Away(_)))
}

/// A result that couldn't be printed.
#[derive(Debug, thiserror::Error)]
#[error("printing: {0}")]
pub(crate) struct NotPrinted(pub(crate) std::io::Error);

/// Whether the pipe that results go to is closed: its reader has seen enough, as `head` has. A
/// connection to a server that broke is something else.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let printing = error.downcast_ref::<NotPrinted>();
    printing.is_some_and(|it| it.0.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn causes_keep_their_code() {
        let error = anyhow::Error::new(Failure::Away("nobody".to_owned()));
        assert_eq!(code(&error.context("asking")), ExitCode::from(4));
        assert_eq!(code(&anyhow::anyhow!("something else")), ExitCode::from(1));
        let error = Error::NotRunning { name: "a".to_owned() };
        assert_eq!(code(&anyhow::Error::new(error)), ExitCode::from(4));
    }

    #[test]
    fn closed_pipes_are_told_apart() {
        let broken = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let told = Err::<(), _>(NotPrinted(broken())).context("telling").unwrap_err();
        assert!(is_closed_pipe(&told));
        let lost = Err::<(), _>(broken()).context("sending").unwrap_err();
        assert!(!is_closed_pipe(&lost), "a connection that broke");
        assert!(!is_closed_pipe(&anyhow::anyhow!("something else")));
    }
}
