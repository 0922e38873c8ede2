//! The identity of this process, and its shutdown.

use std::io;

use oprc_observability::correlation;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

/// A name that is unique among the replicas of a program.
pub fn identity(program: &str) -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| program.to_owned());
    format!("{host}-{}", correlation::new_id().get(..8).unwrap_or_default())
}

/// Resolves on SIGTERM or SIGINT. The handlers are installed by this call.
pub fn shutdown_signal() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("received a shutdown signal");
    })
}

/// Resolves once `stopping` is true or its sender is dropped.
pub async fn stopped(mut stopping: watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stop| *stop).await;
}
