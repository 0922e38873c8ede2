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

#[tokio::main]
async fn main() {
    let mut specs =
        [("without a grid", spec_of(&[hello("f")])), ("with a grid", with_odgm(&[hello("f")]))];
    for (_, spec) in &mut specs {
        // A proxy is in front of functions with requirements.
        spec["nfr_requirements"] = json!({"max_latency_ms": 500});
    }
    with_crm(&Options::default(), async |ns: &TestNamespace, crm: &Crm| {
        // Images are unpacked and cached.
        start(ns, crm, "warm-up", &specs[1].1).await;
        let mut times = [Vec::new(), Vec::new()];
        for round in 0..ROUNDS {
            for (number, (_, spec)) in specs.iter().enumerate() {
                let name = format!("class-{round}-{number}");
                times[number].push(start(ns, crm, &name, spec).await);
            }
        }
        let medians = times.map(median);
        println!(
            "time until a class of one function is Available, medians of {ROUNDS} alternating runs:"
        );
        for ((what, _), seconds) in specs.iter().zip(medians) {
            println!("  {what:16} {seconds:.2} s");
        }
        let ratio = medians[1] / medians[0];
        println!("  ratio            {ratio:.2}, limit {MAX_RATIO}");
        assert!(ratio <= MAX_RATIO, "{ratio}");
    })
    .await;
}
