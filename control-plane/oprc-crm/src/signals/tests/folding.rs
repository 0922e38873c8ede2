use super::*;

#[test]
fn sums_over_the_pods_of_a_component() {
    let all = vec![constant("p", &[], 1.5), constant("q", &[], 2.0), constant("r", &[], 100.0)];
    let pods = [pod("a", "p"), pod("a", "q"), pod("b", "r")];
    let found = signals(Query::ProxyInFlight, all, pods);
    let observed = found.get(Signal::InFlight).unwrap();
    assert_eq!(observed.points.len(), TIMES);
    assert_eq!((observed.latest, observed.at, observed.source), (3.5, at(NOW), Source::Proxy));
}

#[test]
fn resources_are_those_of_the_function_container() {
    let of = |pod, container, value| constant(pod, &[("container", container)], value);
    let all = vec![
        of("p", "function", 0.25),
        of("p", "oprc-proxy", 5.0),
        of("q", "function", 0.5),
        of("q", "queue-proxy", 5.0),
    ];
    let found = signals(Query::Cpu, all.clone(), [pod("a", "p"), pod("a", "q")]);
    assert_eq!(points(&found, Signal::Cpu)[0], (0, 0.75));
    assert_eq!(points(&found, Signal::CpuMax)[0], (0, 0.5));
    let found = signals(Query::Memory, all, [pod("a", "p"), pod("a", "q")]);
    assert_eq!(points(&found, Signal::MemoryMax)[0], (0, 0.5));
}

#[test]
fn missing_pod_makes_the_sum_unknown() {
    let all = vec![constant("p", &[], 1.0)];
    for query in [Query::ProxyInFlight, Query::ProxyRejected] {
        let found = signals(query, all.clone(), [pod("a", "p"), pod("a", "q")]);
        assert_eq!(found.signals, BTreeMap::new(), "{query:?}");
    }
    let mut unready = pod("a", "q");
    unready.ready = false;
    let found = signals(Query::ProxyInFlight, all, [pod("a", "p"), unready]);
    assert_eq!(points(&found, Signal::InFlight).len(), TIMES);
}

#[test]
fn gap_of_one_pod_is_a_gap_of_the_sum() {
    let gap = [Some(1.0), None, Some(1.0), Some(f64::NAN), Some(1.0)];
    let all = vec![series("p", &[], &gap), constant("q", &[], 2.0)];
    let found = signals(Query::ProxyInFlight, all, [pod("a", "p"), pod("a", "q")]);
    assert_eq!(points(&found, Signal::InFlight), [(0, 3.0), (2, 3.0), (4, 3.0)]);
}

#[test]
fn new_pod_is_required_after_two_scrapes_or_its_first_value() {
    let mut fresh = pod("a", "q");
    fresh.created = at(time(1));
    fresh.ready_at = Some(at(time(2)));
    let old = constant("p", &[], 1.0);
    // Two scrapes take one step: it is missing from index 3 on.
    let found = signals(Query::ProxyInFlight, vec![old.clone()], [pod("a", "p"), fresh.clone()]);
    assert_eq!(found.get(Signal::InFlight).unwrap().points.len(), 3);
    // It had a value before: the gap at index 3 is one of the sum.
    let late = series("q", &[], &[None, None, Some(1.0), None, Some(1.0)]);
    let found = signals(Query::ProxyInFlight, vec![old, late], [pod("a", "p"), fresh]);
    assert_eq!(points(&found, Signal::InFlight), [(0, 1.0), (1, 1.0), (2, 2.0), (4, 2.0)]);
}

#[test]
fn deleted_pod_counts_in_the_past() {
    let mut gone = pod("a", "q");
    gone.ready = false;
    gone.deleted_at = Some(at(time(2)));
    let all =
        vec![constant("p", &[], 1.0), series("q", &[], &[Some(5.0), Some(5.0), None, None, None])];
    let sums = |all: Vec<Series>| -> Vec<f64> {
        let found = signals(Query::ProxyInFlight, all, [pod("a", "p"), gone.clone()]);
        points(&found, Signal::InFlight).iter().map(|(_, value)| *value).collect()
    };
    assert_eq!(sums(all), [6.0, 6.0, 1.0, 1.0, 1.0]);
    // Prometheus knows its latest scrape for longer than it exists.
    let all = vec![constant("p", &[], 1.0), constant("q", &[], 5.0)];
    assert_eq!(sums(all), [6.0, 6.0, 1.0, 1.0, 1.0]);
}

#[test]
fn reused_name_belongs_to_the_pod_that_existed_at_the_time() {
    let mut first = pod("b", "p");
    first.ready = false;
    let mut second = pod("a", "p");
    second.uid = "another".to_owned();
    second.created = at(time(2));
    second.ready_at = Some(at(time(2)));
    let answers = Answers::from([(Query::ProxyInFlight, answer(vec![constant("p", &[], 1.0)]))]);
    let found = folded(answers, [second, first]).components;
    assert_eq!(points(&found[&component("a")], Signal::InFlight), [(2, 1.0), (3, 1.0), (4, 1.0)]);
    assert_eq!(points(&found[&component("b")], Signal::InFlight), [(0, 1.0), (1, 1.0)]);
}

#[test]
fn stale_values_are_unknown() {
    let until = |last: usize| {
        let values: Vec<_> = (0..TIMES).map(|index| (index <= last).then_some(1.0)).collect();
        let mut unready = pod("a", "p");
        unready.ready = false;
        signals(Query::ProxyInFlight, vec![series("p", &[], &values)], [unready])
    };
    assert_eq!(until(1).get(Signal::InFlight).unwrap().at, at(NOW - 3 * STEP));
    assert_eq!(until(0).get(Signal::InFlight), None);
}

#[test]
fn error_ratio_counts_failures_of_the_server() {
    let of = |outcome, value| constant("p", &[("outcome", outcome)], value);
    let all = vec![
        of("ok", 6.0),
        of("client_error", 1.0),
        of("server_error", 1.0),
        of("timeout", 1.0),
        of("unreachable", 1.0),
    ];
    let found = signals(Query::ProxyRequests, all.clone(), [pod("a", "p")]);
    assert_eq!(points(&found, Signal::Rate)[0], (0, 10.0));
    assert_eq!(points(&found, Signal::ErrorRatio)[0], (0, 0.3));
    // The zero of a pod that was scraped has no outcome.
    let idle = vec![constant("p", &[], 0.0)];
    let found = signals(Query::ProxyRequests, idle, [pod("a", "p")]);
    assert_eq!(points(&found, Signal::Rate)[0], (0, 0.0));
    assert_eq!(found.get(Signal::ErrorRatio), None, "no requests");
    let unlabelled = vec![constant("p", &[], 2.0)];
    let found = signals(Query::OwnRequests, unlabelled, [pod("a", "p")]);
    assert_eq!(points(&found, Signal::Rate)[0], (0, 2.0));
    assert_eq!(found.get(Signal::ErrorRatio), None, "outcomes are unknown");
}

fn buckets(pod: &str, counts: &[(&str, f64)]) -> Vec<Series> {
    counts.iter().map(|(le, count)| constant(pod, &[("le", le)], *count)).collect()
}

#[test]
fn latency_is_that_of_all_requests_of_a_function() {
    // 10/s up to 0.1 s in one pod, 30/s between 0.1 and 0.2 s in the other.
    let mut all = buckets("p", &[("0.1", 10.0), ("0.2", 10.0), ("+Inf", 10.0)]);
    all.extend(buckets("q", &[("0.1", 0.0), ("0.2", 30.0), ("+Inf", 30.0)]));
    all.extend(buckets("other", &[("0.1", 0.0), ("0.2", 0.0), ("+Inf", 1e6)]));
    let pods = [pod("a", "p"), pod("a", "q"), pod("b", "other")];
    let found = signals(Query::ProxyLatency, all, pods);
    let p50 = found.get(Signal::LatencyP50).unwrap().latest;
    assert!((p50 - (0.1 + 0.1 / 3.0)).abs() < 1e-9, "{p50}");
    let p99 = found.get(Signal::LatencyP99).unwrap().latest;
    assert!((0.19..0.2).contains(&p99), "{p99}");
}

#[test]
fn latency_needs_every_pod_but_not_requests_of_every_pod() {
    let busy = buckets("p", &[("0.1", 10.0), ("+Inf", 10.0)]);
    let pods = [pod("a", "p"), pod("a", "q")];
    let found = signals(Query::ProxyLatency, busy.clone(), pods.clone());
    assert_eq!(found.signals, BTreeMap::new(), "q is missing");
    let idle = buckets("q", &[("+Inf", 0.0)]);
    let found = signals(Query::ProxyLatency, [busy, idle.clone()].concat(), pods);
    assert_eq!(found.get(Signal::LatencyP95).unwrap().latest.to_string(), "0.095");
    let found = signals(Query::ProxyLatency, idle, [pod("a", "q")]);
    assert_eq!(found.signals, BTreeMap::new(), "no requests");
}

#[test]
fn pods_with_different_buckets_share_the_common_ones() {
    let mut all = buckets("p", &[("0.1", 5.0), ("0.2", 10.0), ("1", 10.0), ("+Inf", 10.0)]);
    all.extend(buckets("q", &[("0.2", 5.0), ("0.5", 10.0), ("1.0", 10.0), ("+Inf", 10.0)]));
    let found = signals(Query::ProxyLatency, all, [pod("a", "p"), pod("a", "q")]);
    // 15 of 20 up to 0.2 s, and all up to 1 s.
    assert_eq!(
        found.get(Signal::LatencyP50).unwrap().latest.to_string(),
        (0.2 * (10.0 / 15.0)).to_string()
    );
    let mut all = buckets("p", &[("0.1", 5.0), ("+Inf", 10.0)]);
    all.extend(buckets("q", &[("0.2", 5.0), ("+Inf", 10.0)]));
    let found = signals(Query::ProxyLatency, all, [pod("a", "p"), pod("a", "q")]);
    assert_eq!(found.signals, BTreeMap::new(), "nothing in common");
}

#[test]
fn first_source_with_a_current_value_counts() {
    let answers = |proxy: Vec<Series>| {
        Answers::from([
            (Query::ProxyRequests, answer(proxy)),
            (Query::KnativeRequests, answer(vec![])),
            (Query::OwnRequests, answer(vec![constant("p", &[("status", "200")], 3.0)])),
        ])
    };
    let rate = |answers: Answers| {
        let found = folded(answers, [pod("a", "p")]).components[&component("a")].clone();
        let observed = found.get(Signal::Rate).unwrap();
        (observed.source, observed.latest)
    };
    let proxy = vec![constant("p", &[("outcome", "ok")], 5.0)];
    assert_eq!(rate(answers(proxy)), (Source::Proxy, 5.0));
    assert_eq!(rate(answers(vec![])), (Source::OwnHistogram, 3.0));
}

#[test]
fn failed_and_partial_answers_are_unknown() {
    let all = vec![constant("p", &[], 1.0)];
    for answer in [Ok(SeriesSet { series: all, partial: true }), Err(QueryError::Timeout)] {
        let found = folded(Answers::from([(Query::ProxyInFlight, answer)]), [pod("a", "p")]);
        assert_eq!(found.components[&component("a")].signals, BTreeMap::new());
    }
}

#[test]
fn series_that_cannot_be_told_apart_are_unknown() {
    let all = vec![
        constant("p", &[("path", "/x")], 1.0),
        constant("p", &[("path", "/y")], 2.0),
        constant("q", &[], 2.0),
    ];
    let answers = Answers::from([(Query::ProxyInFlight, answer(all))]);
    let found = folded(answers, [pod("a", "p"), pod("b", "q")]).components;
    assert_eq!(found[&component("a")].signals, BTreeMap::new());
    assert_eq!(points(&found[&component("b")], Signal::InFlight)[0], (0, 2.0));
}

#[test]
fn series_of_other_pods_are_ignored_and_counted() {
    let mut elsewhere = constant("p", &[], 1.0);
    elsewhere.labels.insert("namespace".to_owned(), "other".to_owned());
    let mut nowhere = constant("p", &[], 1.0);
    nowhere.labels.remove("pod");
    let all = vec![constant("p-1", &[], 9.0), elsewhere, nowhere, constant("p", &[], 1.0)];
    let found = folded(Answers::from([(Query::ProxyInFlight, answer(all))]), [pod("a", "p")]);
    assert_eq!(found.ignored_series, 3);
    assert_eq!(points(&found.components[&component("a")], Signal::InFlight)[0], (0, 1.0));
}

#[test]
fn functions_and_the_data_grid_of_a_class_are_separate() {
    let mut grid = pod("a", "g");
    grid.component = Component::DataGrid;
    let mut other = pod("a", "q");
    other.component = Component::Function("g".to_owned());
    let all = ["p", "q", "g"].map(|name| constant(name, &[("container", "function")], 1.0));
    let answers = Answers::from([(Query::Cpu, answer(all.to_vec()))]);
    let found = folded(answers, [pod("a", "p"), other, grid]).components;
    assert_eq!(found.len(), 3);
    assert!(
        found.values().all(|it| it.get(Signal::Cpu).unwrap().latest.to_bits() == 1_f64.to_bits())
    );
}

#[test]
fn start_up_time_is_the_90th_percentile_of_pods() {
    let pods = (1..=10).map(|seconds| PodRef {
        ready_at: Some(at(1000 + seconds)),
        ..pod("a", &format!("p{seconds}"))
    });
    let unready = PodRef { ready_at: None, ..pod("a", "never") };
    let backwards = PodRef { ready_at: Some(at(0)), ..pod("a", "before") };
    let found = signals(Query::Cpu, vec![], pods.chain([unready.clone(), backwards]));
    assert_eq!(found.start_up, Some(StartUpTime { p90: 9.0, pods: 10 }));
    assert_eq!(signals(Query::Cpu, vec![], [unready]).start_up, None);
}

#[test]
fn points_between_steps_are_ignored() {
    let mut shifted = constant("p", &[], 1.0);
    for point in &mut shifted.points {
        point.at = point.at.checked_sub(Duration::from_millis(1)).unwrap();
    }
    assert_eq!(
        signals(Query::ProxyInFlight, vec![shifted], [pod("a", "p")]).signals,
        BTreeMap::new()
    );
}
