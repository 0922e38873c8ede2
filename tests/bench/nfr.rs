//! Enforcement compared with an autoscaler in the simulator: every curve, 20 seeds, three start-up
//! times. The parameters of enforcement were chosen on other seeds.

#![allow(clippy::print_stdout)]

use std::process::ExitCode;

use oprc_nfr::simulate::{Comparison, Curve, Function, Outcome, Policy, simulate};

const SEEDS: u64 = 20;
/// The peak load, which needs about 20 instances.
const SCALE: f64 = 160.0;

fn main() -> ExitCode {
    let mut failed = false;
    println!(
        "curve   start-up  hpa: violated, hours    enforced: violated, hours of hpa    oracle: hours of hpa"
    );
    for curve in Curve::ALL {
        for startup in [5, 15, 40] {
            let (outcomes, seconds) = totals(curve, startup);
            let [_, hpa, enforced, _, oracle] = outcomes;
            let percent = |it: Outcome| 100.0 * f64::from(it.violation_seconds) / seconds;
            println!(
                "{:7} {startup:>4} s  {:>9.2} % {:>11.1} {:>15.2} % {:>13.2} {:>25.2}",
                format!("{curve:?}").to_lowercase(),
                percent(hpa),
                hpa.replica_hours,
                percent(enforced),
                enforced.replica_hours / hpa.replica_hours,
                oracle.replica_hours / hpa.replica_hours,
            );
            for failure in Comparison::of(curve, &outcomes).failures() {
                failed = true;
                println!("  FAILED: {failure}");
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Sums over all seeds, and the number of simulated seconds.
fn totals(curve: Curve, startup: u32) -> ([Outcome; 5], f64) {
    let function = Function { service_time: 0.1, p95: 0.3, startup, max_instances: 50 };
    let mut totals = [Outcome::default(); 5];
    let mut seconds = 0.0;
    for seed in 0..SEEDS {
        let load = curve.generate(seed, SCALE);
        seconds += load.iter().map(|_| 1.0).sum::<f64>();
        for (total, policy) in totals.iter_mut().zip(Policy::ALL) {
            *total += simulate(&load, &function, policy);
        }
    }
    (totals, seconds)
}
