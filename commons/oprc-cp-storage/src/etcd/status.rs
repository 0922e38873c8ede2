//! Classification of failed calls.

use std::{error::Error as StdError, io};

use tonic::{Code, ConnectError, Status};

use crate::{Error, MAX_BYTES};

pub(super) enum Failure {
    /// The token has expired: request another one.
    Token,
    /// etcd hasn't received the request: try another member.
    NotSent(Error),
    /// etcd may have executed the request.
    Broken(String),
    /// A retry would fail the same way.
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
            // etcd's messages for a missing user and a wrong password.
            Code::InvalidArgument
                if message.contains("user name is empty")
                    || message.contains("authentication failed") =>
            {
                Self::Final(Error::denied(message))
            }
            Code::InvalidArgument => Self::Final(Error::invalid(message)),
            Code::PermissionDenied => Self::Final(Error::denied(message)),
            Code::OutOfRange if message.contains("revision") => Self::Final(Error::Gap),
            // etcd has executed this request, but accepts no further writes.
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

/// Whether TLS verification failed, on either side.
fn is_tls(cause: &(dyn StdError + 'static)) -> bool {
    let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    // A server rejects a client certificate after the handshake, and HTTP/2 passes on only the text
    // of that error.
    let message = cause.to_string();
    let rejected = message.contains("received fatal alert: ")
        && ["Certificate", "UnknownCA", "AccessDenied"].iter().any(|alert| message.contains(alert));
    rejected
        || cause.is::<rustls::Error>()
        || inner.is_some_and(<dyn StdError + Send + Sync>::is::<rustls::Error>)
}

fn causes(status: &Status) -> impl Iterator<Item = &(dyn StdError + 'static)> + Clone {
    std::iter::successors(status.source(), |&cause| cause.source())
}

/// The messages of all causes.
fn chain(status: &Status) -> String {
    let mut messages = vec![status.message().to_owned()];
    for cause in causes(status).map(ToString::to_string) {
        if !messages.iter().any(|before| before.contains(&cause)) {
            messages.push(cause);
        }
    }
    messages.retain(|part| !part.is_empty());
    messages.join(": ")
}
