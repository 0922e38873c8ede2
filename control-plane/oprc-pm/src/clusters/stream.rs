//! Follows what a cluster tells, for as long as the process runs.

use std::{sync::Arc, time::Duration};

use tonic::Status;

use super::{breaker::delays, link::Link};
use crate::stamp;

const SHORTEST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(15);

/// Opens the stream, and opens it again whenever it ends. Never returns.
pub(super) async fn follow(link: Arc<Link>) {
    let mut waits = delays(SHORTEST, LONGEST);
    loop {
        let status = until_it_ends(&link, || waits = delays(SHORTEST, LONGEST)).await;
        tracing::info!(cluster = link.name(), code = ?status.code(), message = status.message(), "the stream ended");
        link.learn(|observed| {
            observed.lost(format!("{:?}: {}", status.code(), status.message()), stamp::now());
        });
        link.disconnect().await;
        tokio::time::sleep(waits.next().unwrap_or(LONGEST)).await;
    }
}

async fn until_it_ends(link: &Link, mut told: impl FnMut()) -> Status {
    let mut stream = match link.watch().await {
        Ok(stream) => stream,
        Err(status) => return status,
    };
    // What the CRM says of itself now: a stream that goes on where it ended doesn't begin with it.
    let stale = match link.ask_info().await {
        Ok(info) => info.stale,
        Err(status) => return status,
    };
    link.learn(|observed| observed.opened(stale, stamp::now()));
    loop {
        match stream.message().await {
            Ok(Some(event)) => {
                told();
                link.learn(|observed| observed.apply(event, stamp::now()));
            }
            Ok(None) => return Status::unavailable("the CRM has ended the stream"),
            Err(status) => return status,
        }
    }
}
