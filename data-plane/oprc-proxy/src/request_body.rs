//! The body of a request on its way to the function.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// Streams the body of the client. While a call is queued, its first frame is read ahead: hyper
/// notices that a client went away only after it has read the body.
#[derive(Debug)]
pub(crate) struct RequestBody {
    first: Option<Result<Frame<Bytes>, hyper::Error>>,
    incoming: Incoming,
}

impl RequestBody {
    pub(crate) fn new(incoming: Incoming) -> Self {
        Self { first: None, incoming }
    }

    /// Reads the first frame. Never returns, so that it can run until a slot is free.
    pub(crate) async fn read_ahead(&mut self) -> Infallible {
        if self.first.is_none() && !self.incoming.is_end_stream() {
            self.first = self.incoming.frame().await;
        }
        std::future::pending().await
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.first.take() {
            Some(frame) => Poll::Ready(Some(frame)),
            None => Pin::new(&mut self.incoming).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.incoming.size_hint();
        let first = match &self.first {
            Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
            _ => 0,
        };
        let first = u64::try_from(first).unwrap_or(u64::MAX);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(first));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(first));
        }
        hint
    }
}
