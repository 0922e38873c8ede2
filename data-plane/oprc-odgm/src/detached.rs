//! Work that a client can't interrupt.

use crate::Error;

/// Finishes work even if the client disconnects: a change may have been stored, and its event must be
/// delivered.
pub(crate) async fn finish<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    let outcome = tokio::spawn(work).await;
    outcome.unwrap_or_else(|error| Err(Error::UnknownOutcome(error.to_string())))
}
