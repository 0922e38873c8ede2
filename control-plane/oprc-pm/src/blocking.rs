//! CPU-bound work off the threads that serve requests, with bounded concurrency.

use tokio::{sync::Semaphore, task::spawn_blocking};

use crate::error::Error;

/// In the whole process.
const MAX_CONCURRENT: usize = 2;
static PERMITS: Semaphore = Semaphore::const_new(MAX_CONCURRENT);

/// Runs `work` on a blocking thread once a permit is free. It runs to its end and keeps the permit
/// even if the caller is cancelled.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let permit = PERMITS.acquire().await.map_err(|error| Error::Unavailable(error.to_string()))?;
    let span = tracing::Span::current();
    let done = spawn_blocking(move || {
        let _permit = permit;
        span.in_scope(work)
    });
    done.await.map_err(|error| Error::Internal(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn does_not_block_the_runtime() {
        let (go, wait) = channel();
        let work = tokio::spawn(run_blocking(move || wait.recv()));
        // The runtime has one thread: work on that would block this test.
        tokio::task::yield_now().await;
        go.send(7).unwrap();
        assert_eq!(work.await.unwrap().unwrap(), Ok(7));
    }

    #[tokio::test]
    async fn bounds_concurrency() {
        let (begin, begun) = channel();
        let (end, ended) = channel::<()>();
        let ended = std::sync::Arc::new(std::sync::Mutex::new(ended));
        let busy: Vec<_> = (0..MAX_CONCURRENT)
            .map(|_| {
                let (begin, ended) = (begin.clone(), ended.clone());
                tokio::spawn(run_blocking(move || {
                    begin.send(()).unwrap();
                    let _ = ended.lock().unwrap().recv();
                }))
            })
            .collect();
        let all = tokio::task::spawn_blocking(move || begun.iter().take(MAX_CONCURRENT).count());
        assert_eq!(all.await.unwrap(), MAX_CONCURRENT);
        let mut more = Box::pin(run_blocking(|| "done"));
        assert!(more.as_mut().now_or_never().is_none());
        assert_eq!(PERMITS.available_permits(), 0);
        drop(end);
        assert_eq!(more.await.unwrap(), "done");
        for task in busy {
            task.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn a_panic_is_an_error() {
        let result = run_blocking(|| -> () { panic!("no") }).await;
        assert!(matches!(result, Err(Error::Internal(_))), "{result:?}");
    }
}
