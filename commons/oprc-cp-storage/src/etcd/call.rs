//! One call to whichever member of an etcd answers.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use tokio::time::{Instant, sleep, timeout_at};
use tonic::{Response, Status, transport::Channel};

use super::{Client, auth::Token, status::Failure};
use crate::{Error, Result};

/// Whether a request may be sent again when it isn't known what became of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    Always,
    /// Only if etcd hasn't seen it.
    Unseen,
}

/// How long to wait before asking again.
pub(super) fn patience() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(20))
        .with_max_delay(Duration::from_secs(1))
        .with_jitter()
        .without_max_times()
        .build()
}

impl Client {
    /// Asks until there is an answer or no time left.
    pub(super) async fn call<T, F>(
        &self,
        repeat: Repeat,
        mut ask: impl FnMut(Channel, Option<Token>) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let begun = Instant::now();
        let deadline = begun + self.deadline;
        // A member that doesn't answer must not take all the time that another one needs. When a
        // request can't be repeated, it has all the time there is.
        let share = match repeat {
            Repeat::Always => self.deadline / 3,
            Repeat::Unseen => self.deadline,
        };
        let mut delays = patience();
        let (mut tokens, mut denied) = (0, 0);
        loop {
            let (member, channel) = self.endpoints.current()?;
            let attempt =
                timeout_at(deadline.min(Instant::now() + share), self.attempt(channel, &mut ask));
            let failure = match attempt.await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::Broken("etcd doesn't answer in time".to_owned()),
            };
            let error = match failure {
                Failure::Final(error) => return Err(error),
                Failure::Token => {
                    tokens += 1;
                    if tokens < 3 {
                        continue;
                    }
                    return Err(Error::denied("etcd takes none of the tokens that it gives"));
                }
                Failure::NotSent(error) => error,
                Failure::Broken(reason) if repeat == Repeat::Always => Error::unavailable(reason),
                Failure::Broken(reason) => {
                    self.endpoints.turn_from(member);
                    return Err(Error::unknown(reason));
                }
            };
            self.endpoints.turn_from(member);
            // Files and members that don't fit together won't soon.
            denied += usize::from(matches!(error, Error::Denied { .. }));
            let delay = delays.next().unwrap_or_default();
            if denied >= self.endpoints.count() || Instant::now() + delay >= deadline {
                return Err(error);
            }
            sleep(delay).await;
        }
    }

    async fn attempt<T, F>(
        &self,
        channel: Channel,
        ask: &mut impl FnMut(Channel, Option<Token>) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let token = match &self.auth {
            Some(auth) => auth.token(channel.clone()).await?,
            None => None,
        };
        match ask(channel, token.clone()).await {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status) => {
                let failure = Failure::of(&status);
                match (&self.auth, &failure) {
                    (Some(auth), Failure::Token) => auth.forget(token.as_ref()).await,
                    (None, Failure::Token) => {
                        return Err(Failure::Final(Error::denied(status.message())));
                    }
                    _ => {}
                }
                Err(failure)
            }
        }
    }
}
