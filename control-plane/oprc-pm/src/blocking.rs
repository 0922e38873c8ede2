//! Work that keeps a processor busy: not on the threads that answer, and only so much at a time.

use tokio::{sync::Semaphore, task::spawn_blocking};

use crate::error::Error;

/// So much is done at a time, in the whole process: more would only take longer.
const AT_ONCE: usize = 2;
static FREE: Semaphore = Semaphore::const_new(AT_ONCE);

/// Does something on a thread of its own, when it is its turn. Once begun it goes on to its end, and
/// counts until then, though nobody may wait for it any more.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let turn = FREE.acquire().await.map_err(|error| Error::Unavailable(error.to_string()))?;
    let span = tracing::Span::current();
    let done = spawn_blocking(move || {
        let _turn = turn;
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
    async fn what_takes_long_keeps_nobody_from_answering() {
        let (go, wait) = channel();
        let work = tokio::spawn(run_blocking(move || wait.recv()));
        // There is one thread here: on that nobody could say it while it is waited for.
        tokio::task::yield_now().await;
        go.send(7).unwrap();
        assert_eq!(work.await.unwrap().unwrap(), Ok(7));
    }

    #[tokio::test]
    async fn only_so_much_is_done_at_a_time() {
        let (begin, begun) = channel();
        let (end, ended) = channel::<()>();
        let ended = std::sync::Arc::new(std::sync::Mutex::new(ended));
        let busy: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                let (begin, ended) = (begin.clone(), ended.clone());
                tokio::spawn(run_blocking(move || {
                    begin.send(()).unwrap();
                    let _ = ended.lock().unwrap().recv();
                }))
            })
            .collect();
        let all = tokio::task::spawn_blocking(move || begun.iter().take(AT_ONCE).count());
        assert_eq!(all.await.unwrap(), AT_ONCE);
        let mut more = Box::pin(run_blocking(|| "done"));
        assert!(more.as_mut().now_or_never().is_none());
        assert_eq!(FREE.available_permits(), 0);
        drop(end);
        assert_eq!(more.await.unwrap(), "done");
        for task in busy {
            task.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn a_panic_is_an_error() {
        let told = run_blocking(|| -> () { panic!("no") }).await;
        assert!(matches!(told, Err(Error::Internal(_))), "{told:?}");
    }
}
