//! Calls of a data grid's objects, each beside its limit: a server that has the same HTTP API, and
//! that for each call only calls the function and commits the same transaction on the same store.
//! Also memory, and the cost of calls with few and with many objects.
//!
//! Arguments choose engines.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used
)]

mod limit;
mod load;
mod objects;
mod servers;

use std::process::ExitCode;

use load::Workload;
use servers::{Engine, Sample, Servers};

const ROUNDS: usize = 5;
/// Clients of one object, and of many.
const CALLERS: usize = 16;
const CLIENTS: usize = 64;
/// Of the throughput of the limit.
const MIN_RATIO: f64 = 0.6;
/// Of the cost of a call with few objects.
const MAX_GROWTH: f64 = 1.25;
const FEW: usize = limit::OBJECTS;
const SOME: usize = 100_000;
const MANY: usize = 1_000_000;

const MANY_OBJECTS: Workload = Workload { objects: FEW, clients: CLIENTS, keyed: false };
const WORKLOADS: [(&str, Workload); 3] = [
    ("one object", Workload { objects: 1, clients: CALLERS, keyed: false }),
    ("1,000 objects", MANY_OBJECTS),
    ("1,000 objects, with idempotency keys", Workload { keyed: true, ..MANY_OBJECTS }),
];

#[tokio::main]
async fn main() -> ExitCode {
    if let Ok(settings) = std::env::var(limit::VARIABLE) {
        limit::serve(&settings).await;
    }
    println!(
        "Medians of {ROUNDS} alternating runs; {CALLERS} clients of one object, {CLIENTS} of many."
    );
    let function = load::function().await;
    let mut holds = true;
    let chosen: Vec<_> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    let is_chosen = |it: &Engine| chosen.is_empty() || chosen.iter().any(|name| name == it.name());
    for engine in [Engine::Memory, Engine::Redb, Engine::Etcd].into_iter().filter(is_chosen) {
        let grid = Servers::grid(engine, &function, FEW).await;
        holds &= beside_limit(engine, &function, &grid).await;
        holds &= with_more_objects(engine, &function, &grid).await;
    }
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Measures a grid and its limit alternately.
async fn beside_limit(engine: Engine, function: &str, grid: &Servers) -> bool {
    let limit = Servers::limit(engine, function, grid).await;
    let (mut runs, mut raw) = (WORKLOADS.map(|_| [Vec::new(), Vec::new()]), Vec::new());
    for round in 0..=ROUNDS {
        for ((_, workload), [of_grid, of_limit]) in WORKLOADS.iter().zip(&mut runs) {
            let sample = grid.measure(*workload, None).await;
            let limit = limit.measure(*workload, Some(grid)).await;
            // The first run warms up.
            if round > 0 {
                of_grid.push(sample);
                of_limit.push(limit);
            }
        }
        raw.push(limit.raw(CLIENTS).await);
    }
    let name = engine.name();
    println!("{name}: the raw store commits {:.0} of these transactions/s", median(raw));
    let mut holds = true;
    for ((what, _), [of_grid, of_limit]) in WORKLOADS.iter().zip(runs) {
        let ratios = of_grid.iter().zip(&of_limit).map(|(grid, limit)| grid.rate / limit.rate);
        let ratio = median(ratios.collect());
        let (grid, limit) = (Sample::median(&of_grid), Sample::median(&of_limit));
        println!(
            "{name}, {what}: {:.0} calls/s, {ratio:.2} of the limit ({:.0}/s); \
            p50 {:.2} ms ({:.2}), p99 {:.2} ms ({:.2}); {:.0} µs CPU per call ({:.0})",
            grid.rate, limit.rate, grid.p50, limit.p50, grid.p99, limit.p99, grid.cpu, limit.cpu,
        );
        if ratio < MIN_RATIO {
            println!("  FAILED: expected at least {MIN_RATIO}");
            holds = false;
        }
    }
    holds
}

/// Measures memory, and the cost of calls with few and with many objects alternately.
async fn with_more_objects(engine: Engine, function: &str, few: &Servers) -> bool {
    let name = engine.name();
    let all = |objects| Workload { objects, ..MANY_OBJECTS };
    let mut many = Servers::grid(engine, function, SOME).await;
    many.measure(all(SOME), None).await;
    println!("{name}, {SOME} objects: {:.0} MB resident", many.resident());
    let mut count = SOME;
    if engine != Engine::Etcd {
        count = MANY;
        many = Servers::grid(engine, function, count).await;
        many.measure(all(count), None).await;
    }
    let (mut of_few, mut of_many) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        of_few.push(few.measure(all(FEW), None).await);
        of_many.push(many.measure(all(count), None).await);
    }
    let (few, many) = (Sample::median(&of_few), Sample::median(&of_many));
    let growth = many.cpu / few.cpu;
    println!(
        "{name}, {count} objects: {:.0} µs CPU per call, {growth:.2} of that with {FEW} ({:.0}); \
        {:.0} calls/s ({:.0}), p99 {:.2} ms ({:.2})",
        many.cpu, few.cpu, many.rate, few.rate, many.p99, few.p99,
    );
    if growth > MAX_GROWTH {
        println!("  FAILED: expected at most {MAX_GROWTH}");
    }
    growth <= MAX_GROWTH
}

impl Sample {
    fn median(all: &[Self]) -> Self {
        let of = |field: fn(&Self) -> f64| median(all.iter().map(field).collect());
        let (rate, p50) = (of(|it| it.rate), of(|it| it.p50));
        Self { rate, p50, p99: of(|it| it.p99), cpu: of(|it| it.cpu) }
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
