//! Plays a load, one value per second, against a model of a function, for different ways to choose
//! the number of instances.
//!
//! The model: instances serve one call at a time with exponentially distributed service times, and
//! calls that find all instances busy wait (M/M/n). A second is in violation if the 95th percentile
//! of its waiting times exceeds what the requirement leaves beside the service time, or if calls of
//! earlier seconds still wait that long. An instance serves calls after its start-up time and costs
//! from its creation to its deletion.
//!
//! A policy gets no signals that it wouldn't have in a cluster: the autoscaler sees CPU usage of 15 to 30 seconds
//! ago, and enforcement sees request rates of 5 to 25 seconds ago.

mod comparison;
mod curves;
mod hpa;
mod trace;

use std::collections::VecDeque;

use serde::Serialize;

use crate::{
    convert::{ceil, count},
    forecast::History,
    queueing::{instances_for, wait_quantile},
    replicas::{Bounds, Input, Needs, Safeguards, decide},
};

use self::hpa::{Autoscaler, PodCpu};
pub use self::{
    comparison::Comparison,
    curves::Curve,
    trace::{TraceError, parse_trace, scale_to_instances},
};

/// Seconds between two decisions, of the autoscaler and of enforcement.
const INTERVAL: u32 = 15;
/// Age of the newest request rate, in seconds: half of a scrape interval of 10 s.
const RATE_DELAY: usize = 5;
/// Seconds over which a request rate is measured: two scrape intervals.
const RATE_WINDOW: usize = 20;
/// The autoscaler's CPU target in percent.
const CPU_TARGET: u32 = 70;
/// Calls that wait longer than this many seconds give up.
const PATIENCE: f64 = 10.0;

/// The function and its latency requirement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Function {
    /// Seconds that an instance is busy with one call.
    pub service_time: f64,
    /// Seconds that 95 % of calls must not exceed.
    pub p95: f64,
    /// Seconds from the creation of an instance until it serves.
    pub startup: u32,
    pub max_instances: u32,
}

impl Function {
    /// Seconds that calls may wait.
    fn wait(&self) -> f64 {
        self.p95 - self.service_time
    }

    /// The smallest number of instances that meets the requirement.
    fn instances(&self, rate: f64) -> u32 {
        let wait = self.wait() / self.service_time;
        instances_for(rate * self.service_time, wait, self.max_instances)
    }
}

/// How the number of instances is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Policy {
    /// The number for the first second, for good.
    Fixed,
    /// A HorizontalPodAutoscaler with a CPU target of 70 %.
    Hpa,
    /// Enforcement of the requirement.
    Enforced,
    /// Enforcement that sets the minimum of the autoscaler.
    EnforcedWithHpa,
    /// Perfect foresight: what no real policy can do better.
    Oracle,
}

impl Policy {
    pub const ALL: [Self; 5] =
        [Self::Fixed, Self::Hpa, Self::Enforced, Self::EnforcedWithHpa, Self::Oracle];
}

/// What a policy achieved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    pub violation_seconds: u32,
    pub replica_hours: f64,
    /// How often the number of instances changed.
    pub changes: u32,
    pub max_replicas: u32,
}

impl std::ops::AddAssign for Outcome {
    fn add_assign(&mut self, other: Self) {
        self.violation_seconds += other.violation_seconds;
        self.replica_hours += other.replica_hours;
        self.changes += other.changes;
        self.max_replicas = self.max_replicas.max(other.max_replicas);
    }
}

/// Plays a load of requests per second.
pub fn simulate(load: &[f64], function: &Function, policy: Policy) -> Outcome {
    if policy == Policy::Oracle {
        return oracle(load, function);
    }
    let mut run = Run::new(load, function);
    let mut controller = Controller::new(policy, function, run.number());
    for (now, &rate) in (0_u32..).zip(load) {
        run.serve(now, rate);
        if now > 0 && now % INTERVAL == 0 {
            controller.observe(load, now);
            let number = controller.decide(&run, now);
            run.scale(now, number);
        }
    }
    run.outcome
}

/// The smallest number that always meets the requirement: instances are created their start-up time
/// before they are needed.
fn oracle(load: &[f64], function: &Function) -> Outcome {
    let mut outcome = Outcome::default();
    let mut previous = None;
    // The maximum of a sliding window: later and larger needs supersede earlier ones.
    let mut window: VecDeque<(usize, u32)> = VecDeque::new();
    let startup = usize::try_from(function.startup).unwrap_or_default();
    for (second, &rate) in load.iter().enumerate().rev() {
        let needed = function.instances(rate);
        let is_enough = wait_quantile(needed, rate * function.service_time) * function.service_time
            <= function.wait();
        outcome.violation_seconds += u32::from(!is_enough);
        while window.back().is_some_and(|it| it.1 <= needed) {
            window.pop_back();
        }
        window.push_back((second, needed));
        while window.front().is_some_and(|it| it.0 > second + startup) {
            window.pop_front();
        }
        let number = window.front().map_or(needed, |it| it.1);
        outcome.changes += u32::from(previous.is_some_and(|it| it != number));
        outcome.max_replicas = outcome.max_replicas.max(number);
        outcome.replica_hours += f64::from(number) / 3600.0;
        previous = Some(number);
    }
    outcome
}

#[derive(Clone, Copy)]
struct Instance {
    created: u32,
    ready: u32,
}

struct Run<'a> {
    function: &'a Function,
    instances: Vec<Instance>,
    /// Calls that wait since earlier seconds.
    backlog: f64,
    /// The share of busy instances in each second.
    utilisation: Vec<f64>,
    outcome: Outcome,
}

impl<'a> Run<'a> {
    fn new(load: &[f64], function: &'a Function) -> Self {
        let offered = load.first().copied().unwrap_or_default() * function.service_time;
        let number = ceil(100.0 * offered / f64::from(CPU_TARGET)).clamp(1, function.max_instances);
        let instances = vec![Instance { created: 0, ready: 0 }; number.try_into().unwrap_or(1)];
        let outcome = Outcome { max_replicas: number, ..Outcome::default() };
        Self { function, instances, backlog: 0.0, utilisation: Vec::new(), outcome }
    }

    fn number(&self) -> u32 {
        u32::try_from(self.instances.len()).unwrap_or(u32::MAX)
    }

    fn serve(&mut self, now: u32, rate: f64) {
        let ready = self.instances.iter().filter(|it| it.ready <= now).count();
        let Function { service_time, .. } = *self.function;
        let capacity = count(ready) / service_time;
        let served = (rate + self.backlog).min(capacity);
        self.backlog = (self.backlog + rate - served).min(capacity * PATIENCE);
        let ready = u32::try_from(ready).unwrap_or(u32::MAX);
        let wait = wait_quantile(ready, rate * service_time) * service_time;
        let waiting = self.backlog / capacity;
        // NaN if nothing is ready and nothing waits.
        let violated = wait > self.function.wait() || waiting > self.function.wait();
        self.outcome.violation_seconds += u32::from(violated);
        self.outcome.replica_hours += f64::from(self.number()) / 3600.0;
        self.utilisation.push(if capacity > 0.0 { served / capacity } else { 0.0 });
    }

    /// As a ReplicaSet does: those that started last are deleted first.
    fn scale(&mut self, now: u32, number: u32) {
        if number == self.number() {
            return;
        }
        let instance = Instance { created: now, ready: now + self.function.startup };
        self.instances.sort_by_key(|it| it.ready);
        self.instances.resize(number.try_into().unwrap_or(usize::MAX), instance);
        self.outcome.changes += 1;
        self.outcome.max_replicas = self.outcome.max_replicas.max(number);
    }

    /// CPU usage as the autoscaler sees it: that of 15 to 30 seconds ago, of pods that were ready.
    fn cpu(&self, now: u32) -> Vec<PodCpu> {
        let window =
            |seconds: u32| usize::try_from(now.saturating_sub(seconds)).unwrap_or_default();
        let measured = self.utilisation.get(window(30)..window(15)).unwrap_or_default();
        let usage = measured.iter().sum::<f64>() / count(measured.len());
        let seen = |it: &Instance| {
            if measured.is_empty() || (it.created > 0 && it.created + 30 > now) {
                PodCpu::Missing
            } else if it.ready > 0 && it.ready + 30 > now {
                PodCpu::NotReady
            } else {
                PodCpu::Used(usage)
            }
        };
        self.instances.iter().map(seen).collect()
    }
}

struct Controller<'a> {
    policy: Policy,
    function: &'a Function,
    autoscaler: Autoscaler,
    /// Observed request rates.
    samples: Vec<f64>,
    /// The number that enforcement decided on, and when.
    floor: u32,
    changed: Option<u32>,
}

impl<'a> Controller<'a> {
    fn new(policy: Policy, function: &'a Function, floor: u32) -> Self {
        let autoscaler = Autoscaler::new(CPU_TARGET, 1, function.max_instances);
        Self { policy, function, autoscaler, samples: Vec::new(), floor, changed: None }
    }

    /// Adds the request rate of the interval that ended a little while ago.
    fn observe(&mut self, load: &[f64], now: u32) {
        let Ok(now) = usize::try_from(now) else { return };
        let Some(end) = now.checked_sub(RATE_DELAY) else { return };
        let start = end.saturating_sub(RATE_WINDOW);
        let Some(rates) = load.get(start..end).filter(|it| !it.is_empty()) else { return };
        self.samples.push(rates.iter().sum::<f64>() / count(rates.len()));
    }

    fn decide(&mut self, run: &Run<'_>, now: u32) -> u32 {
        let current = run.number();
        match self.policy {
            Policy::Fixed | Policy::Oracle => current,
            Policy::Hpa => self.autoscaler.decide(now, current, &run.cpu(now)),
            Policy::Enforced => self.enforce(now),
            Policy::EnforcedWithHpa => {
                let scaled = self.autoscaler.decide(now, current, &run.cpu(now));
                scaled.max(self.enforce(now))
            }
        }
    }

    fn enforce(&mut self, now: u32) -> u32 {
        let needs = Needs {
            service_time: self.function.service_time,
            wait: self.function.wait(),
            startup: f64::from(self.function.startup) + count(RATE_DELAY),
        };
        let decision = decide(&Input {
            history: History { interval: f64::from(INTERVAL), samples: &self.samples },
            needs,
            current: self.floor,
            running: self.floor,
            bounds: Bounds { min: 1, max: self.function.max_instances },
            safeguards: Safeguards::default(),
            since_change: self.changed.map(|changed| f64::from(now - changed)),
        });
        if let Some(change) = decision.filter(|it| it.instances != self.floor) {
            self.floor = change.instances;
            self.changed = Some(now);
        }
        self.floor
    }
}

#[cfg(test)]
mod tests;
