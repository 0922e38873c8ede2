//! The body of a response on its way to the client.

use std::{
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use hyper::{
    HeaderMap, StatusCode,
    body::{Body, Frame, Incoming, SizeHint},
};

use crate::{call::Call, grpc, metrics::Outcome, upstream::Http1Sender};

pub(crate) enum ResponseBody {
    Function(FunctionBody),
    /// A text of the proxy itself, or no body.
    Text(Bytes),
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Function(body) => body.poll_frame(context),
            Self::Text(text) if text.is_empty() => Poll::Ready(None),
            Self::Text(text) => Poll::Ready(Some(Ok(Frame::data(mem::take(text))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Function(body) => body.incoming.is_end_stream(),
            Self::Text(text) => text.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Function(body) => body.incoming.size_hint(),
            Self::Text(text) => SizeHint::with_exact(u64::try_from(text.len()).unwrap_or(0)),
        }
    }
}

/// Streams a body of the function. The call ends with the body.
pub(crate) struct FunctionBody {
    incoming: Incoming,
    call: Call,
    /// The HTTP/1 connection of the call, which is reused after the body has ended.
    sender: Option<Http1Sender>,
    outcome: Outcome,
}

impl FunctionBody {
    pub(crate) fn new(
        incoming: Incoming,
        call: Call,
        sender: Option<Http1Sender>,
        outcome: Outcome,
    ) -> Self {
        let mut body = Self { incoming, call, sender, outcome };
        body.complete_at_end();
        body
    }

    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.incoming).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(status) = frame.trailers_ref().and_then(grpc::status) {
                    self.outcome = grpc_outcome(status);
                }
                // hyper doesn't ask for more frames after the end.
                self.complete_at_end();
            }
            Some(Err(_)) => self.call.end(Outcome::ServerError),
            None => self.complete(),
        }
        Poll::Ready(frame)
    }

    fn complete_at_end(&mut self) {
        if self.incoming.is_end_stream() {
            self.complete();
        }
    }

    fn complete(&mut self) {
        self.call.end(self.outcome);
        if let Some(sender) = self.sender.take() {
            self.call.state().upstream.release(sender);
        }
    }
}

impl Drop for FunctionBody {
    fn drop(&mut self) {
        // An empty HTTP/2 body may end without a frame. Otherwise the call is canceled.
        self.complete_at_end();
    }
}

/// From the head of a response; the trailers of a gRPC response may change it.
pub(crate) fn outcome(status: StatusCode, headers: &HeaderMap) -> Outcome {
    if status.is_server_error() {
        Outcome::ServerError
    } else if status.is_client_error() {
        Outcome::ClientError
    } else {
        grpc::status(headers).map_or(Outcome::Ok, grpc_outcome)
    }
}

fn grpc_outcome(status: u16) -> Outcome {
    match status {
        grpc::OK => Outcome::Ok,
        status if grpc::is_server_error(status) => Outcome::ServerError,
        _ => Outcome::ClientError,
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn outcome_follows_the_http_or_grpc_status() {
        let http = |status| outcome(StatusCode::from_u16(status).unwrap(), &HeaderMap::new());
        assert_eq!(http(101), Outcome::Ok);
        assert_eq!(http(304), Outcome::Ok);
        assert_eq!(http(404), Outcome::ClientError);
        assert_eq!(http(503), Outcome::ServerError);
        let grpc = |status: u16| {
            let headers = HeaderMap::from_iter([(grpc::STATUS, HeaderValue::from(status))]);
            outcome(StatusCode::OK, &headers)
        };
        assert_eq!(grpc(0), Outcome::Ok);
        for status in [2, 4, 8, 12, 13, 14, 15] {
            assert_eq!(grpc(status), Outcome::ServerError, "{status}");
        }
        for status in [1, 3, 5, 6, 7, 9, 10, 11, 16] {
            assert_eq!(grpc(status), Outcome::ClientError, "{status}");
        }
    }
}
