use proptest::prelude::*;

use super::*;

const STEP: i64 = 30_000;
const GAP: i64 = 3 * STEP;

fn window(points: &[LoadPoint]) -> LoadWindow<'_> {
    let end = points.last().map_or(0, |point| point.at);
    let start = points.first().map_or(0, |point| point.at);
    LoadWindow { points, start, end, max_gap: GAP }
}

/// Points at each step, from the latencies of the function.
fn latencies(values: &[Option<f64>]) -> Vec<LoadPoint> {
    let points = values.iter().zip(0..).map(|(latency, at)| LoadPoint {
        at: at * STEP,
        rate: latency.map(|_| 5.0),
        latency: *latency,
        ..LoadPoint::default()
    });
    points.collect()
}

fn one(point: LoadPoint, requirement: Requirement) -> Verdict {
    evaluate(requirement, &window(&[point]), None)
}

fn state_of_throughput(required: f64, point: LoadPoint) -> State {
    one(point, Requirement::Throughput(required)).state
}

#[test]
fn low_rate_violates_throughput_only_if_demand_is_lost() {
    let idle = LoadPoint { rate: Some(0.0), ..LoadPoint::default() };
    let served = LoadPoint { rate: Some(5.0), error_ratio: Some(0.0), ..LoadPoint::default() };
    let failing = LoadPoint { error_ratio: Some(0.2), ..served };
    let rejecting = LoadPoint { rejected: Some(1.0), ..served };
    let queueing = LoadPoint { queued: Some(3.0), ..served };
    for (point, expected) in [
        (idle, State::Met),
        (served, State::Met),
        (failing, State::Violated),
        (rejecting, State::Violated),
        (queueing, State::Violated),
        (LoadPoint { error_ratio: None, ..served }, State::Unknown(UnknownReason::MissingSignal)),
        (LoadPoint::default(), State::Unknown(UnknownReason::NoData)),
    ] {
        assert_eq!(state_of_throughput(10.0, point), expected, "{point:?}");
    }
    // As much as required is served.
    for point in [failing, rejecting, queueing] {
        assert_eq!(state_of_throughput(4.0, point), State::Met, "{point:?}");
    }
}

#[test]
fn latency_without_requests_is_met_and_without_metrics_unknown() {
    let requirement = Requirement::Latency(100.0);
    let idle = LoadPoint { rate: Some(0.0), ..LoadPoint::default() };
    assert_eq!(one(idle, requirement).state, State::Met);
    let busy = LoadPoint { rate: Some(1.0), ..LoadPoint::default() };
    assert_eq!(one(busy, requirement).state, State::Unknown(UnknownReason::MissingSignal));
    let slow = LoadPoint { latency: Some(100.1), ..busy };
    assert_eq!(one(slow, requirement).state, State::Violated);
    assert_eq!(one(LoadPoint { latency: Some(100.0), ..busy }, requirement).state, State::Met);
}

#[test]
fn availability_is_weighted_by_requests_and_counts_rejections() {
    let point = |at, rate, errors, rejected| LoadPoint {
        at,
        rate: Some(rate),
        error_ratio: Some(errors),
        rejected: Some(rejected),
        ..LoadPoint::default()
    };
    let points = [point(0, 90.0, 0.0, 0.0), point(STEP, 10.0, 0.1, 1.0)];
    let found = availability(&points).unwrap();
    assert!((found - 0.98).abs() < 1e-9, "{found}");
    let verdict = |required| evaluate(Requirement::Availability(required), &window(&points), None);
    assert_eq!(verdict(0.98).state, State::Met);
    assert_eq!((verdict(0.99).state, verdict(0.99).since), (State::Violated, STEP));
    assert_eq!(availability(&[LoadPoint { rate: Some(0.0), ..LoadPoint::default() }]), None);
}

#[test]
fn hard_latency_is_violated_while_requests_exceed_it() {
    let point = |breaches| LoadPoint { rate: Some(1.0), breaches, ..LoadPoint::default() };
    assert_eq!(one(point(Some(0.0)), Requirement::HardLatency).state, State::Met);
    let found = one(point(Some(0.5)), Requirement::HardLatency);
    assert_eq!((found.state, found.observed), (State::Violated, Some(0.5)));
    let unknown = State::Unknown(UnknownReason::MissingSignal);
    assert_eq!(one(point(None), Requirement::HardLatency).state, unknown);
}

#[test]
fn since_is_the_first_point_of_the_present_state() {
    let points = latencies(&[Some(1.0), Some(1.0), Some(9.0), Some(9.0)]);
    let found = evaluate(Requirement::Latency(5.0), &window(&points), None);
    assert_eq!((found.state, found.since), (State::Violated, 2 * STEP));
    // One that is stored counts if it is about the same transition.
    let stored = |state, since| Some(StoredState { state, since });
    let since = |stored| evaluate(Requirement::Latency(5.0), &window(&points), stored).since;
    assert_eq!(since(stored(State::Violated, 2 * STEP - 7)), 2 * STEP - 7);
    assert_eq!(since(stored(State::Met, 2 * STEP)), 2 * STEP);
    assert_eq!(since(stored(State::Violated, 100 * STEP)), 2 * STEP, "the clock was changed");
    // Two met points in between are no transition, three are.
    assert_eq!(since(stored(State::Violated, -10 * STEP)), -10 * STEP);
    let points = latencies(&[Some(1.0), Some(1.0), Some(1.0), Some(9.0), Some(9.0)]);
    let old = stored(State::Violated, -10 * STEP);
    let found = evaluate(Requirement::Latency(5.0), &window(&points), old);
    assert_eq!((found.state, found.since), (State::Violated, 3 * STEP));
}

#[test]
fn transition_needs_consecutive_points() {
    use State::{Met, Violated};
    let (m, v) = (Some(1.0), Some(9.0));
    let stored = |state| Some(StoredState { state, since: -STEP });
    for (stored, values, state, since) in [
        (stored(Met), vec![m, m, m, v], Met, -STEP),
        (stored(Met), vec![m, m, v, v], Violated, 2 * STEP),
        (stored(Met), vec![m, v, None, v], Violated, STEP),
        (stored(Met), vec![v, m, v, m, v], Met, -STEP),
        (stored(Violated), vec![v, m, m], Violated, -STEP),
        (stored(Violated), vec![v, m, m, v, m, m], Violated, -STEP),
        (stored(Violated), vec![v, m, m, m], Met, STEP),
        (stored(Violated), vec![m, m, m, v], Met, 0),
        // While nothing was evaluated, it was violated for a while.
        (stored(Met), vec![m, v, v, m], Violated, STEP),
        // The first verdict follows the window if it is long enough, or else the latest point.
        (None, vec![m, m, m, v], Met, 0),
        (None, vec![m, v, v, m], Violated, STEP),
        (None, vec![m, m, v], Violated, 2 * STEP),
        (None, vec![v, m], Met, STEP),
        // Points on both sides of a long gap are not consecutive.
        (stored(Met), vec![m, v, None, None, None, v], Met, -STEP),
        (stored(Violated), vec![v, None, None, None, m, m], Violated, -STEP),
        (stored(Violated), vec![v, None, None, None, m, v], Violated, 5 * STEP),
    ] {
        let points = latencies(&values);
        let found = evaluate(Requirement::Latency(5.0), &window(&points), stored);
        assert_eq!((found.state, found.since), (state, since), "{stored:?} {values:?}");
        assert_eq!(found.observed, *values.last().unwrap(), "the latest value, not the state's");
    }
}

#[test]
fn one_breach_violates_the_hard_latency() {
    let point = |at: i64, breaches| LoadPoint {
        at: at * STEP,
        rate: Some(1.0),
        breaches: Some(breaches),
        ..LoadPoint::default()
    };
    let mut points = vec![point(0, 0.0), point(1, 0.0), point(2, 0.0), point(3, 0.1)];
    let stored = Some(StoredState { state: State::Met, since: 0 });
    let found = |points: &[_]| evaluate(Requirement::HardLatency, &window(points), stored);
    assert_eq!((found(&points).state, found(&points).since), (State::Violated, 3 * STEP));
    points.extend([point(4, 0.0), point(5, 0.0)]);
    assert_eq!(found(&points).state, State::Violated);
    points.push(point(6, 0.0));
    assert_eq!((found(&points).state, found(&points).since), (State::Met, 4 * STEP));
}

#[test]
fn budget_of_latency_and_throughput_is_violated_time() {
    let budget = |values: &[Option<f64>]| {
        error_budget(Requirement::Latency(5.0), &window(&latencies(values)))
    };
    let mut values = vec![Some(1.0); 100];
    assert_eq!(budget(&values), Some(1.0));
    values[3] = Some(9.0);
    assert!((budget(&values).unwrap() - 0.8).abs() < 1e-9, "{:?}", budget(&values));
    // Unknown time is no part of the window, but a short gap belongs to the point after it.
    values.splice(50..50, [None; 10]);
    assert!((budget(&values).unwrap() - 0.8).abs() < 1e-9, "{:?}", budget(&values));
    values[2] = None;
    assert!((budget(&values).unwrap() - 0.6).abs() < 1e-9, "{:?}", budget(&values));
    values[4..10].fill(Some(9.0));
    assert_eq!(budget(&values), Some(0.0));
    assert_eq!(budget(&[None, None]), None);
    assert_eq!(budget(&[]), None);
    assert_eq!(budget(&[Some(9.0)]), Some(0.0));

    let queueing = LoadPoint {
        rate: Some(5.0),
        queued: Some(3.0),
        error_ratio: Some(0.0),
        ..LoadPoint::default()
    };
    let idle = LoadPoint { at: STEP, rate: Some(0.0), ..LoadPoint::default() };
    let budget = |points: &[_]| error_budget(Requirement::Throughput(10.0), &window(points));
    assert_eq!(budget(&[queueing, idle]), Some(0.0));
    assert_eq!(budget(&[idle]), Some(1.0));
}

#[test]
fn budget_of_availability_is_lost_requests() {
    let point = |at, rate, errors| LoadPoint {
        at,
        rate: Some(rate),
        error_ratio: Some(errors),
        ..LoadPoint::default()
    };
    let points = [point(0, 90.0, 0.0), point(STEP, 10.0, 0.1)];
    let budget = |required| error_budget(Requirement::Availability(required), &window(&points));
    assert!((budget(0.96).unwrap() - 0.75).abs() < 1e-9, "{:?}", budget(0.96));
    assert_eq!(budget(0.999), Some(0.0));
    assert_eq!(budget(1.0), Some(0.0));
    let all = Requirement::Availability(1.0);
    assert_eq!(error_budget(all, &window(&[point(0, 90.0, 0.0)])), Some(1.0));
    assert_eq!(error_budget(all, &window(&[point(0, 0.0, 0.0)])), Some(1.0), "nothing was lost");
    assert_eq!(error_budget(all, &window(&[LoadPoint::default()])), None);
}

#[test]
fn one_breach_uses_up_the_budget_of_the_hard_latency() {
    let point = |breaches| LoadPoint { rate: Some(1.0), breaches, ..LoadPoint::default() };
    let budget = |points: &[_]| error_budget(Requirement::HardLatency, &window(points));
    assert_eq!(budget(&[point(Some(0.0)), point(Some(0.0))]), Some(1.0));
    assert_eq!(budget(&[point(Some(0.01)), point(Some(0.0))]), Some(0.0));
    assert_eq!(budget(&[point(None)]), None);
}

#[test]
fn stored_time_counts_if_the_window_has_one_state() {
    let points = latencies(&[Some(9.0), None, Some(9.0), Some(9.0)]);
    let stored = Some(StoredState { state: State::Violated, since: -100 * STEP });
    let found = evaluate(Requirement::Latency(5.0), &window(&points), stored);
    assert_eq!(found.since, -100 * STEP);
    // A long gap says nothing about the time before it.
    let points = latencies(&[Some(9.0), None, None, None, None, Some(9.0)]);
    let found = evaluate(Requirement::Latency(5.0), &window(&points), stored);
    assert_eq!(found.since, 5 * STEP);
    // Neither does one at the start of the window.
    let points = latencies(&[Some(9.0), Some(9.0)]);
    let late = LoadWindow { start: -4 * STEP, ..window(&points) };
    assert_eq!(evaluate(Requirement::Latency(5.0), &late, stored).since, 0);
    // A gap before the stored time doesn't matter.
    let points = latencies(&[Some(9.0), None, None, None, None, None, Some(9.0), Some(9.0)]);
    let stored = Some(StoredState { state: State::Violated, since: 5 * STEP });
    let found = evaluate(Requirement::Latency(5.0), &window(&points), stored);
    assert_eq!(found.since, 5 * STEP);
}

#[test]
fn names_are_read_back() {
    for kind in RequirementKind::ALL {
        assert_eq!(RequirementKind::parse(kind.as_str()), Some(kind));
    }
    assert_eq!(Requirement::HardLatency.kind().as_str(), "hard_latency");
}

fn value() -> impl Strategy<Value = Option<f64>> {
    prop_oneof![1 => Just(None), 1 => Just(Some(0.0)), 3 => (0.0..200.0).prop_map(Some)]
}

fn ratio() -> impl Strategy<Value = Option<f64>> {
    prop_oneof![1 => Just(None), 1 => Just(Some(0.0)), 2 => (0.0..=1.0).prop_map(Some)]
}

fn points() -> impl Strategy<Value = Vec<LoadPoint>> {
    let point = (value(), value(), ratio(), value(), value(), value());
    prop::collection::vec(point, 1..20).prop_map(|all| {
        let point = |(at, (rate, latency, error_ratio, rejected, queued, breaches))| LoadPoint {
            at: at * STEP,
            rate,
            latency,
            error_ratio,
            rejected,
            queued,
            breaches,
        };
        (0..).zip(all).map(point).collect()
    })
}

fn requirement() -> impl Strategy<Value = Requirement> {
    prop_oneof![
        (0.0..200.0).prop_map(Requirement::Throughput),
        (0.0..200.0).prop_map(Requirement::Latency),
        (0.0..=1.0).prop_map(Requirement::Availability),
        Just(Requirement::HardLatency),
    ]
}

fn state() -> impl Strategy<Value = State> {
    prop_oneof![
        Just(State::Met),
        Just(State::Violated),
        Just(State::Unknown(UnknownReason::NoData)),
        Just(State::Unknown(UnknownReason::MissingSignal)),
    ]
}

fn stored() -> impl Strategy<Value = Option<StoredState>> {
    let any =
        (state(), -50..50_i64).prop_map(|(state, at)| StoredState { state, since: at * STEP });
    prop::option::of(any)
}

proptest! {
    /// The same data gives the same result again, and an unknown state says nothing.
    #[test]
    fn evaluation_is_idempotent(
        points in points(), requirement in requirement(), stored in stored(),
    ) {
        let window = window(&points);
        let first = evaluate(requirement, &window, stored);
        let again = StoredState { state: first.state, since: first.since };
        prop_assert_eq!(evaluate(requirement, &window, Some(again)), first);
        if stored.is_some_and(|it| matches!(it.state, State::Unknown(_))) {
            prop_assert_eq!(first.state, evaluate(requirement, &window, None).state);
        }
    }

    /// Wherever the outlier is, whichever values are missing, and in every window on the way.
    #[test]
    fn single_outlier_causes_no_transition(
        known in prop::collection::vec(prop::bool::weighted(0.8), 4..30),
        outlier in any::<prop::sample::Index>(), violated in any::<bool>(),
    ) {
        let (usual, other) = if violated { (9.0, 1.0) } else { (1.0, 9.0) };
        let outlier = outlier.index(known.len());
        let value = |(at, known): (usize, &bool)| match at {
            at if at == outlier => Some(other),
            _ => known.then_some(usual),
        };
        let values: Vec<_> = known.iter().enumerate().map(value).collect();
        let points = latencies(&values);
        let state = if violated { State::Violated } else { State::Met };
        let mut stored = StoredState { state, since: -STEP };
        for end in 1..=points.len() {
            let found = evaluate(Requirement::Latency(5.0), &window(&points[..end]), Some(stored));
            if !matches!(found.state, State::Unknown(_)) {
                prop_assert_eq!(found.state, state, "{:?}", &values[..end]);
                stored = StoredState { state, since: found.since };
            }
        }
        // Without a stored state, the points before or after the outlier must be enough by themselves.
        if known.len() >= 7 && known.iter().all(|it| *it) {
            let found = evaluate(Requirement::Latency(5.0), &window(&points), None);
            prop_assert_eq!(found.state, state);
        }
    }

    /// A window that moves on, with the result of the one before stored, sees what a single
    /// evaluation of all points sees.
    #[test]
    fn passes_agree_with_one_long_window(
        values in prop::collection::vec((0.0..10.0_f64).prop_map(Some), 8..60), length in 4..8_usize,
    ) {
        let points = latencies(&values);
        let start = StoredState { state: State::Met, since: 0 };
        let mut stored = start;
        for end in length..=points.len() {
            let window = window(&points[end - length..end]);
            let found = evaluate(Requirement::Latency(5.0), &window, Some(stored));
            stored = StoredState { state: found.state, since: found.since };
        }
        let found = evaluate(Requirement::Latency(5.0), &window(&points), Some(start));
        prop_assert_eq!((stored.state, stored.since), (found.state, found.since));
    }

    #[test]
    fn error_budget_is_a_share_and_less_for_a_stronger_latency(
        points in points(), requirement in requirement(), bound in 0.0..200.0_f64, slack in 0.0..50.0_f64,
    ) {
        let window = window(&points);
        if let Some(left) = error_budget(requirement, &window) {
            prop_assert!((0.0..=1.0).contains(&left), "{}", left);
        }
        let strong = error_budget(Requirement::Latency(bound), &window);
        let weak = error_budget(Requirement::Latency(bound + slack), &window);
        prop_assert!(strong <= weak && strong.is_some() == weak.is_some());
    }

    #[test]
    fn since_is_in_the_window_or_stored(
        points in points(), requirement in requirement(), stored in stored(),
    ) {
        let window = window(&points);
        let found = evaluate(requirement, &window, stored);
        prop_assert!(found.since <= window.end);
        let is_stored = stored.is_some_and(|stored| stored.since == found.since);
        prop_assert!(is_stored || found.since >= window.start);
    }

    /// A weaker requirement is never violated where a stronger one is met.
    #[test]
    fn weaker_requirement_is_met_if_a_stronger_is(
        points in points(), bound in 0.0..200.0_f64, slack in 0.0..50.0_f64,
    ) {
        let window = window(&points);
        let state = |requirement| evaluate(requirement, &window, None).state;
        if state(Requirement::Latency(bound)) == State::Met {
            prop_assert_eq!(state(Requirement::Latency(bound + slack)), State::Met);
        }
        if state(Requirement::Throughput(bound + slack)) == State::Met {
            prop_assert_eq!(state(Requirement::Throughput(bound)), State::Met);
        }
        let (weak, strong) = (bound / 400.0, (bound + slack) / 400.0);
        if state(Requirement::Availability(strong)) == State::Met {
            prop_assert_eq!(state(Requirement::Availability(weak)), State::Met);
        }
    }

    /// Without data, nothing is met and nothing is violated.
    #[test]
    fn nothing_is_known_without_a_current_rate(
        points in points(), requirement in requirement(), stored in stored(),
    ) {
        let silent: Vec<_> = points.iter().map(|it| LoadPoint { rate: None, ..*it }).collect();
        let found = evaluate(requirement, &window(&silent), stored);
        prop_assert_eq!(found.state, State::Unknown(UnknownReason::NoData));
        let late = LoadWindow { end: window(&points).end + GAP + 1, ..window(&points) };
        let found = evaluate(requirement, &late, stored);
        prop_assert!(matches!(found.state, State::Unknown(_)));
    }

    #[test]
    fn availability_is_a_share(points in points()) {
        if let Some(found) = availability(&points) {
            prop_assert!((0.0..=1.0).contains(&found));
        }
    }
}
