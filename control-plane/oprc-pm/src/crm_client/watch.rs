//! Follows a cluster's watch stream.

use std::{convert::Infallible, time::Duration};

use tonic::Status;

use super::client::CrmClient;
use crate::{backoff, clock};

const MIN_RECONNECT_DELAY: Duration = Duration::from_millis(200);
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(15);

/// Opens the stream, again whenever it ends. Never returns.
pub(super) async fn follow(client: &CrmClient) {
    backoff::repeat(MIN_RECONNECT_DELAY, MAX_RECONNECT_DELAY, || async {
        let mut progressed = false;
        let Err(status) = run(client, &mut progressed).await;
        let (code, message) = (status.code(), status.message());
        tracing::info!(
            cluster = client.name(),
            ?code,
            message,
            "lost the watch stream, reconnecting"
        );
        client
            .update_cache(|cache| cache.disconnected(format!("{code:?}: {message}"), clock::now()));
        client.disconnect().await;
        progressed
    })
    .await;
}

/// Returns why the stream ended. `progressed` is set when it has delivered something.
async fn run(client: &CrmClient, progressed: &mut bool) -> Result<Infallible, Status> {
    let mut stream = client.watch().await?;
    // A resumed stream may begin without an event, and older CRMs never send cluster info.
    let info = client.fetch_info().await?;
    client.update_cache(|cache| cache.connected(info, clock::now()));
    while let Some(event) = stream.message().await? {
        *progressed = true;
        client.update_cache(|cache| cache.apply(event, clock::now()));
    }
    Err(Status::unavailable("the CRM has closed the stream"))
}
