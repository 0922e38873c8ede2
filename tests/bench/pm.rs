//! PM with ten thousand packages: latency at a thousand reads per second compared with empty
//! requests; durable writes compared with a plain redb and etcd on the same disk; and memory.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use hyper::{Method, http::uri::PathAndQuery};
use oprc_tests::{
    etcd::Etcd,
    pm::{ADMIN, Pm, Setup},
};
use redb::{Database, ReadableDatabase as _, TableDefinition};
use serde_json::json;
use tonic::{client::Grpc, transport::Endpoint};
use tonic_prost::ProstCodec;

const PACKAGES: usize = 10_000;
/// Packages per request: each takes two entries of a transaction.
const TOGETHER: usize = 40;
const PER_SECOND: u32 = 1000;
const SECONDS: u32 = 10;
const WRITES: usize = 500;
const AT_ONCE: usize = 16;
const TABLE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("plain");

fn package(number: usize) -> String {
    json!({
        "name": format!("package-{number}"),
        "version": "1.0.0",
        "metadata": {"description": "One of many.", "tags": ["bench", format!("tag-{}", number % 100)]},
        "functions": [{"key": "f", "provision": {"deployment": {"image": "example.org/f:1"}}}],
        "classes": [{"key": "A", "functions": [{"name": "f", "function": "f"}]}],
    })
    .to_string()
}

/// Sends requests at a constant rate, and returns their sorted latencies since their scheduled
/// times.
async fn reads(pm: &Pm, path: impl Fn(u32) -> String) -> Vec<Duration> {
    let started = Instant::now();
    let count = PER_SECOND * SECONDS;
    let mut took: Vec<_> = stream::iter(0..count)
        .map(|number| {
            let (at, path) = (started + Duration::from_secs(1) / PER_SECOND * number, path(number));
            async move {
                tokio::time::sleep_until(at.into()).await;
                let (status, response) =
                    pm.ask(Method::GET, &path, None, Some(ADMIN)).await.unwrap();
                assert!(status.is_success(), "{status}: {response}");
                at.elapsed()
            }
        })
        .buffer_unordered(1000)
        .collect()
        .await;
    took.sort_unstable();
    took
}

fn part(sorted: &[Duration], part: f64) -> f64 {
    let at = (sorted.len() as f64 * part) as usize;
    sorted[at.min(sorted.len() - 1)].as_secs_f64() * 1000.0
}

/// Publishes packages concurrently, one per request; returns the number per second.
async fn publishes(pm: &Pm, from: usize) -> f64 {
    let started = Instant::now();
    stream::iter(from..from + WRITES)
        .for_each_concurrent(AT_ONCE, |number| async move {
            pm.publish_text(&package(number)).await.unwrap();
        })
        .await;
    WRITES as f64 / started.elapsed().as_secs_f64()
}

/// The entries of a published package: its index and the version.
fn entries(number: usize) -> [(String, String); 2] {
    let name = format!("package-{number}");
    let head = json!({"versions": {"1.0.0": null}}).to_string();
    [(format!("package/{name}"), head), (format!("version/{name}/1.0.0"), package(number))]
}

/// Writes the same entries to a plain redb, with `together` packages per durable transaction.
fn plain_redb(folder: &std::path::Path, together: usize) -> f64 {
    let database = Database::create(folder.join(format!("plain-{together}.redb"))).unwrap();
    let started = Instant::now();
    let all: Vec<_> = (0..WRITES).collect();
    for some in all.chunks(together) {
        let write = database.begin_write().unwrap();
        {
            let mut table = write.open_table(TABLE).unwrap();
            for (key, value) in some.iter().copied().flat_map(entries) {
                table.insert(key.as_str(), value.as_bytes()).unwrap();
            }
        }
        write.commit().unwrap();
    }
    let rate = WRITES as f64 / started.elapsed().as_secs_f64();
    assert!(database.begin_read().unwrap().open_table(TABLE).is_ok());
    rate
}

/// The part of etcd's API that creates entries.
mod raw {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Compare {
        /// 1 compares the creation revision, which is 0 for a missing key.
        #[prost(int32, tag = "2")]
        pub(super) target: i32,
        #[prost(string, tag = "3")]
        pub(super) key: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Put {
        #[prost(string, tag = "1")]
        pub(super) key: String,
        #[prost(string, tag = "2")]
        pub(super) value: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Operation {
        #[prost(message, optional, tag = "2")]
        pub(super) put: Option<Put>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Transaction {
        #[prost(message, repeated, tag = "1")]
        pub(super) compare: Vec<Compare>,
        #[prost(message, repeated, tag = "2")]
        pub(super) success: Vec<Operation>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Outcome {
        #[prost(bool, tag = "2")]
        pub(super) succeeded: bool,
    }
}

/// Writes the same entries to etcd by plain calls.
async fn plain_etcd(endpoint: &str) -> f64 {
    let channel = Endpoint::from_shared(endpoint.to_owned()).unwrap().connect().await.unwrap();
    let started = Instant::now();
    stream::iter(0..WRITES)
        .for_each_concurrent(AT_ONCE, |number| {
            let mut client = Grpc::new(channel.clone());
            async move {
                let mut change = raw::Transaction::default();
                for (key, value) in entries(number) {
                    let key = format!("plain/{key}");
                    change.compare.push(raw::Compare { target: 1, key: key.clone() });
                    let put = Some(raw::Put { key, value });
                    change.success.push(raw::Operation { put });
                }
                client.ready().await.unwrap();
                let path = PathAndQuery::from_static("/etcdserverpb.KV/Txn");
                let codec: ProstCodec<raw::Transaction, raw::Outcome> = ProstCodec::default();
                let response = client.unary(tonic::Request::new(change), path, codec).await;
                assert!(response.unwrap().into_inner().succeeded);
            }
        })
        .await;
    WRITES as f64 / started.elapsed().as_secs_f64()
}

#[tokio::main]
async fn main() {
    let setup = Setup::default().with("OPRC_PM_SERVER_RATE_LIMIT", "0").with("RUST_LOG", "info");
    let pm = Pm::start(&setup).await;
    let started = Instant::now();
    for first in (0..PACKAGES).step_by(TOGETHER) {
        let some: Vec<_> = (first..first + TOGETHER).map(package).collect();
        pm.publish_text(&some.join("\n---\n")).await.unwrap();
    }
    println!("{PACKAGES} packages published in {:.1} s", started.elapsed().as_secs_f64());
    let nothing = reads(&pm, |_| "/health/live".to_owned()).await;
    let one =
        |number: u32| format!("/api/v1/packages/package-{}", number as usize * 7919 % PACKAGES);
    let page = |number: u32| format!("/api/v1/packages?limit=20&tags=tag-{}", number % 100);
    for (what, took) in
        [("a package", reads(&pm, one).await), ("a page of 20 by tag", reads(&pm, page).await)]
    {
        println!(
            "reads of {what} at {PER_SECOND}/s: p50 {:.1} ms, p99 {:.1} ms, {:.1} times that of requests for nothing ({:.1} ms)",
            part(&took, 0.5),
            part(&took, 0.99),
            part(&took, 0.99) / part(&nothing, 0.99),
            part(&nothing, 0.99),
        );
    }
    let plain = plain_redb(pm.folder(), 1);
    let batched = plain_redb(pm.folder(), AT_ONCE);
    let rate = publishes(&pm, PACKAGES).await;
    println!(
        "durable writes in redb: {rate:.0}/s, {:.2} times those of a plain redb by {AT_ONCE} ({batched:.0}/s), {:.2} times those one by one ({plain:.0}/s)",
        rate / batched,
        rate / plain
    );
    println!(
        "resident memory with {} packages: {:.0} MB at most",
        PACKAGES + WRITES,
        pm.peak_memory()
    );
    drop(pm);
    let etcd = Etcd::durable();
    let pm = Pm::start(&setup.in_etcd(&etcd.endpoint(), "oprc")).await;
    let plain = plain_etcd(&etcd.endpoint()).await;
    let rate = publishes(&pm, 0).await;
    println!(
        "durable writes in etcd: {rate:.0}/s, {:.2} times those of plain transactions ({plain:.0}/s)",
        rate / plain
    );
    println!("resident memory with {WRITES} packages in etcd: {:.0} MB at most", pm.peak_memory());
}
