//! Histograms are read at fewer times than other metrics.

use proptest::prelude::*;

use super::*;

const STRIDE: usize = 2;
const QUANTILES: [Signal; 3] = [Signal::LatencyP50, Signal::LatencyP95, Signal::LatencyP99];
const BOUNDS: [&str; 6] = ["0.001", "0.01", "0.05", "0.2", "1", "+Inf"];

/// What a pass finds that reads histograms at each `stride`-th time.
fn folded_at(stride: usize, series: &[Series], pods: &[PodRef]) -> ComponentSignals {
    let index = Arc::new(PodIndex::new(pods.to_vec()));
    let histogram_window = window().every(stride);
    let sink = RowSink::new(Query::ProxyLatency, histogram_window, &index, &Arc::default());
    for series in series {
        sink.accept(&series.into(), &series.points).unwrap();
    }
    let rows = sink.take(Received::default());
    let answers = BTreeMap::from([(Query::ProxyLatency, Ok(rows))]);
    let results = QueryResults { window: window(), histogram_window, answers };
    fold(&results, &index, SCRAPE_INTERVAL, at(NOW)).components[&component("a")].clone()
}

/// The buckets of a pod, from the requests in each bucket at each time; None is a gap.
fn histogram(pod: &str, times: &[Option<[f64; 6]>]) -> Vec<Series> {
    let cumulative = |until: usize| {
        times.iter().map(move |time| time.map(|counts| counts[..=until].iter().sum()))
    };
    let bounds = BOUNDS.iter().enumerate();
    bounds
        .map(|(until, bound)| series(pod, &[("le", bound)], &cumulative(until).collect::<Vec<_>>()))
        .collect()
}

/// Requests that all take from 10 to 50 ms, or from 200 ms to 1 s.
fn uniform(is_slow: bool) -> [f64; 6] {
    if is_slow { [0.0, 0.0, 0.0, 0.0, 9.0, 0.0] } else { [0.0, 0.0, 9.0, 0.0, 0.0, 0.0] }
}

#[test]
fn value_holds_for_the_times_since_the_one_before() {
    let times = [true, false, false, true, true].map(|it| Some(uniform(it)));
    let found = folded_at(STRIDE, &histogram("p", &times), &[pod("a", "p")]);
    let slow: Vec<_> =
        points(&found, Signal::LatencyP95).iter().map(|(_, value)| *value > 0.2).collect();
    assert_eq!(slow, [true, false, false, true, true]);
    // The value at index 3 isn't read: what is measured at index 4 covers it.
    let times = [true, false, false, false, true].map(|it| Some(uniform(it)));
    let found = folded_at(STRIDE, &histogram("p", &times), &[pod("a", "p")]);
    let newest = found.get(Signal::LatencyP95).unwrap().latest;
    assert_eq!(points(&found, Signal::LatencyP95)[3], (3, newest));
}

#[test]
fn unknown_value_is_a_gap_after_which_the_one_before_is_stale() {
    let times = [true, true, false, true, true].map(|known| known.then(|| uniform(false)));
    let found = folded_at(STRIDE, &histogram("p", &times), &[pod("a", "p")]);
    let known: Vec<_> = points(&found, Signal::LatencyP95).iter().map(|(at, _)| *at).collect();
    assert_eq!(known, [0, 1, 3, 4]);
    // A missing pod makes the percentile of all unknown, and so does the newest value.
    let both = [pod("a", "p"), pod("a", "q")];
    assert_eq!(folded_at(STRIDE, &histogram("p", &times), &both).signals, BTreeMap::new());
}

fn counts() -> impl Strategy<Value = Option<[f64; 6]>> {
    let count = prop_oneof![2 => Just(0.0), 3 => 0.0..100.0_f64];
    prop_oneof![5 => prop::array::uniform6(count).prop_map(Some), 1 => Just(None)]
}

proptest! {
    #[test]
    fn percentiles_are_those_of_all_times(
        pods in prop::collection::vec(prop::collection::vec(counts(), TIMES), 1..4),
    ) {
        // Without a current value there is no signal.
        let mut pods = pods;
        for times in &mut pods {
            times[TIMES - 1] = Some(uniform(false));
        }
        let refs: Vec<_> = (0..pods.len()).map(|pod_number| pod("a", &format!("p{pod_number}"))).collect();
        let all: Vec<_> = pods
            .iter()
            .enumerate()
            .flat_map(|(number, times)| histogram(&format!("p{number}"), times))
            .collect();
        let (full, reduced) = (folded_at(1, &all, &refs), folded_at(STRIDE, &all, &refs));
        for signal in QUANTILES {
            // A time that is read has the same value; others have that of the next one, or if that is
            // unknown, of the one before.
            let full: BTreeMap<_, _> = points(&full, signal).into_iter().collect();
            let expected: Vec<_> = (0..TIMES)
                .filter_map(|index| {
                    let (next, before) = (index.next_multiple_of(STRIDE), index - index % STRIDE);
                    Some((index, *full.get(&next).or_else(|| full.get(&before))?))
                })
                .collect();
            prop_assert_eq!(points(&reduced, signal), expected);
        }
    }
}
