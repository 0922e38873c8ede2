//! One call, from the receipt of its head to its end: its slot and its part in the metrics.

use std::{mem, sync::Arc, time::Instant};

use crate::{
    breaker::{Admission, CallResult},
    connection::ClientConnection,
    limiter::Slot,
    metrics::Outcome,
    problem::Problem,
    state::ProxyState,
};

/// Counts as canceled if it is dropped before its end: hyper drops calls when a client goes away.
pub(crate) struct Call {
    connection: Arc<ClientConnection>,
    started: Instant,
    admission: Option<Admission>,
    slot: Option<Slot>,
    reached_function: bool,
    is_counted: bool,
}

impl Call {
    pub(crate) fn start(connection: Arc<ClientConnection>) -> Self {
        connection.call_started();
        Self {
            connection,
            started: Instant::now(),
            admission: None,
            slot: None,
            reached_function: false,
            is_counted: false,
        }
    }

    pub(crate) fn connection(&self) -> &ClientConnection {
        &self.connection
    }

    pub(crate) fn state(&self) -> &ProxyState {
        &self.connection.state
    }

    /// Asks the breaker.
    pub(crate) fn admit(&mut self) -> Result<(), Problem> {
        let admission = self.state().with_breaker(|breaker| breaker.admit(Instant::now()));
        self.admission = admission
            .transpose()
            .map_err(|shed| Problem::BreakerOpen { retry_after: shed.retry_after })?;
        Ok(())
    }

    /// From now on the call is in the function.
    pub(crate) fn enter_function(&mut self, slot: Slot) {
        self.slot = Some(slot);
        self.reached_function = true;
    }

    /// The proxy answers instead of the function.
    pub(crate) fn fail(&mut self, problem: Problem) {
        if problem == Problem::Unreachable {
            self.reached_function = false;
        }
        if let Some(reason) = problem.reject_reason() {
            self.state().metrics.count_rejected(reason);
        }
        self.end(problem.outcome());
    }

    /// Counts the call and releases its slot. Later calls of this method have no effect.
    pub(crate) fn end(&mut self, outcome: Outcome) {
        self.count(outcome);
        self.slot = None;
    }

    /// For calls that hold their slot after they were counted: upgraded connections.
    pub(crate) fn count(&mut self, outcome: Outcome) {
        if mem::replace(&mut self.is_counted, true) {
            return;
        }
        let now = Instant::now();
        let elapsed = now - self.started;
        let state = self.state();
        state.metrics.count(outcome);
        if self.reached_function {
            state.metrics.observe_duration(elapsed);
        }
        let Some(hard_latency) = state.config.hard_latency else { return };
        let is_breach =
            outcome == Outcome::Timeout || (self.reached_function && elapsed > hard_latency);
        if is_breach {
            state.metrics.count_hard_latency_breach();
        }
        if let Some(admission) = self.admission {
            let result = match outcome {
                _ if is_breach => CallResult::Breach,
                Outcome::Ok | Outcome::ClientError | Outcome::ServerError => CallResult::InTime,
                _ => CallResult::Unknown,
            };
            state.with_breaker(|breaker| breaker.record(admission, result, now));
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.end(Outcome::Canceled);
        self.connection.call_ended();
    }
}
