//! CRM under faults: crashes, freezes and failures of the API server.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod crash_recovery;
mod leader;
mod lifecycle_stages;
mod outage;
mod request_counts;
mod watches;
mod write_errors;

use oprc_sandbox::{NodeChoice, Options};
use oprc_tests::{
    TestNamespace, crm::install, hello_archive, in_namespace, in_namespace_of, with_cluster,
    with_simulated,
};

// Tests are boxed, because their nested futures overflow the stack.

/// Runs a test in a namespace of a simulated cluster of its own.
async fn in_own_cluster(name: &str, test: impl AsyncFnOnce(&TestNamespace)) {
    Box::pin(with_simulated(name, 1, async |cluster| {
        install(&cluster);
        in_namespace_of(cluster, async |ns: &TestNamespace| Box::pin(test(ns)).await).await;
    }))
    .await;
}

/// Like [`in_own_cluster`] with a real node, which runs the sample function.
async fn in_own_real_cluster(name: &str, test: impl AsyncFnOnce(&TestNamespace)) {
    let options = Options { node: NodeChoice::Real, no_fsync: true, ..Options::default() };
    Box::pin(with_cluster(name, &options, async |cluster| {
        cluster.load_image(&hello_archive()).await.unwrap();
        install(&cluster);
        in_namespace_of(cluster, async |ns: &TestNamespace| Box::pin(test(ns)).await).await;
    }))
    .await;
}

async fn is_ready(ns: &TestNamespace) -> Result<String, String> {
    let request = axum::http::Request::get("/readyz").body(Vec::new()).unwrap();
    ns.client.request_text(request).await.map_err(|error| error.to_string())
}

/// Runs a test in a namespace of the shared cluster.
async fn in_shared_cluster(test: impl AsyncFnOnce(&TestNamespace)) {
    Box::pin(in_namespace(async |ns: &TestNamespace| Box::pin(test(ns)).await)).await;
}
