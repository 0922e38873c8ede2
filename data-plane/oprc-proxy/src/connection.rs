//! A connection of a client.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use tokio::sync::Mutex;

use crate::{problem::Problem, state::ProxyState, upstream::Http2Sender};

pub(crate) struct ClientConnection {
    pub(crate) state: Arc<ProxyState>,
    /// The connection to the function for HTTP/2 calls of this client; opened by the first one.
    http2: Mutex<Option<Http2Sender>>,
    is_http2: AtomicBool,
    calls_started: AtomicU64,
    calls_running: AtomicUsize,
}

impl ClientConnection {
    pub(crate) fn new(state: Arc<ProxyState>) -> Self {
        Self {
            state,
            http2: Mutex::default(),
            is_http2: AtomicBool::new(false),
            calls_started: AtomicU64::new(0),
            calls_running: AtomicUsize::new(0),
        }
    }

    pub(crate) async fn http2_sender(&self) -> Result<Http2Sender, Problem> {
        // Concurrent calls wait for one connection attempt.
        let mut current = self.http2.lock().await;
        if let Some(sender) = current.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        let sender = self.state.upstream.connect_http2().await?;
        *current = Some(sender.clone());
        Ok(sender)
    }

    pub(crate) fn call_started(&self) {
        self.calls_started.fetch_add(1, Ordering::Relaxed);
        self.calls_running.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn call_ended(&self) {
        self.calls_running.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn calls_started(&self) -> u64 {
        self.calls_started.load(Ordering::Relaxed)
    }

    pub(crate) fn has_running_calls(&self) -> bool {
        self.calls_running.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn set_http2(&self) {
        self.is_http2.store(true, Ordering::Relaxed);
    }

    /// False until the first call.
    pub(crate) fn is_http2(&self) -> bool {
        self.is_http2.load(Ordering::Relaxed)
    }
}
