//! What an answer of etcd means that isn't the one asked for.

use std::{error::Error as StdError, io};

use tonic::{Code, ConnectError, Status};

use crate::{Error, MAX_BYTES};

/// What can be done about a failure.
pub(super) enum Failure {
    /// The token is too old: get another one.
    Token,
    /// etcd hasn't seen the request: ask another member.
    NotSent(Error),
    /// etcd may have done what was asked.
    Broken(String),
    /// It would be the same again.
    Final(Error),
}

impl Failure {
    pub(super) fn of(status: &Status) -> Self {
        let message = status.message();
        match status.code() {
            Code::Unauthenticated => Self::Token,
            Code::InvalidArgument if message.contains("auth store is old") => Self::Token,
            Code::InvalidArgument if message.contains("request is too large") => {
                let what = "a request to etcd".to_owned();
                Self::Final(Error::TooLarge { what, limit: format!("{MAX_BYTES} bytes") })
            }
            // How etcd says that it wants a user, and that a password is wrong.
            Code::InvalidArgument
                if message.contains("user name is empty")
                    || message.contains("authentication failed") =>
            {
                Self::Final(Error::denied(message))
            }
            Code::InvalidArgument => Self::Final(Error::invalid(message)),
            Code::PermissionDenied => Self::Final(Error::denied(message)),
            Code::OutOfRange if message.contains("revision") => Self::Final(Error::Gap),
            // etcd has done what it says so of: it only takes nothing more from then on.
            Code::ResourceExhausted if message.contains("database space exceeded") => {
                Self::Broken(message.to_owned())
            }
            Code::ResourceExhausted | Code::FailedPrecondition | Code::Unimplemented => {
                Self::Final(Error::unavailable(message))
            }
            _ => Self::of_transport(status),
        }
    }

    fn of_transport(status: &Status) -> Self {
        let reason = chain(status);
        let mut causes = causes(status);
        if causes.clone().any(is_tls) {
            return Self::NotSent(Error::denied(reason));
        }
        if causes.any(<dyn StdError>::is::<ConnectError>) {
            return Self::NotSent(Error::unavailable(reason));
        }
        Self::Broken(reason)
    }
}

/// Whether one side doesn't trust the other.
fn is_tls(cause: &(dyn StdError + 'static)) -> bool {
    let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    // A server refuses a client only after the handshake, and then all that is left of the error on
    // its way through HTTP/2 is its text.
    let told = cause.to_string();
    let refused = told.contains("received fatal alert: ")
        && ["Certificate", "UnknownCA", "AccessDenied"].iter().any(|alert| told.contains(alert));
    refused
        || cause.is::<rustls::Error>()
        || inner.is_some_and(<dyn StdError + Send + Sync>::is::<rustls::Error>)
}

fn causes(status: &Status) -> impl Iterator<Item = &(dyn StdError + 'static)> + Clone {
    std::iter::successors(status.source(), |&cause| cause.source())
}

/// What went wrong, down to the first cause.
fn chain(status: &Status) -> String {
    let mut told = vec![status.message().to_owned()];
    for cause in causes(status).map(ToString::to_string) {
        if !told.iter().any(|before| before.contains(&cause)) {
            told.push(cause);
        }
    }
    told.retain(|part| !part.is_empty());
    told.join(": ")
}
