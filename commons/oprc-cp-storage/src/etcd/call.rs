//! Calls with retries and failover between members.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use tokio::time::{Instant, sleep, timeout_at};
use tonic::{Response, Status, transport::Channel};

use super::{Client, auth::Token, status::Failure};
use crate::{Error, Result};

/// Whether a request may be sent again if its outcome is unknown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    Always,
    /// Only if etcd hasn't received it.
    IfNotSent,
}

pub(super) fn backoff() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(20))
        .with_max_delay(Duration::from_secs(1))
        .with_jitter()
        .without_max_times()
        .build()
}

impl Client {
    /// Retries until a response or the deadline.
    pub(super) async fn call<T, F: Future<Output = Result<Response<T>, Status>>>(
        &self,
        retry: Retry,
        request: impl Fn(Channel, Option<Token>) -> F,
    ) -> Result<T> {
        let deadline = Instant::now() + self.deadline;
        // A member that doesn't respond must leave time for another one. A request that can't be
        // repeated gets all of the time.
        let attempt_timeout = match retry {
            Retry::Always => self.deadline / 3,
            Retry::IfNotSent => self.deadline,
        };
        let mut delays = backoff();
        let (mut tokens, mut denied) = (0, 0);
        loop {
            let (member, channel) = self.endpoints.current()?;
            let attempt = timeout_at(
                deadline.min(Instant::now() + attempt_timeout),
                self.attempt(channel, &request),
            );
            let failure = match attempt.await {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::Broken("etcd did not respond in time".to_owned()),
            };
            let error = match failure {
                Failure::Final(error) => return Err(error),
                Failure::Token => {
                    tokens += 1;
                    if tokens < 3 {
                        continue;
                    }
                    return Err(Error::denied("etcd rejects the tokens that it issues"));
                }
                Failure::NotSent(error) => error,
                Failure::Broken(reason) if retry == Retry::Always => Error::unavailable(reason),
                Failure::Broken(reason) => Error::unknown_outcome(reason),
            };
            self.endpoints.fail_over_from(member);
            // A wrong certificate or password won't become valid by retrying each member again.
            denied += usize::from(matches!(error, Error::Denied { .. }));
            let delay = delays.next().unwrap_or_default();
            if matches!(error, Error::UnknownOutcome { .. })
                || denied >= self.endpoints.count()
                || Instant::now() + delay >= deadline
            {
                return Err(error);
            }
            sleep(delay).await;
        }
    }

    async fn attempt<T, F: Future<Output = Result<Response<T>, Status>>>(
        &self,
        channel: Channel,
        request: &impl Fn(Channel, Option<Token>) -> F,
    ) -> Result<T, Failure> {
        let token = match &self.auth {
            Some(auth) => auth.token(channel.clone()).await?,
            None => None,
        };
        let status = match request(channel, token.clone()).await {
            Ok(response) => return Ok(response.into_inner()),
            Err(status) => status,
        };
        match (Failure::of(&status), &self.auth) {
            (Failure::Token, Some(auth)) => {
                auth.invalidate(token.as_ref()).await;
                Err(Failure::Token)
            }
            (Failure::Token, None) => Err(Failure::Final(Error::denied(status.message()))),
            (failure, _) => Err(failure),
        }
    }
}
