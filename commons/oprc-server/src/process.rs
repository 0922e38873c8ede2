//! A server as a process: what it is called, and when it is to end.

use std::io;

use oprc_observability::correlation;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

/// What a process of this program is called among others like it.
pub fn identity(program: &str) -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| program.to_owned());
    format!("{host}-{}", correlation::new_id().get(..8).unwrap_or_default())
}

/// Ends when the process is told to, from now on.
pub fn told_to_stop() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stops");
    })
}

/// Ends once it is said that all is to stop.
pub async fn stopped(mut stopping: watch::Receiver<bool>) {
    // A sender that is gone can't say it any more.
    let _ = stopping.wait_for(|stop| *stop).await;
}
