//! Errors of commands and the exit codes that scripts rely on.

use std::process::ExitCode;

use anyhow::Result;
use oprc_sandbox::Error;

/// An error by its exit code. The message names the object, the cause and what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The operation ran and did not succeed: a deployment that is Down, a failed check.
    #[error("{0}")]
    Failed(String),
    /// An invalid argument, file or context.
    #[error("{0}")]
    InvalidInput(String),
    /// The package manager or the Kubernetes API rejected the request.
    #[error("{0}")]
    Rejected(String),
    #[error("{0}")]
    NotFound(String),
    /// No response, a timeout, or a server that asks to retry later.
    #[error("{0}")]
    Unavailable(String),
    /// Part of the operation succeeded.
    #[error("{0}")]
    Partial(String),
}

pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  success; diff: no differences
  1  the operation failed; diff: differences found
  2  invalid argument, file or context
  3  request rejected, or object not found
  4  server unreachable or timeout
  5  partial success";

impl CliError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::InvalidInput(_) => 2,
            Self::Rejected(_) | Self::NotFound(_) => 3,
            Self::Unavailable(_) => 4,
            Self::Partial(_) => 5,
        }
    }
}

/// The exit code of any error; 1 for other types.
pub(crate) fn exit_code(error: &anyhow::Error) -> ExitCode {
    let sandbox = || error.downcast_ref().map_or(1, sandbox_exit_code);
    ExitCode::from(error.downcast_ref::<CliError>().map_or_else(sandbox, CliError::exit_code))
}

fn sandbox_exit_code(error: &Error) -> u8 {
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

pub(crate) fn is_not_found(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(CliError::NotFound(_)))
}

/// `None` for [`CliError::NotFound`].
pub(crate) fn optional<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(error) if is_not_found(&error) => Ok(None),
        result => result.map(Some),
    }
}

pub(crate) fn is_unavailable(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(CliError::Unavailable(_)))
}

#[derive(Debug, thiserror::Error)]
#[error("writing to standard output: {0}")]
pub(crate) struct StdoutError(pub(crate) std::io::Error);

/// Whether the reader of standard output has closed it, as after `| head`. A broken connection to a
/// server is not meant.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let printing = error.downcast_ref::<StdoutError>();
    printing.is_some_and(|it| it.0.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn context_keeps_the_exit_code() {
        let error = anyhow::Error::new(CliError::Unavailable("no response".to_owned()));
        assert_eq!(exit_code(&error.context("sending a request")), ExitCode::from(4));
        assert_eq!(exit_code(&anyhow::anyhow!("something else")), ExitCode::from(1));
        let error = Error::NotRunning { name: "a".to_owned() };
        assert_eq!(exit_code(&anyhow::Error::new(error)), ExitCode::from(4));
    }

    #[test]
    fn only_standard_output_counts_as_a_closed_pipe() {
        let broken = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let printing = Err::<(), _>(StdoutError(broken())).context("printing").unwrap_err();
        assert!(is_closed_pipe(&printing));
        let sending = Err::<(), _>(broken()).context("sending").unwrap_err();
        assert!(!is_closed_pipe(&sending), "a broken connection");
        assert!(!is_closed_pipe(&anyhow::anyhow!("something else")));
    }
}
