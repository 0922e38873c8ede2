//! `oprc nfr simulate`: plays a recorded load against a model of a function.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Result, bail, ensure};
use clap::Args;
use oprc_nfr::simulate::{Function, Outcome, Policy, parse_trace, scale_to_instances, simulate};
use serde::Serialize;

use crate::{
    error::CliError,
    output::{Column, Format, OutputArgs, api_name, duration, table},
};

/// A year of seconds with 7 characters each fits.
const MAX_TRACE_SIZE: usize = 256 << 20;

/// Nothing is changed or contacted: the load is played against a model of the function, once for
/// each way to choose the number of instances.
#[derive(Debug, Args)]
#[command(
    after_help = "The model: an instance serves one call at a time, and calls wait while all instances are busy (M/M/n).\nA second is in violation if the 95th percentile of waiting times plus --service-time exceeds --p95.\nEnforcement learns the service time from measurements, as CRM does.\n\nPolicies: fixed (the number for the first second), hpa (a HorizontalPodAutoscaler with a CPU target of\n70 %), enforced, enforcedWithHpa (enforcement sets the minimum of the autoscaler) and oracle (perfect\nforesight).\n\nExamples:\n  oprc nfr simulate --trace load.txt --service-time 100ms --p95 300ms --startup 15s\n  oprc nfr simulate --trace load.txt --service-time 20ms --p95 50ms --startup 40s --peak-replicas 20 -o json"
)]
pub(crate) struct Simulate {
    /// File with the requests of each second, one number per line; `-` reads standard input.
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// Time that an instance is busy with one call.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    service_time: Duration,
    /// Required latency that 95 % of calls must not exceed.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    p95: Duration,
    /// Time from the creation of an instance until it serves calls.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration::parse)]
    startup: Duration,
    /// Scale the load so that its peak needs this many instances.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    peak_replicas: Option<u32>,
    /// Maximum number of instances; default: 50, or twice --peak-replicas if that is more.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max_replicas: Option<u32>,
    #[command(flatten)]
    show: OutputArgs,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Simulation {
    seconds: usize,
    mean_rate: f64,
    peak_rate: f64,
    service_time_ms: f64,
    p95_ms: f64,
    startup_seconds: u32,
    max_replicas: u32,
    policies: Vec<PolicyResult>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PolicyResult {
    policy: Policy,
    #[serde(flatten)]
    outcome: Outcome,
    /// Share of the time in which the requirement was violated.
    violation_percent: f64,
    /// Replica-hours relative to those of the autoscaler.
    replica_hours_of_hpa: f64,
}

pub(super) fn run(simulate: &Simulate) -> Result<()> {
    if simulate.show.output == Format::Name {
        simulate.show.reject_formats(&[Format::Name])?;
    }
    let simulation = simulate.run()?;
    let policies = &simulation.policies;
    simulate
        .show
        .one(&simulation, &[""; 0], |_| table(policies, &COLUMNS, !simulate.show.no_headers))
}

const COLUMNS: [Column<PolicyResult>; 6] = [
    ("POLICY", |it| api_name(&it.policy)),
    ("VIOLATED", |it| format!("{:.2}%", it.violation_percent)),
    ("REPLICA-HOURS", |it| format!("{:.1}", it.outcome.replica_hours)),
    ("OF HPA", |it| format!("{:.2}", it.replica_hours_of_hpa)),
    ("CHANGES", |it| it.outcome.changes.to_string()),
    ("MAX", |it| it.outcome.max_replicas.to_string()),
];

impl Simulate {
    fn run(&self) -> Result<Simulation> {
        let function = self.function()?;
        let mut load = self.load()?;
        if let Some(peak) = self.peak_replicas {
            scale_to_instances(&mut load, &function, peak);
        }
        let outcomes = Policy::ALL.map(|policy| (policy, simulate(&load, &function, policy)));
        let of_hpa = outcomes.iter().find(|it| it.0 == Policy::Hpa);
        let hpa_hours = of_hpa.map_or(f64::NAN, |it| it.1.replica_hours);
        // Traces are far shorter than 2^52 seconds.
        #[allow(clippy::cast_precision_loss)]
        let seconds = load.len() as f64;
        let result = |(policy, outcome): (Policy, Outcome)| PolicyResult {
            policy,
            outcome,
            violation_percent: 100.0 * f64::from(outcome.violation_seconds) / seconds,
            replica_hours_of_hpa: outcome.replica_hours / hpa_hours,
        };
        Ok(Simulation {
            seconds: load.len(),
            mean_rate: load.iter().sum::<f64>() / seconds,
            peak_rate: load.iter().copied().fold(0.0, f64::max),
            service_time_ms: 1000.0 * function.service_time,
            p95_ms: 1000.0 * function.p95,
            startup_seconds: function.startup,
            max_replicas: function.max_instances,
            policies: outcomes.into_iter().map(result).collect(),
        })
    }

    fn function(&self) -> Result<Function> {
        let invalid = |why: &str| CliError::InvalidInput(why.to_owned());
        ensure!(!self.service_time.is_zero(), invalid("--service-time must be more than 0"));
        ensure!(self.p95 > self.service_time, invalid("--p95 must be more than --service-time"));
        let startup = self.startup.as_secs_f64().round();
        ensure!(startup <= 3600.0, invalid("--startup must be at most 1h"));
        let planned = self.peak_replicas.unwrap_or(0).saturating_mul(2).max(50);
        Ok(Function {
            service_time: self.service_time.as_secs_f64(),
            p95: self.p95.as_secs_f64(),
            // The number is between 0 and 3600.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            startup: startup as u32,
            max_instances: self.max_replicas.unwrap_or(planned),
        })
    }

    fn load(&self) -> Result<Vec<f64>> {
        let name = self.trace.display();
        let invalid = |why: String| CliError::InvalidInput(format!("{name}: {why}"));
        let text = read(&self.trace).map_err(|error| invalid(error.to_string()))?;
        if text.len() > MAX_TRACE_SIZE {
            bail!(invalid(format!("exceeds the limit of {MAX_TRACE_SIZE} bytes")));
        }
        Ok(parse_trace(&text).map_err(|error| invalid(error.to_string()))?)
    }
}

/// Reads one byte more than allowed, to detect larger files.
fn read(path: &Path) -> io::Result<String> {
    let limit = u64::try_from(MAX_TRACE_SIZE).unwrap_or(u64::MAX).saturating_add(1);
    let mut text = String::new();
    if path == Path::new("-") {
        io::stdin().lock().take(limit).read_to_string(&mut text)?;
    } else {
        File::open(path)?.take(limit).read_to_string(&mut text)?;
    }
    Ok(text)
}
