//! Which workload fits the load of a function: a Deployment for steady load, Knative for load that
//! pauses or comes in bursts.
//!
//! No load fits both ways: what moves a function to Knative can't move it back, whatever is known about
//! its capacity. A load that changes more slowly than the window can; each migration that reverses the
//! one before doubles the time until the next.

use crate::{
    convert::{ceil, ceil_items, count},
    stopped::Stopped,
};

/// Share of values without requests from which Knative fits.
const IDLE_SHARE: f64 = 0.6;
/// Instances that peaks need for each one that the median needs, from which Knative fits ...
const BURST_FACTOR: u32 = 4;
/// ... and the highest rate for each request of the median, up to which a Deployment fits.
const STEADY_FACTOR: f64 = 2.0;
/// Instances that are always busy if a Deployment fits.
const STEADY_INSTANCES: f64 = 0.5;
/// A peak is this quantile: one value is often noise.
const PEAK: f64 = 0.95;
/// Share of the window that must be known, and seconds that it must have.
const MIN_COVERAGE: f64 = 0.9;
const MIN_WINDOW: f64 = 600.0;
/// Seconds after a start from zero in which calls are slow because of it.
const COLD_START: f64 = 120.0;
/// Share of the values above the latency bound that cold starts explain, if they are the reason.
const COLD_SHARE: f64 = 0.5;
/// Seconds between two migrations, doubled by each reversal.
const MIN_COOLDOWN: f64 = 3600.0;
const MAX_COOLDOWN: f64 = 86_400.0;
/// Values after which half of the confidence is reached.
const HALF_CONFIDENCE: f64 = 5.0;

/// What a function runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadKind {
    Deployment,
    Knative,
}

impl WorkloadKind {
    /// The name of the corresponding template.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => "k8s_deployment",
            Self::Knative => "knative",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        [Self::Deployment, Self::Knative].into_iter().find(|it| it.as_str() == name)
    }

    /// The workload as the value of a recommendation or metric.
    pub fn value(self) -> f64 {
        match self {
            Self::Deployment => 0.0,
            Self::Knative => 1.0,
        }
    }

    pub fn of_value(value: f64) -> Self {
        if value > 0.5 { Self::Knative } else { Self::Deployment }
    }

    fn other(self) -> Self {
        match self {
            Self::Deployment => Self::Knative,
            Self::Knative => Self::Deployment,
        }
    }
}

/// What a migration follows from.
#[derive(Clone, Copy, Debug)]
pub struct MigrationInput<'a> {
    /// Requests per second at equal intervals, the oldest first. `None` is unknown.
    pub rates: &'a [Option<f64>],
    /// The 95th percentile of latency in seconds, at the same times.
    pub latencies: &'a [Option<f64>],
    /// Seconds between two values.
    pub interval: f64,
    /// Seconds that an instance is busy with one request; none if it is unknown.
    pub service_time: Option<f64>,
    /// Bound on the 95th percentile of latency, in seconds.
    pub latency_bound: Option<f64>,
    /// Whether Knative would run no instance without requests.
    pub scales_to_zero: bool,
    /// Whether a requirement is violated now.
    pub violated: bool,
    /// Whether that on latency is.
    pub latency_violated: bool,
    /// Whether no rollout is in progress.
    pub settled: bool,
    /// What was decided last, whether it was done or only recommended.
    pub current: WorkloadKind,
    pub running: WorkloadKind,
    pub last: LastMigration,
    /// Seconds after a migration in which its effect shows.
    pub effect_window: f64,
}

/// The migration that led to the current workload.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LastMigration {
    /// Seconds since then; none if there was none.
    pub since: Option<f64>,
    /// Whether it was done. Otherwise it was only recommended.
    pub applied: bool,
    /// Whether the current workload has become ready.
    pub ready: bool,
    /// Whether a requirement is violated that wasn't before.
    pub violated: bool,
    /// Consecutive migrations that reversed the one before.
    pub reversals: u32,
    pub stopped: Option<Stopped>,
}

/// What a migration waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MigrationHold {
    Stopped(Stopped),
    /// Functions aren't migrated while a requirement is violated, unless that is the remedy.
    Violated,
    Rollout,
    /// Seconds until the next migration.
    Cooldown(f64),
}

impl std::fmt::Display for MigrationHold {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stopped(stopped) => {
                write!(formatter, "a new specification: {stopped}")
            }
            Self::Violated => formatter.write_str("the requirement to be met"),
            Self::Rollout => formatter.write_str("the end of the rollout"),
            Self::Cooldown(seconds) => {
                write!(formatter, "the end of the cooldown in {seconds:.0} s")
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct MigrationDecision {
    /// The workload from now on; the current one if nothing changes.
    pub workload: WorkloadKind,
    /// The workload that fits.
    pub recommended: WorkloadKind,
    /// Why the workload isn't the one that fits.
    pub hold: Option<MigrationHold>,
    pub reversals: u32,
    pub stopped: Option<Stopped>,
    /// The decision in one line, with its numbers.
    pub basis: String,
    /// From 0 to 1.
    pub confidence: f64,
}

/// Decides on the workload of a function that may run as both. None if too little is known: nothing
/// changes then.
pub fn decide_migration(input: &MigrationInput<'_>) -> Option<MigrationDecision> {
    let MigrationInput { current, last, .. } = *input;
    let known = count(known(input.rates).count());
    let unchanged = MigrationDecision {
        workload: current,
        recommended: current,
        hold: None,
        reversals: last.reversals,
        stopped: last.stopped,
        basis: String::new(),
        confidence: known / (known + HALF_CONFIDENCE),
    };
    if let Some(failure) = failure(input) {
        let back = current.other();
        let basis = format!("{} → {}", failure.as_str(), back.as_str());
        let stopped = Some(failure);
        return Some(MigrationDecision {
            workload: back,
            recommended: back,
            stopped,
            basis,
            ..unchanged
        });
    }
    let fit = fit(input)?;
    let recommended = MigrationDecision {
        recommended: fit.workload,
        basis: format!("{} → {}", fit.reason, fit.workload.as_str()),
        ..unchanged
    };
    if fit.workload == current {
        return Some(recommended);
    }
    let cooldown = cooldown(input);
    let left = last.since.map(|since| cooldown - since).filter(|left| *left > 0.0);
    let hold = if let Some(stopped) = last.stopped {
        Some(MigrationHold::Stopped(stopped))
    } else if input.violated && !fit.is_remedy {
        Some(MigrationHold::Violated)
    } else if !input.settled {
        Some(MigrationHold::Rollout)
    } else {
        left.map(MigrationHold::Cooldown)
    };
    if hold.is_some() {
        return Some(MigrationDecision { hold, ..recommended });
    }
    let is_reversal = last.since.is_some_and(|since| since < 2.0 * cooldown);
    Some(MigrationDecision {
        workload: fit.workload,
        reversals: if is_reversal { last.reversals.saturating_add(1) } else { 0 },
        stopped: fit.is_remedy.then_some(Stopped::ColdStarts),
        ..recommended
    })
}

/// Why the latest migration has to be undone.
fn failure(input: &MigrationInput<'_>) -> Option<Stopped> {
    let last = input.last;
    let since = last.since.filter(|_| last.applied && last.stopped.is_none())?;
    if since > input.effect_window {
        return (!last.ready).then_some(Stopped::NotReady);
    }
    (last.ready && last.violated).then_some(Stopped::Violated)
}

/// Seconds between two migrations. What led to the last isn't part of the window any more then.
fn cooldown(input: &MigrationInput<'_>) -> f64 {
    let reversals = i32::try_from(input.last.reversals).unwrap_or(i32::MAX);
    let cooldown = (MIN_COOLDOWN * 2.0_f64.powi(reversals)).min(MAX_COOLDOWN);
    cooldown.max(count(input.rates.len()) * input.interval)
}

fn known(values: &[Option<f64>]) -> impl Iterator<Item = f64> {
    values.iter().flatten().copied().filter(|it| it.is_finite() && *it >= 0.0)
}

struct Fit {
    workload: WorkloadKind,
    reason: String,
    /// Whether the workload is what violates the latency requirement.
    is_remedy: bool,
}

fn fit(input: &MigrationInput<'_>) -> Option<Fit> {
    if let Some(reason) = cold_starts(input) {
        return Some(Fit { workload: WorkloadKind::Deployment, reason, is_remedy: true });
    }
    let mut rates: Vec<f64> = known(input.rates).collect();
    let needed = count(input.rates.len()).max(MIN_WINDOW / input.interval) * MIN_COVERAGE;
    if count(rates.len()) < needed {
        return None;
    }
    rates.sort_by(f64::total_cmp);
    let quantile = |share: f64| {
        let rank = ceil_items(count(rates.len()) * share).saturating_sub(1);
        rates.get(rank).copied()
    };
    let (lowest, median, peak, highest) =
        (quantile(0.0)?, quantile(0.5)?, quantile(PEAK)?, quantile(1.0)?);
    let idle = count(rates.iter().filter(|rate| **rate <= 0.0).count()) / count(rates.len());
    let minutes = count(input.rates.len()) * input.interval / 60.0;
    let service_time = input.service_time.filter(|it| it.is_finite() && *it > 0.0);
    let (workload, reason) = match input.current {
        WorkloadKind::Deployment if idle >= IDLE_SHARE && input.scales_to_zero => {
            let share = idle * 100.0;
            (WorkloadKind::Knative, format!("no requests in {share:.0} % of {minutes:.0} min"))
        }
        WorkloadKind::Deployment if let Some(burst) = burst(median, peak, service_time) => {
            (WorkloadKind::Knative, burst)
        }
        WorkloadKind::Knative
            if lowest > 0.0
                && highest <= median * STEADY_FACTOR
                && service_time.is_none_or(|it| lowest * it >= STEADY_INSTANCES) =>
        {
            let busy = service_time.map(|it| format!(", {:.1} instances always busy", lowest * it));
            let busy = busy.unwrap_or_default();
            let reason =
                format!("{lowest:.1} to {highest:.1} req/s all the {minutes:.0} min{busy}");
            (WorkloadKind::Deployment, reason)
        }
        current => {
            let share = idle * 100.0;
            let reason = format!(
                "{lowest:.1} to {highest:.1} req/s, median {median:.1}, \
                 none in {share:.0} % of {minutes:.0} min"
            );
            (current, reason)
        }
    };
    Some(Fit { workload, reason, is_remedy: false })
}

/// Says how many instances peaks need, if that is many more than the median needs.
fn burst(median: f64, peak: f64, service_time: Option<f64>) -> Option<String> {
    let instances = |rate: f64| service_time.map(|it| ceil(rate * it));
    let (usual, most) = (instances(median)?.max(1), instances(peak)?);
    (most >= usual.saturating_mul(BURST_FACTOR)).then(|| {
        format!("peaks of {peak:.1} req/s need {most} instances, the median of {median:.1} {usual}")
    })
}

/// Says how often calls were too slow after a start from zero, if that violates the requirement.
fn cold_starts(input: &MigrationInput<'_>) -> Option<String> {
    let bound = input.latency_bound.filter(|_| input.latency_violated)?;
    if input.running != WorkloadKind::Knative {
        return None;
    }
    let (mut slow, mut cold, mut starts) = (0_u32, 0_u32, 0_u32);
    let (mut before, mut since_start) = (None, None);
    for (index, rate) in input.rates.iter().enumerate() {
        if before == Some(0.0) && rate.is_some_and(|rate| rate > 0.0) {
            (since_start, starts) = (Some(0.0), starts + 1);
        }
        let latency = input.latencies.get(index).copied().flatten();
        if latency.is_some_and(|latency| latency > bound) {
            slow += 1;
            cold += u32::from(since_start.is_some_and(|seconds| seconds <= COLD_START));
        }
        since_start = since_start.map(|seconds| seconds + input.interval);
        // A new instance has no rate before its second scrape.
        before = rate.or(before);
    }
    let explains = cold > 0 && f64::from(cold) >= f64::from(slow) * COLD_SHARE;
    let bound = bound * 1000.0;
    explains.then(|| {
        format!("{cold} of {slow} values with p95 > {bound:.0} ms follow {starts} starts from zero")
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        WorkloadKind::{Deployment, Knative},
        *,
    };

    const DAY: f64 = 86_400.0;

    fn input(rates: &[Option<f64>], current: WorkloadKind) -> MigrationInput<'_> {
        MigrationInput {
            rates,
            latencies: &[],
            interval: 15.0,
            service_time: Some(0.1),
            latency_bound: Some(0.2),
            scales_to_zero: true,
            violated: false,
            latency_violated: false,
            settled: true,
            current,
            running: current,
            last: LastMigration { ready: true, ..LastMigration::default() },
            effect_window: 600.0,
        }
    }

    fn load(rate: impl Fn(usize) -> f64) -> Vec<Option<f64>> {
        (0..41).map(|index| Some(rate(index))).collect()
    }

    fn workload(input: &MigrationInput<'_>) -> WorkloadKind {
        decide_migration(input).unwrap().workload
    }

    #[test]
    fn idle_load_goes_to_knative_if_it_scales_to_zero() {
        let idle = load(|index| if index < 10 { 3.0 } else { 0.0 });
        let decision = decide_migration(&input(&idle, Deployment)).unwrap();
        assert_eq!((decision.workload, decision.hold), (Knative, None));
        assert_eq!(decision.basis, "no requests in 76 % of 10 min → knative");
        let kept = MigrationInput { scales_to_zero: false, ..input(&idle, Deployment) };
        assert_eq!(workload(&kept), Deployment, "an instance would run all the time");
        assert_eq!(workload(&input(&idle, Knative)), Knative);
        let half = load(|index| if index % 2 == 0 { 3.0 } else { 0.0 });
        assert_eq!(workload(&input(&half, Deployment)), Deployment);
        assert_eq!(workload(&input(&half, Knative)), Knative);
    }

    #[test]
    fn bursts_go_to_knative_if_the_capacity_is_known() {
        let bursts = load(|index| if index % 8 == 0 { 80.0 } else { 8.0 });
        let decision = decide_migration(&input(&bursts, Deployment)).unwrap();
        let expected = "peaks of 80.0 req/s need 8 instances, the median of 8.0 1 → knative";
        assert_eq!((decision.workload, decision.basis.as_str()), (Knative, expected));
        let unknown = MigrationInput { service_time: None, ..input(&bursts, Deployment) };
        assert_eq!(workload(&unknown), Deployment);
        let small = MigrationInput { service_time: Some(0.01), ..unknown };
        assert_eq!(workload(&small), Deployment, "one instance serves the peaks");
        let one = load(|index| if index == 20 { 800.0 } else { 8.0 });
        assert_eq!(workload(&input(&one, Deployment)), Deployment, "one value is noise");
    }

    #[test]
    fn steady_load_goes_to_a_deployment() {
        let steady = load(|index| 40.0 + f64::from(u8::from(index % 2 == 0)) * 20.0);
        let decision = decide_migration(&input(&steady, Knative)).unwrap();
        assert_eq!(decision.workload, Deployment);
        let expected =
            "40.0 to 60.0 req/s all the 10 min, 4.0 instances always busy → k8s_deployment";
        assert_eq!(decision.basis, expected);
        let cheap = MigrationInput { service_time: Some(0.001), ..input(&steady, Knative) };
        assert_eq!(workload(&cheap), Knative, "no instance is busy");
        let unknown = MigrationInput { service_time: None, ..cheap };
        assert_eq!(workload(&unknown), Deployment);
    }

    #[test]
    fn cold_starts_that_violate_the_latency_are_remedied_once() {
        let rates = load(|index| if index % 10 < 6 { 0.0 } else { 1.0 });
        let latency =
            |index: usize| (index % 10 >= 6).then_some(if index == 9 { 0.1 } else { 3.0 });
        let latencies: Vec<_> = (0..41).map(latency).collect();
        let violated = MigrationInput {
            latencies: &latencies,
            violated: true,
            latency_violated: true,
            ..input(&rates, Knative)
        };
        let decision = decide_migration(&violated).unwrap();
        assert_eq!(decision.workload, Deployment);
        assert_eq!(decision.stopped, Some(Stopped::ColdStarts));
        let expected = "15 of 15 values with p95 > 200 ms follow 4 starts from zero";
        assert!(decision.basis.starts_with(expected), "{}", decision.basis);
        let last = LastMigration { stopped: decision.stopped, ..violated.last };
        let after = MigrationInput { last, ..input(&rates, Deployment) };
        let held = decide_migration(&after).unwrap();
        assert_eq!((held.workload, held.recommended), (Deployment, Knative));
        assert_eq!(held.hold, Some(MigrationHold::Stopped(Stopped::ColdStarts)));
        // A new instance isn't measured at once.
        let late: Vec<_> = (rates.iter().enumerate())
            .map(|(index, rate)| rate.filter(|_| index % 10 != 6))
            .collect();
        let measured_later = MigrationInput { rates: &late, ..violated };
        assert!(cold_starts(&measured_later).unwrap().ends_with("4 starts from zero"));
        // What is only recommended has no cold starts.
        let recommended = MigrationInput { running: Deployment, ..violated };
        assert_eq!(cold_starts(&recommended), None);
        // Without a start from zero, something else is slow.
        let busy = load(|_| 1.0);
        let slow = MigrationInput { rates: &busy, service_time: None, ..violated };
        assert_eq!(decide_migration(&slow).unwrap().hold, Some(MigrationHold::Violated));
    }

    #[test]
    fn migration_waits_for_requirements_rollouts_and_the_cooldown() {
        let idle = load(|_| 0.0);
        let free = input(&idle, Deployment);
        let last = |since: f64, reversals: u32| LastMigration {
            since: Some(since),
            reversals,
            ..free.last
        };
        for (input, hold) in [
            (MigrationInput { violated: true, ..free }, MigrationHold::Violated),
            (MigrationInput { settled: false, ..free }, MigrationHold::Rollout),
            (MigrationInput { last: last(3000.0, 0), ..free }, MigrationHold::Cooldown(600.0)),
            (MigrationInput { last: last(3600.0, 1), ..free }, MigrationHold::Cooldown(3600.0)),
            (MigrationInput { last: last(3600.0, 40), ..free }, MigrationHold::Cooldown(82_800.0)),
        ] {
            let decision = decide_migration(&input).unwrap();
            assert_eq!((decision.workload, decision.hold), (Deployment, Some(hold)));
        }
        for (since, reversals) in [(3600.0, 1), (7200.0, 0)] {
            let again = MigrationInput { last: last(since, 0), ..free };
            assert_eq!(decide_migration(&again).unwrap().reversals, reversals, "{since}");
        }
    }

    #[test]
    fn migration_that_fails_is_undone_once() {
        let idle = load(|_| 0.0);
        let last =
            LastMigration { since: Some(300.0), applied: true, ready: true, ..Default::default() };
        let of = |last: LastMigration| {
            // It is undone although nothing is known about the load.
            decide_migration(&MigrationInput { rates: &[], last, ..input(&idle, Knative) })
        };
        let violated = of(LastMigration { violated: true, ..last }).unwrap();
        assert_eq!(violated.workload, Deployment);
        assert_eq!(violated.stopped, Some(Stopped::Violated));
        let late = LastMigration { since: Some(700.0), ..last };
        let missing = of(LastMigration { ready: false, ..late }).unwrap();
        assert_eq!(missing.stopped, Some(Stopped::NotReady));
        for unchanged in [
            last,
            LastMigration { violated: true, ..late },
            LastMigration { ready: false, violated: true, ..last },
            LastMigration { violated: true, applied: false, ..last },
            LastMigration { violated: true, stopped: violated.stopped, ..last },
        ] {
            assert_eq!(of(unchanged), None, "{unchanged:?}");
        }
    }

    #[test]
    fn names_and_values_are_parsed() {
        for workload in [Deployment, Knative] {
            assert_eq!(WorkloadKind::parse(workload.as_str()), Some(workload));
            assert_eq!(WorkloadKind::of_value(workload.value()), workload);
        }
        assert_eq!(WorkloadKind::parse("job"), None);
    }

    /// Two loads that alternate more slowly than the window.
    #[test]
    fn slow_alternation_migrates_ever_more_rarely() {
        let (idle, steady) = (load(|_| 0.0), load(|_| 50.0));
        let (mut current, mut last) = (Deployment, input(&idle, Deployment).last);
        let mut changes = 0;
        for pass in 0..7 * 24 * 4_u32 {
            let rates = if (pass / 8) % 2 == 0 { &idle } else { &steady };
            let decision = decide_migration(&MigrationInput { last, ..input(rates, current) });
            let decision = decision.unwrap();
            last.since = last.since.map(|it| it + 900.0);
            if decision.workload != current {
                changes += 1;
                (current, last.since, last.reversals) =
                    (decision.workload, Some(0.0), decision.reversals);
            }
        }
        assert!((3..=12).contains(&changes), "{changes} in a week");
    }

    fn rates() -> impl Strategy<Value = Vec<Option<f64>>> {
        let rate = prop_oneof![Just(Some(0.0)), (0.0..200.0_f64).prop_map(Some)];
        let mixed = proptest::collection::vec(rate, 36..60);
        let steady = (1.0..100.0_f64, 0.0..1.5_f64, 36..60_usize).prop_map(|(base, wave, len)| {
            (0..len)
                .map(|index| Some(base * (1.0 + wave * f64::from(u8::from(index % 9 == 0)))))
                .collect()
        });
        prop_oneof![mixed, steady]
    }

    proptest! {
        #[test]
        fn constant_load_migrates_once(
            rates in rates(), start in any::<bool>(), service_times in any::<[Option<u8>; 2]>(),
            latency in 0.0..1.0_f64, violated in any::<bool>(), violated_later in any::<bool>(),
        ) {
            let latencies: Vec<_> = rates.iter().map(|_| Some(latency)).collect();
            let mut current = if start { Deployment } else { Knative };
            let mut last = LastMigration { ready: true, ..LastMigration::default() };
            let mut changes = 0;
            for pass in 0..60 {
                // What is known about the capacity may differ.
                let service_time = service_times[pass % 2].map(|it| f64::from(it) / 200.0);
                let violated = if changes == 0 { violated } else { violated_later };
                let input = MigrationInput {
                    latencies: &latencies, service_time, violated, latency_violated: violated, last,
                    ..input(&rates, current)
                };
                let decision = decide_migration(&input);
                prop_assert_eq!(&decision, &decide_migration(&input));
                last.since = last.since.map(|it| it + 2.0 * DAY);
                let Some(decision) = decision else { continue };
                if decision.workload != current {
                    changes += 1;
                    last = LastMigration {
                        since: Some(0.0), applied: true, violated: violated_later,
                        reversals: decision.reversals, stopped: decision.stopped, ..last
                    };
                }
                current = decision.workload;
            }
            // The second undoes the first.
            prop_assert!(changes <= 1 || changes == 2 && last.stopped.is_some(), "{} {:?}", changes, last);
        }

        #[test]
        fn cooldown_is_kept(loads in proptest::collection::vec(rates(), 1..80), minutes in 5..90_u32) {
            let mut current = Deployment;
            let mut last = LastMigration { ready: true, ..LastMigration::default() };
            for rates in &loads {
                let decision = decide_migration(&MigrationInput { last, ..input(rates, current) });
                last.since = last.since.map(|it| it + f64::from(minutes) * 60.0);
                let Some(decision) = decision.filter(|it| it.workload != current) else { continue };
                let since = last.since.map(|it| it - f64::from(minutes) * 60.0);
                prop_assert!(since.is_none_or(|it| it >= MIN_COOLDOWN), "{:?}", since);
                current = decision.workload;
                last = LastMigration { since: Some(f64::from(minutes) * 60.0), reversals: decision.reversals, ..last };
            }
        }

        #[test]
        fn unknown_data_changes_nothing(
            mut rates in rates(), start in any::<bool>(),
            unknown in prop_oneof![Just(None), Just(Some(f64::NAN)), Just(Some(-1.0)), Just(Some(f64::INFINITY))],
        ) {
            let current = if start { Deployment } else { Knative };
            prop_assert_eq!(decide_migration(&input(&[], current)), None);
            // A seventh of the window.
            rates.iter_mut().step_by(7).for_each(|it| *it = unknown);
            prop_assert_eq!(decide_migration(&input(&rates, current)), None);
            let short: Vec<_> = rates.iter().copied().flatten().map(Some).take(30).collect();
            prop_assert_eq!(decide_migration(&input(&short, current)), None);
        }
    }
}
