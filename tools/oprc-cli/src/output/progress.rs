//! Progress of long steps on standard error, in the format that the sandbox uses for its own.

use oprc_sandbox::progress::Step;

use super::sanitize;

/// Shows `title` with the elapsed time while `work` runs.
pub(crate) async fn step<T, E>(
    title: &str,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let step = Step::begin(sanitize(title));
    let result = work.await;
    if result.is_ok() {
        step.done();
    }
    result
}
