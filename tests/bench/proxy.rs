//! Overhead of the API proxy: requests through it compared with direct ones.

#![allow(clippy::expect_used, clippy::print_stdout, clippy::unwrap_used)]

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use oprc_sandbox::proxy::ApiProxy;
use oprc_tests::with_simulated;

const REQUESTS: u32 = 500;
const PAIRS: u32 = 5;

#[tokio::main]
async fn main() {
    with_simulated("bench-proxy", 1, async |cluster| {
        let proxy = ApiProxy::start(&cluster).await.unwrap();
        let through: Api<Namespace> = Api::all(proxy.client("bench", Some("system:masters")).await.unwrap());
        let direct: Api<Namespace> = Api::all(cluster.client().await.unwrap());
        let mut ratios = Vec::new();
        for _ in 0..PAIRS {
            let past = gets(&direct).await;
            let by = gets(&through).await;
            ratios.push(by.as_secs_f64() / past.as_secs_f64());
        }
        ratios.sort_by(f64::total_cmp);
        let median = ratios.get(ratios.len() / 2).copied().unwrap_or_default();
        println!("{REQUESTS} gets one after the other: through the proxy {median:.2} times as long as past it");
    })
    .await;
}

async fn gets(api: &Api<Namespace>) -> Duration {
    let started = Instant::now();
    for _ in 0..REQUESTS {
        api.get("default").await.unwrap();
    }
    started.elapsed()
}
