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
//! ago, and enforcement sees what CRM reads from Prometheus, see `signals`. From that it learns the
//! capacity of an instance and decides with the same function as CRM.

mod comparison;
mod curves;
mod hpa;
mod signals;
mod trace;

use std::collections::VecDeque;

use serde::Serialize;

use crate::{
    capacity::{InstanceLimits, Learned, LoadSample},
    compliance::{Requirement, State, StoredState, evaluate},
    convert::{ceil, count},
    enforcement::{Decision, Effect, Floor, Situation, decide_floor},
    queueing::{instances_for, wait_quantile},
    replicas::{Bounds, Safeguards},
};

pub use self::{
    comparison::Comparison,
    curves::Curve,
    trace::{TraceError, parse_trace, scale_to_instances},
};
use self::{
    hpa::{Autoscaler, PodCpu},
    signals::{Second, Signals, points, window},
};

/// Seconds between two decisions, of the autoscaler and of enforcement.
const INTERVAL: u32 = 15;
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
            if matches!(policy, Policy::Enforced | Policy::EnforcedWithHpa) {
                run.signals.sample();
            }
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
    signals: Signals,
    outcome: Outcome,
}

impl<'a> Run<'a> {
    fn new(load: &[f64], function: &'a Function) -> Self {
        let offered = load.first().copied().unwrap_or_default() * function.service_time;
        let number = ceil(100.0 * offered / f64::from(CPU_TARGET)).clamp(1, function.max_instances);
        let instances = vec![Instance { created: 0, ready: 0 }; number.try_into().unwrap_or(1)];
        let outcome = Outcome { max_replicas: number, ..Outcome::default() };
        let (utilisation, signals) = (Vec::new(), Signals::default());
        Self { function, instances, backlog: 0.0, utilisation, signals, outcome }
    }

    fn number(&self) -> u32 {
        u32::try_from(self.instances.len()).unwrap_or(u32::MAX)
    }

    fn serve(&mut self, now: u32, rate: f64) {
        let ready = self.instances.iter().filter(|it| it.ready <= now).count();
        let Function { service_time, .. } = *self.function;
        let capacity = count(ready) / service_time;
        let served = (rate + self.backlog).min(capacity);
        let waiting = self.backlog + rate - served;
        self.backlog = waiting.min(capacity * PATIENCE);
        let lost = waiting - self.backlog;
        let ready = u32::try_from(ready).unwrap_or(u32::MAX);
        let wait = wait_quantile(ready, rate * service_time) * service_time;
        let waiting = self.backlog / capacity;
        // NaN if nothing is ready and nothing waits.
        let violated = wait > self.function.wait() || waiting > self.function.wait();
        self.outcome.violation_seconds += u32::from(violated);
        self.outcome.replica_hours += f64::from(self.number()) / 3600.0;
        self.utilisation.push(if capacity > 0.0 { served / capacity } else { 0.0 });
        let (busy, backlog) = (served * service_time, self.backlog);
        self.signals.record(Second { ready, rate, busy, lost, backlog, service_time });
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
    /// The number that enforcement decided on, and when.
    floor: u32,
    changed: Option<u32>,
    /// With the time of its correction.
    learned: Option<(Learned, u32)>,
    effect: Effect,
    state: Option<StoredState>,
}

impl<'a> Controller<'a> {
    fn new(policy: Policy, function: &'a Function, floor: u32) -> Self {
        let autoscaler = Autoscaler::new(CPU_TARGET, 1, function.max_instances);
        let (changed, learned, effect, state) = (None, None, Effect::default(), None);
        Self { policy, function, autoscaler, floor, changed, learned, effect, state }
    }

    fn decide(&mut self, run: &Run<'_>, now: u32) -> u32 {
        let current = run.number();
        match self.policy {
            Policy::Fixed | Policy::Oracle => current,
            Policy::Hpa => self.autoscaler.decide(now, current, &run.cpu(now)),
            Policy::Enforced => self.enforce(&run.signals, now),
            Policy::EnforcedWithHpa => {
                let scaled = self.autoscaler.decide(now, current, &run.cpu(now));
                scaled.max(self.enforce(&run.signals, now))
            }
        }
    }

    /// As CRM does it in a pass.
    fn enforce(&mut self, signals: &Signals, now: u32) -> u32 {
        let samples = signals.read();
        let since = |at: u32| f64::from(now - at);
        let learned = self.learned.map(|(learned, at)| Learned { age: since(at), ..learned });
        let decision = decide_floor(
            &Situation {
                samples: &samples,
                interval: f64::from(INTERVAL),
                latency_bound: Some(self.function.p95),
                violated: self.is_violated(&samples, now),
                limits: InstanceLimits { cpu: 1.0, concurrency: None },
                startup: Some(f64::from(self.function.startup)),
                ready: signals.ready(),
                bounds: Bounds { min: 1, max: self.function.max_instances },
                safeguards: Safeguards::default(),
                has_fast_autoscaler: false,
            },
            &Floor {
                instances: Some(self.floor),
                applied: true,
                since_change: self.changed.map(since),
                learned,
                effect: self.effect,
            },
        );
        let Some(decision) = decision else { return self.floor };
        self.effect = decision.effect;
        self.remember(&decision, learned, now);
        self.floor
    }

    /// As CRM stores it in status.
    fn remember(&mut self, decision: &Decision, learned: Option<Learned>, now: u32) {
        let corrected = decision.capacity.new_correction(learned);
        let is_changed = decision.floor != self.floor;
        if is_changed {
            self.floor = decision.floor;
            self.changed = Some(now);
        }
        if is_changed || corrected.is_some() {
            let before = self.learned.map_or((1.0, now), |(it, at)| (it.correction, at));
            let (correction, at) = corrected.map_or(before, |it| (it, now));
            let service_time = decision.capacity.service_time;
            self.learned = Some((Learned { service_time, correction, age: 0.0 }, at));
        }
    }

    fn is_violated(&mut self, samples: &[LoadSample], now: u32) -> bool {
        let points = points(samples, now);
        let requirement = Requirement::Latency(self.function.p95 * 1000.0);
        let verdict = evaluate(requirement, &window(&points, now), self.state);
        self.state = Some(StoredState { state: verdict.state, since: verdict.since });
        verdict.state == State::Violated
    }
}

#[cfg(test)]
mod tests;
