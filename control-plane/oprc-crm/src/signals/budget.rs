//! Bounds on the memory of the answers of a pass.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::provider::QueryError;

/// Bound on the values of all answers of a pass, in bytes.
pub const MAX_PASS_BYTES: usize = 24 << 20;
/// Bound on the values of one answer, so that a large one leaves room for the others.
pub const MAX_ANSWER_BYTES: usize = 16 << 20;

/// What the answers of a pass use.
#[derive(Debug, Default)]
pub(super) struct PassBudget {
    used: AtomicUsize,
}

impl PassBudget {
    pub(super) fn start_answer(self: &Arc<Self>) -> AnswerBudget {
        AnswerBudget { pass: Arc::clone(self), used: 0 }
    }
}

/// What one answer uses. It is returned unless the answer is kept.
#[derive(Debug)]
pub(super) struct AnswerBudget {
    pass: Arc<PassBudget>,
    used: usize,
}

impl AnswerBudget {
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), QueryError> {
        let used = self.used.saturating_add(bytes);
        if used > MAX_ANSWER_BYTES {
            return Err(QueryError::TooLarge);
        }
        let fits = |all: usize| all.checked_add(bytes).filter(|all| *all <= MAX_PASS_BYTES);
        let taken = self.pass.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.map_err(|_| QueryError::TooLarge)?;
        self.used = used;
        Ok(())
    }

    /// The answer stays until the end of the pass. Returns its size.
    pub(super) fn keep(&mut self) -> usize {
        std::mem::take(&mut self.used)
    }
}

impl Drop for AnswerBudget {
    fn drop(&mut self) {
        self.pass.used.fetch_sub(self.used, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_share_the_bound_of_the_pass() {
        let pass = Arc::<PassBudget>::default();
        let mut first = pass.start_answer();
        assert_eq!(first.take(MAX_ANSWER_BYTES), Ok(()));
        assert_eq!(first.take(1), Err(QueryError::TooLarge));
        assert_eq!(first.keep(), MAX_ANSWER_BYTES);
        drop(first);
        let mut second = pass.start_answer();
        let rest = MAX_PASS_BYTES - MAX_ANSWER_BYTES;
        assert_eq!(second.take(rest + 1), Err(QueryError::TooLarge));
        assert_eq!(second.take(rest), Ok(()));
        assert_eq!(pass.start_answer().take(1), Err(QueryError::TooLarge));
        drop(second);
        assert_eq!(pass.start_answer().take(rest), Ok(()), "what isn't kept is returned");
        assert_eq!(pass.start_answer().take(usize::MAX), Err(QueryError::TooLarge));
    }
}
