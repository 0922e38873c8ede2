//! The time until a class is Available on a real node: with a data grid, compared with one without.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::print_stdout, clippy::unwrap_used)]

use std::time::{Duration, Instant};

use oprc_tests::{
    TestNamespace,
    class::{delete, deploy, hello, spec_of, wait_available, wait_deleted, with_odgm},
    crm::{Crm, Options},
    fixture::with_crm,
};
use serde_json::{Value, json};

const ROUNDS: usize = 5;
const MAX_RATIO: f64 = 1.5;

async fn start(ns: &TestNamespace, crm: &Crm, name: &str, spec: &Value) -> Duration {
    let started = Instant::now();
    deploy(&crm.client, name, spec).await.unwrap();
    wait_available(ns, name).await;
    let took = started.elapsed();
    delete(&crm.client, name).await.unwrap();
    wait_deleted(ns, name).await;
    took
}

fn median(mut all: Vec<Duration>) -> f64 {
    all.sort();
    all.get(all.len() / 2).unwrap().as_secs_f64()
}

/// Classes without a grid and with one.
fn specs(with_proxy: bool) -> [Value; 2] {
    [spec_of(&[hello("f")]), with_odgm(&[hello("f")])].map(|mut spec| {
        // A proxy is in front of functions with requirements.
        if with_proxy {
            spec["nfr_requirements"] = json!({"max_latency_ms": 500});
        }
        spec
    })
}

#[tokio::main]
async fn main() {
    let variants = [("without a proxy", specs(false)), ("with a proxy", specs(true))];
    with_crm(&Options::default(), async |ns: &TestNamespace, crm: &Crm| {
        // Images are unpacked and cached.
        start(ns, crm, "warm-up", &variants[1].1[1]).await;
        let mut times = variants.each_ref().map(|_| [Vec::new(), Vec::new()]);
        for round in 0..ROUNDS {
            for (times, (_, specs)) in times.iter_mut().zip(&variants) {
                for (number, spec) in specs.iter().enumerate() {
                    let name = format!("class-{round}-{number}");
                    times[number].push(start(ns, crm, &name, spec).await);
                }
            }
        }
        println!(
            "time until a class of one function is Available, medians of {ROUNDS} alternating runs; limit of the ratio with a proxy {MAX_RATIO}:"
        );
        let mut ratios = Vec::new();
        for ((what, _), times) in variants.iter().zip(times) {
            let [without, with] = times.map(median);
            let ratio = with / without;
            println!("  {what:15} no grid {without:.2} s, grid {with:.2} s, ratio {ratio:.2}");
            ratios.push(ratio);
        }
        // Without a proxy, a class starts so fast that the second in which the kubelet notices the end of
        // an init container exceeds the limit.
        let with_proxy = ratios[1];
        assert!(with_proxy <= MAX_RATIO, "{with_proxy}");
    })
    .await;
}
