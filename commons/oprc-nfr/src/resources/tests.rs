use proptest::prelude::*;

use super::{
    units::{DAY, MIB},
    *,
};
use crate::convert::{ceil, ceil_items, count};

const HORIZON: f64 = 600.0;
const ALLOWED: ResourceBounds = ResourceBounds { min: 0.0, max: f64::INFINITY };

/// Samples at equal distances, the newest first.
fn samples(values: &[f64], distance: f64) -> Vec<UsageSample> {
    let sample =
        |(at, value): (usize, &f64)| UsageSample { age: count(at) * distance, value: *value };
    values.iter().enumerate().map(sample).collect()
}

/// A sample every 15 minutes.
fn constant(value: f64, days: f64) -> Vec<UsageSample> {
    samples(&vec![value; ceil_items(days * 96.0)], 900.0)
}

fn allocation(request: f64, limit: Option<f64>) -> Allocation {
    Allocation { request: Some(request), limit }
}

fn input(samples: &[UsageSample], current: Allocation) -> ResourceInput<'_> {
    ResourceInput {
        samples,
        history: 30.0 * DAY,
        current,
        specified: Allocation::default(),
        limit_ratio: None,
        bounds: ALLOWED,
    }
}

fn memory(samples: &[UsageSample], current: Allocation) -> ResourceRecommendation {
    recommend_memory(&input(samples, current), None, HORIZON).unwrap()
}

fn cpu(samples: &[UsageSample], current: Allocation) -> ResourceRecommendation {
    recommend_cpu(&input(samples, current), None).unwrap()
}

fn close(left: f64, right: f64) -> bool {
    (left - right).abs() <= right.abs() * 1e-9
}

/// What is applied if nothing has been applied so far.
fn decide_first(recommendation: &ResourceRecommendation) -> ResourceDecision {
    decide(recommendation, Allocation::default(), None, &ResourceSafeguards::default())
}

#[test]
fn target_is_the_90th_percentile_and_a_margin() {
    // Nine of ten peaks are 180 MiB; the others are far higher.
    let values: Vec<_> =
        (0..96).map(|at| if at % 12 == 5 { 400.0 * MIB } else { 180.0 * MIB }).collect();
    let found = memory(&samples(&values, 900.0), allocation(100.0 * MIB, None));
    assert_eq!(found.basis, "p90 of 96 peaks in 24 h is 187 MiB + 15 % → 215 MiB");
    assert!(close(found.target, 215.0 * MIB), "{found:?}");
    assert!((found.confidence - 0.5).abs() < 1e-9, "{found:?}");
    assert!(found.lower < found.target && found.target < found.upper);
    assert!(found.actionable && !found.urgent && !found.advisory);
    assert_eq!((found.limit, found.samples), (None, 96));
    assert!(close(found.peak, 400.0 * MIB));

    let found = cpu(&samples(&vec![0.3; 2880], 30.0), allocation(1.0, None));
    assert_eq!(found.basis, "p90 of 2880 samples in 24 h is 305m + 15 % → 352m");
}

#[test]
fn range_narrows_with_the_length_of_the_history() {
    let of = |days| memory(&constant(100.0 * MIB, days), allocation(200.0 * MIB, None));
    let (hour, day, week) = (of(1.0 / 24.0), of(1.0), of(7.0));
    assert!(hour.upper > 20.0 * hour.target, "{hour:?}");
    assert!((day.upper / day.target - 2.0).abs() < 0.01, "{day:?}");
    assert!((week.upper / week.target - 8.0 / 7.0).abs() < 0.01, "{week:?}");
    assert!(hour.lower < 0.99 * week.lower && week.lower < week.target);
    assert!(!hour.actionable && !day.actionable && week.actionable);
    assert!((week.confidence - 7.0 / 8.0).abs() < 1e-9);
    // The stated length doesn't help if there are no samples of that time.
    let short = ResourceInput { history: 0.5 * DAY, ..input(&[], allocation(1.0, None)) };
    let all = constant(100.0 * MIB, 7.0);
    let found = recommend_memory(&ResourceInput { samples: &all, ..short }, None, HORIZON).unwrap();
    assert!(close(found.history, 0.5 * DAY));
    assert!((hour.history - 3600.0).abs() < 1e-6);
}

#[test]
fn few_samples_and_small_changes_are_not_worth_acting() {
    let found = cpu(&samples(&[1.0; 9], 900.0), allocation(0.1, None));
    assert!(!found.actionable);
    let wait = WaitReason::Samples { known: 9, needed: 10 };
    assert_eq!(decide_first(&found), ResourceDecision::Wait(wait));
    assert_eq!(wait.to_string(), "9 of 10 samples");
    let all = constant(1.0, 30.0);
    let target = cpu(&all, allocation(0.1, None)).target;
    for (factor, expected) in [(0.8, true), (0.93, false), (1.0, false), (1.1, false), (1.3, true)]
    {
        let found = cpu(&all, allocation(target * factor, None));
        assert_eq!(found.actionable, expected, "{factor} {found:?}");
    }
    let found = recommend_cpu(&input(&all, Allocation::default()), None).unwrap();
    assert!(found.actionable, "no request is set");
    assert_eq!(decide_first(&found).change().unwrap().request.to_bits(), target.to_bits());
}

#[test]
fn memory_limit_keeps_its_ratio_and_leaves_room_for_peaks() {
    let all = constant(100.0 * MIB, 7.0);
    let found = memory(&all, allocation(50.0 * MIB, Some(100.0 * MIB)));
    assert!(close(found.limit.unwrap(), 2.0 * found.target), "{found:?}");
    let ratio = ResourceInput { limit_ratio: Some(3.0), ..input(&all, found.current) };
    let found = recommend_memory(&ratio, None, HORIZON).unwrap();
    assert!(close(found.limit.unwrap(), 3.0 * found.target), "{found:?}");
    let only_limit = Allocation { request: None, limit: Some(100.0 * MIB) };
    let found = memory(&all, only_limit);
    assert!(close(found.limit.unwrap(), found.target), "{found:?}");
    let wide = ResourceInput {
        limit_ratio: Some(1.0),
        ..input(&all, allocation(50.0 * MIB, Some(300.0 * MIB)))
    };
    let found = recommend_memory(&wide, None, HORIZON).unwrap();
    let change = decide_first(&found).change().unwrap();
    assert!(close(change.limit.unwrap(), 300.0 * MIB), "a raise lowers no limit: {change:?}");
    // One peak is more than the target.
    let mut peak = all.clone();
    peak[100].value = 400.0 * MIB;
    let found = memory(&peak, only_limit);
    assert!(found.target < 200.0 * MIB && close(found.limit.unwrap(), 460.0 * MIB), "{found:?}");
}

#[test]
fn growth_raises_memory_before_it_is_killed() {
    // 10 MiB/min, from 100 to 240 MiB.
    let leak: Vec<_> = (0..=28_u32).map(|at| (240.0 - 5.0 * f64::from(at)) * MIB).collect();
    let leak = samples(&leak, 30.0);
    let current = allocation(256.0 * MIB, Some(256.0 * MIB));
    let found = memory(&leak, current);
    assert!(found.urgent && found.actionable, "{found:?}");
    let expected = "grows by 10 MiB/min and reaches the limit of 256 MiB in 96 s; 340 MiB in 10 min \
                    + 15 % → 391 MiB";
    assert_eq!(found.basis, expected);
    let change = decide_first(&found).change().unwrap();
    assert!(close(change.request, 391.0 * MIB) && close(change.limit.unwrap(), change.request));
    // Once the limit is far enough away, the target stays, and nothing is urgent.
    let again = memory(&leak, allocation(change.request, change.limit));
    assert!(!again.urgent && !again.actionable && close(again.target, found.target), "{again:?}");
    assert_eq!(decide_first(&again), ResourceDecision::Keep);
    let far = memory(&leak, allocation(400.0 * MIB, Some(1000.0 * MIB)));
    assert!(!far.urgent, "{far:?}");
}

#[test]
fn kill_raises_memory_above_the_limit_at_which_it_happened() {
    let all = constant(50.0 * MIB, 1.0);
    let of = |at: f64, current, age| {
        let kills = OomKills { count: 3, at: at * MIB, age };
        recommend_memory(&input(&all, current), Some(kills), HORIZON).unwrap()
    };
    let current = allocation(256.0 * MIB, Some(256.0 * MIB));
    let found = of(256.0, current, 300.0);
    assert!(found.urgent && close(found.target, 356.0 * MIB), "{found:?}");
    let expected = "out of memory 3 times at 256 MiB, 5 min ago; + 20 % or 100 MiB → 356 MiB";
    assert_eq!(found.basis, expected);
    let large = of(1000.0, allocation(1000.0 * MIB, Some(1000.0 * MIB)), 300.0);
    assert!(close(large.target, 1200.0 * MIB), "{large:?}");
    let raised = of(256.0, allocation(356.0 * MIB, Some(356.0 * MIB)), 300.0);
    assert!(!raised.urgent && close(raised.target, 356.0 * MIB), "{raised:?}");
    assert!(!of(256.0, current, 8.0 * DAY).urgent, "long ago");
    // A container that is killed at its start has no samples.
    let kills = Some(OomKills { count: 1, at: 64.0 * MIB, age: 5.0 });
    let current = allocation(64.0 * MIB, Some(64.0 * MIB));
    let found = recommend_memory(&input(&[], current), kills, HORIZON).unwrap();
    let change = decide_first(&found).change().unwrap();
    assert!(close(change.request, 164.0 * MIB), "a step of 100 MiB is allowed: {change:?}");
    assert!(found.basis.starts_with("out of memory once at 64 MiB, 5 s ago"), "{found:?}");
    assert!(found.confidence.abs() < 1e-9);
}

#[test]
fn cpu_limit_is_raised_only_if_it_throttles() {
    let all = constant(0.49, 7.0);
    let input = input(&all, allocation(0.5, Some(0.5)));
    let of = |share| recommend_cpu(&input, Some(Throttling { share, threshold: 0.1 })).unwrap();
    for share in [0.0, 0.1, f64::NAN, -1.0, 7.0] {
        let found = of(share);
        assert_eq!((found.limit, found.actionable), (Some(0.5), false), "{share}");
        assert!(close(found.target, 0.5), "the request fits under the limit: {found:?}");
    }
    let found = of(0.3);
    assert!(close(found.limit.unwrap(), 0.65) && found.actionable, "{found:?}");
    assert!(
        found.basis.ends_with("; throttled in 30 % of periods, limit 500m → 650m"),
        "{found:?}"
    );
    let change = decide_first(&found).change().unwrap();
    assert!(close(change.limit.unwrap(), 0.65) && change.request >= 0.5, "{change:?}");
    // Also where the request is more than enough.
    let found = recommend_cpu(
        &ResourceInput { current: allocation(0.62, Some(0.65)), ..input },
        Some(Throttling { share: 0.5, threshold: 0.1 }),
    );
    let change = decide_first(&found.unwrap()).change().unwrap();
    assert!(close(change.limit.unwrap(), 0.975) && close(change.request, 0.62), "{change:?}");
    assert_eq!(cpu(&all, allocation(0.1, None)).limit, None, "no limit is added");
}

#[test]
fn what_the_user_wrote_is_only_advised_to_be_lowered() {
    let all = constant(100.0 * MIB, 7.0);
    let specified = allocation(400.0 * MIB, Some(500.0 * MIB));
    let of = |current| {
        let input = ResourceInput { specified, ..input(&all, current) };
        recommend_memory(&input, None, HORIZON).unwrap()
    };
    let found = of(specified);
    assert!(found.advisory && found.actionable && found.target < 150.0 * MIB, "{found:?}");
    assert!(close(found.limit.unwrap(), 500.0 * MIB));
    let ResourceDecision::Wait(reason) = decide_first(&found) else { panic!("{found:?}") };
    let expected = "request is set in the specification, 121 MiB would be enough";
    assert_eq!(reason.to_string(), expected);
    // What enforcement added earlier is taken back.
    let found = of(allocation(500.0 * MIB, Some(625.0 * MIB)));
    let change = decide_first(&found).change().unwrap();
    assert!(close(change.request, 400.0 * MIB) && close(change.limit.unwrap(), 500.0 * MIB));
}

#[test]
fn raises_wait_for_stability_and_cooldown_unless_they_are_urgent() {
    let guards = ResourceSafeguards::default();
    let busy = samples(&[1.0; 12], 15.0);
    let found = cpu(&busy[..11], allocation(0.1, None));
    let reason = WaitReason::History { known: 165.0, needed: 180.0 };
    assert_eq!(decide_first(&found), ResourceDecision::Wait(reason));
    assert_eq!(reason.to_string(), "history of 165 s, 180 s needed");
    assert_eq!(reason.remaining(), Some(15.0));
    let found = cpu(&busy, allocation(0.2, None));
    let applied = allocation(0.3, None);
    let reason = WaitReason::Cooldown { left: 45.0 };
    let waits = decide(&found, applied, Some(75.0), &guards);
    assert_eq!(waits, ResourceDecision::Wait(reason));
    assert_eq!(reason.to_string(), "cooldown for another 45 s");
    // Of the value that is applied, not of the one that is still running.
    let change = decide(&found, applied, Some(120.0), &guards).change().unwrap();
    assert!(close(change.request, 0.6), "{change:?}");
    for since in [f64::NAN, -5.0, f64::INFINITY] {
        let waits = decide(&found, applied, Some(since), &guards);
        assert_eq!(waits, ResourceDecision::Wait(WaitReason::Cooldown { left: 120.0 }));
    }
}

#[test]
fn lowering_needs_a_day_and_leaves_room_for_the_peak() {
    let guards =
        ResourceSafeguards { lowering_history: 8.0 * DAY, ..ResourceSafeguards::default() };
    let current = allocation(1000.0 * MIB, None);
    let found = memory(&constant(100.0 * MIB, 7.0), current);
    let ResourceDecision::Wait(reason) = decide(&found, current, None, &guards) else { panic!() };
    assert_eq!(reason.to_string(), "history of 7 d, 8 d needed");
    let change = decide_first(&found).change().unwrap();
    assert!(close(change.request, 700.0 * MIB), "{change:?}");
    let mut peak = constant(100.0 * MIB, 7.0);
    peak[50].value = 800.0 * MIB;
    let change = decide_first(&memory(&peak, current)).change().unwrap();
    assert!(close(change.request, 800.0 * MIB), "{change:?}");
    let found = memory(&peak, allocation(change.request, None));
    let ResourceDecision::Wait(reason) = decide_first(&found) else { panic!() };
    assert_eq!(reason.to_string(), "usage was up to 800 MiB in the measured window");
}

#[test]
fn bounds_limit_an_urgent_raise_and_are_explained() {
    let all = constant(200.0 * MIB, 1.0);
    let current = allocation(256.0 * MIB, Some(256.0 * MIB));
    let bounds = ResourceBounds { min: 0.0, max: 300.0 * MIB };
    let kills = Some(OomKills { count: 1, at: 256.0 * MIB, age: 5.0 });
    let input = ResourceInput { bounds, ..input(&all, current) };
    let found = recommend_memory(&input, kills, HORIZON).unwrap();
    assert!(found.basis.ends_with("→ 356 MiB, limited to 300 MiB"), "{found:?}");
    let change = decide_first(&found).change().unwrap();
    assert!(close(change.request, 300.0 * MIB) && close(change.limit.unwrap(), 300.0 * MIB));
    let current = allocation(300.0 * MIB, Some(300.0 * MIB));
    let found = recommend_memory(&ResourceInput { current, ..input }, kills, HORIZON).unwrap();
    assert_eq!(decide_first(&found), ResourceDecision::Keep);
    let bounds = ResourceBounds { min: 2.0, max: 4.0 };
    let idle = constant(0.0, 1.0);
    let current = allocation(1.0, None);
    let found = recommend_cpu(&ResourceInput { bounds, samples: &idle, current, ..input }, None);
    assert!(found.unwrap().basis.ends_with("→ 12m, at least 2000m allowed"));
}

#[test]
fn invalid_data_changes_nothing() {
    let all = constant(1e8, 7.0);
    let good = input(&all, allocation(5e8, Some(6e8)));
    for bad in [f64::NAN, f64::INFINITY, -1.0] {
        let bad_allocation = Allocation { request: Some(bad), limit: Some(6e8) };
        for input in [
            ResourceInput { history: bad, ..good },
            ResourceInput { current: bad_allocation, ..good },
            ResourceInput { specified: bad_allocation, ..good },
            ResourceInput { limit_ratio: Some(bad), ..good },
            ResourceInput { bounds: ResourceBounds { min: bad, max: 1e9 }, ..good },
            ResourceInput { samples: &[UsageSample { age: bad, value: 1e8 }], ..good },
            ResourceInput { samples: &[UsageSample { age: 5.0, value: bad }], ..good },
        ] {
            assert_eq!(recommend_memory(&input, None, HORIZON), None, "{input:?}");
            assert_eq!(recommend_cpu(&input, None), None, "{input:?}");
        }
        let found = recommend_memory(&good, None, HORIZON).unwrap();
        let kills = Some(OomKills { count: 1, at: bad, age: 5.0 });
        assert_eq!(recommend_memory(&good, kills, bad), Some(found.clone()));
        let guards = ResourceSafeguards::default();
        let decision = decide(&found, bad_allocation, None, &guards);
        assert_eq!(decision, ResourceDecision::Keep);
        let guards = ResourceSafeguards { max_step_up: bad, ..guards };
        assert_eq!(decide(&found, found.current, None, &guards), ResourceDecision::Keep);
    }
    assert_eq!(recommend_memory(&input(&[], allocation(5e8, None)), None, HORIZON), None);
}

/// A container whose memory is enforced, and which is restarted whenever it exceeds its limit.
struct Container {
    limit: f64,
    killed: u32,
    /// The requests that were applied, in MiB.
    changes: Vec<f64>,
}

impl Container {
    /// `usage` gives the working set in MiB, from the minutes since the start and since the last kill.
    /// It is measured every `step` minutes.
    fn run(request: f64, step: u32, minutes: u32, usage: impl Fn(f64, f64) -> f64) -> Self {
        let mut container = Self { limit: request * MIB, killed: 0, changes: Vec::new() };
        let bounds = ResourceBounds { min: 0.0, max: 2000.0 * MIB };
        let (mut seen, mut kill, mut changed) = (Vec::new(), None, None);
        for minute in (0..minutes).step_by(usize::try_from(step).unwrap()) {
            let now = f64::from(minute) * 60.0;
            let since = |at: f64| now - at;
            let running = kill.map_or(now, |(at, _)| since(at)) / 60.0;
            let value = usage(f64::from(minute), running) * MIB;
            if value > container.limit {
                kill = Some((now, OomKills { count: 1, at: container.limit, age: 0.0 }));
                container.killed += 1;
            } else {
                seen.push((now, value));
            }
            let samples: Vec<_> =
                seen.iter().map(|&(at, value)| UsageSample { age: since(at), value }).collect();
            let current = allocation(container.limit, Some(container.limit));
            let input = ResourceInput { bounds, ..input(&samples, current) };
            let kills = kill.map(|(at, kills)| OomKills { age: since(at), ..kills });
            let horizon = HORIZON * f64::from(step);
            let Some(found) = recommend_memory(&input, kills, horizon) else { continue };
            let guards = ResourceSafeguards::default();
            if let Some(change) = decide(&found, current, changed.map(since), &guards).change() {
                container.limit = change.limit.unwrap();
                container.changes.push(change.request / MIB);
                changed = Some(now);
            }
        }
        container
    }
}

#[test]
fn leak_is_never_killed_while_the_bounds_allow_more() {
    for speed in [0.5, 2.0, 10.0, 15.0] {
        let minutes = ceil(1500.0 / speed);
        let found = Container::run(256.0, 1, minutes, |minute, _| 100.0 + speed * minute);
        assert_eq!(found.killed, 0, "{speed}: {:?}", found.changes);
        assert!(found.changes.is_sorted() && found.changes.len() <= 20, "{:?}", found.changes);
    }
}

#[test]
fn memory_settles_under_daily_load_with_noise() {
    let usage = |minute: f64, _| {
        let noise = (minute * 12.9898).sin() * 43_758.547;
        200.0 + 80.0 * (minute / 1440.0 * std::f64::consts::TAU).sin() + 20.0 * noise.fract()
    };
    for (request, kills) in [(150.0, 1), (320.0, 0), (1500.0, 0)] {
        let found = Container::run(request, 10, 14 * 1440, usage);
        assert!(found.killed <= kills, "{request}: {} {:?}", found.killed, found.changes);
        let turns = found.changes.windows(3).filter(|it| (it[0] < it[1]) != (it[1] < it[2]));
        assert!(turns.count() <= 1 && found.changes.len() <= 6, "{request}: {:?}", found.changes);
        assert!(found.limit < 450.0 * MIB, "{request}: {:?}", found.changes);
    }
}

#[test]
fn container_that_needs_more_than_its_limit_is_killed_a_few_times_at_most() {
    let found = Container::run(64.0, 1, 600, |_, running| 60.0 + 150.0 * running.min(2.0));
    assert!(found.killed <= 4, "{} {:?}", found.killed, found.changes);
    assert!(found.limit >= 360.0 * MIB, "{:?}", found.changes);
}

/// Memory in MiB, or CPU in hundredths of a core, by one factor.
fn scale(resource: Resource) -> f64 {
    match resource {
        Resource::Cpu => 0.01,
        Resource::Memory => MIB,
    }
}

fn resource() -> impl Strategy<Value = Resource> {
    prop_oneof![Just(Resource::Cpu), Just(Resource::Memory)]
}

fn recommend(
    resource: Resource,
    input: &ResourceInput<'_>,
    kills: Option<OomKills>,
) -> Option<ResourceRecommendation> {
    match resource {
        Resource::Cpu => recommend_cpu(input, None),
        Resource::Memory => recommend_memory(input, kills, HORIZON),
    }
}

prop_compose! {
    fn any_allocation()(
        request in prop::option::of(0.0..2000.0_f64), more in prop::option::of(1.0..3.0_f64),
    ) -> Allocation {
        let limit = more.map(|more| more * request.unwrap_or(100.0));
        Allocation { request, limit }
    }
}

/// A component: samples from 30 s to an hour apart, which may grow, and everything else.
#[derive(Clone, Debug)]
struct Component {
    resource: Resource,
    samples: Vec<UsageSample>,
    current: Allocation,
    specified: Allocation,
    bounds: ResourceBounds,
    kills: Option<OomKills>,
}

impl Component {
    fn input(&self) -> ResourceInput<'_> {
        ResourceInput {
            specified: self.specified,
            bounds: self.bounds,
            ..input(&self.samples, self.current)
        }
    }

    fn recommend(&self) -> Option<ResourceRecommendation> {
        recommend(self.resource, &self.input(), self.kills)
    }
}

prop_compose! {
    fn component()(
        resource in resource(),
        values in prop::collection::vec(0.0..1000.0_f64, 0..200),
        growth in prop_oneof![Just(0.0), 0.0..50.0_f64], noise in prop_oneof![Just(1.0), 0.0..0.1_f64],
        distance in prop_oneof![Just(30.0), 30.0..3600.0_f64],
        current in any_allocation(), specified in any_allocation(), is_specified in any::<bool>(),
        min in prop_oneof![Just(0.0), 0.0..500.0_f64],
        max in prop_oneof![Just(f64::INFINITY), 0.0..3000.0_f64],
        kills in prop::option::of((1..5_u32, 1.0..2000.0_f64, 0.0..1e6_f64)),
    ) -> Component {
        let unit = scale(resource);
        let length = values.len();
        let value = |(at, value): (usize, &f64)| {
            (value * noise + growth * count(length - at)) * unit
        };
        let values: Vec<_> = values.iter().enumerate().map(value).collect();
        let in_units = |it: Allocation| Allocation {
            request: it.request.map(|it| it * unit),
            limit: it.limit.map(|it| it * unit),
        };
        Component {
            resource,
            samples: samples(&values, distance),
            current: in_units(current),
            specified: if is_specified { in_units(specified) } else { Allocation::default() },
            bounds: ResourceBounds { min: min * unit, max: max * unit },
            kills: kills.map(|(count, at, age)| OomKills { count, at: at * unit, age }),
        }
    }
}

fn safeguards() -> impl Strategy<Value = ResourceSafeguards> {
    (0.0..1e5_f64, 1.0..4.0_f64, 0.0..0.9_f64).prop_map(|(history, up, down)| ResourceSafeguards {
        lowering_history: history,
        max_step_up: up,
        max_step_down: down,
        ..ResourceSafeguards::default()
    })
}

proptest! {
    #[test]
    fn bounds_and_steps_are_kept(
        component in component(), applied in prop::option::of(0.0..5000.0_f64),
        since in prop::option::of(0.0..1e4_f64), guards in safeguards(),
    ) {
        let Some(found) = component.recommend() else { return Ok(()) };
        prop_assert_eq!(Some(found.clone()), component.recommend(), "deterministic");
        let ResourceBounds { min, max } = component.bounds;
        let max = max.max(min);
        prop_assert!(found.target >= min && found.target <= max);
        prop_assert!(found.lower <= found.target && found.target <= found.upper);
        prop_assert!((0.0..=1.0).contains(&found.confidence));
        prop_assert!(found.limit.is_none_or(|it| it >= found.target));
        prop_assert_eq!(found.limit.is_some(), component.current.limit.is_some_and(|it| it > 0.0));
        let unit = scale(component.resource);
        let applied = Allocation { request: applied.map(|it| it * unit), limit: None };
        let Some(change) = decide(&found, applied, since, &guards).change() else { return Ok(()) };
        let is_bounded = change.request >= min && change.request <= max;
        let positive = |it: &f64| *it > 0.0;
        let present = applied.request.filter(positive).or(component.current.request.filter(positive));
        // A limit that throttles isn't tested here, so that only the request gives reasons.
        prop_assert!(is_bounded, "{:?}", change);
        prop_assert!(since.is_none_or(|it| it >= guards.cooldown));
        let Some(present) = present else { return Ok(()) };
        if change.request > present {
            let smallest = found.resource.smallest_step();
            let highest = (present * guards.max_step_up).max(present + smallest).max(min);
            prop_assert!(change.request <= highest * (1.0 + 1e-5));
            prop_assert!(found.urgent || found.history >= guards.stability);
            let limit = component.current.limit.filter(positive);
            prop_assert!(limit.is_none_or(|it| change.limit.unwrap() >= it.min(max)));
        } else {
            let lowest = (present * (1.0 - guards.max_step_down)).min(max);
            prop_assert!(change.request >= lowest * (1.0 - 1e-5));
            prop_assert!(change.request >= found.peak, "below the peak");
            prop_assert!(found.history >= guards.lowering_history);
            let written = component.specified.request.unwrap_or_default();
            prop_assert!(change.request >= written.min(max));
        }
        if let Some(limit) = change.limit {
            let highest = max.max(component.specified.limit.unwrap_or_default());
            let is_kept = component.current.limit.is_some_and(|it| it >= limit);
            prop_assert!(limit >= change.request && (limit <= highest || is_kept));
        }
    }

    #[test]
    fn unknown_samples_change_nothing(
        component in component(),
        unknown in prop::collection::vec(
            (any::<prop::sample::Index>(), 0.0..1e6_f64, 0..3_usize, any::<bool>()), 0..20,
        ),
    ) {
        let mut mixed = component.clone();
        for (at, good, kind, is_age) in unknown {
            let bad = [f64::NAN, f64::INFINITY, -1.0][kind];
            let (age, value) = if is_age { (bad, good) } else { (good, bad) };
            let at = at.index(mixed.samples.len() + 1);
            mixed.samples.insert(at, UsageSample { age, value });
        }
        prop_assert_eq!(component.recommend(), mixed.recommend());
    }

    /// Sample by sample, as long as no trend is predicted; the samples are 5 min apart at least.
    #[test]
    fn higher_usage_never_lowers_the_recommendation(
        resource in resource(),
        values in prop::collection::vec((0.0..1000.0_f64, 0.0..500.0_f64), 1..200),
        distance in 300.0..7200.0_f64,
    ) {
        let unit = scale(resource);
        let low: Vec<_> = values.iter().map(|(value, _)| value * unit).collect();
        let high: Vec<_> = values.iter().map(|(value, more)| (value + more) * unit).collect();
        let of = |values: &[f64]| {
            let samples = samples(values, distance);
            recommend(resource, &input(&samples, Allocation::default()), None).unwrap()
        };
        let (low, high) = (of(&low), of(&high));
        prop_assert!(low.target <= high.target);
        prop_assert!(low.lower <= high.lower && low.upper <= high.upper && low.peak <= high.peak);
    }

    /// With growth, if all samples are higher by the same factor.
    #[test]
    fn growth_of_more_never_lowers_the_recommendation(
        component in component(), factor in 1.0..10.0_f64,
    ) {
        let mut higher = component.clone();
        higher.samples.iter_mut().for_each(|it| it.value *= factor);
        if let Some((low, high)) = component.recommend().zip(higher.recommend()) {
            prop_assert!(low.target <= high.target * (1.0 + 1e-9), "{:?} {:?}", low, high);
            prop_assert!(high.urgent || !low.urgent);
        }
    }

    #[test]
    fn applied_recommendation_is_not_changed_again(component in component()) {
        let Some(found) = component.recommend() else { return Ok(()) };
        let applied = Allocation { request: Some(found.target), limit: found.limit };
        let next = Component { current: applied, ..component }.recommend().unwrap();
        let limit_allows = |limit| found.resource == Resource::Memory || limit >= found.target;
        prop_assert!(found.limit.is_none_or(limit_allows));
        prop_assert!(close(next.target.max(1e-9), found.target.max(1e-9)), "{:?} {:?}", found, next);
        if found.target > 0.0 && !found.advisory {
            prop_assert!(!next.actionable, "{:?}", next);
            prop_assert_eq!(decide_first(&next), ResourceDecision::Keep);
        }
    }

    #[test]
    fn constant_usage_ends_at_one_value(
        resource in resource(), usage in 0.0..1000.0_f64, start in 1.0..5000.0_f64,
        days in 0.1..30.0_f64, ratio in prop::option::of(1.0..3.0_f64),
    ) {
        let unit = scale(resource);
        let samples = constant(usage * unit, days);
        let limit = ratio.filter(|_| resource == Resource::Memory).map(|it| it * start * unit);
        let mut applied = allocation(start * unit, limit);
        let mut directions = Vec::new();
        for _ in 0..40 {
            let found = recommend(resource, &input(&samples, applied), None).unwrap();
            let guards = ResourceSafeguards::default();
            let decision = decide(&found, applied, Some(200.0), &guards);
            let Some(change) = decision.change() else { break };
            directions.push(change.request > applied.request.unwrap());
            applied = Allocation { request: Some(change.request), limit: change.limit };
        }
        prop_assert!(directions.len() < 40, "{:?}", applied);
        prop_assert!(directions.windows(2).all(|pair| pair[0] == pair[1]), "{:?}", directions);
        prop_assert!(applied.request.unwrap() >= usage * unit, "{:?}", applied);
    }
}
