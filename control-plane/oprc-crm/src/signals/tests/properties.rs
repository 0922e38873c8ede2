use proptest::prelude::*;

use super::*;

/// Names that are prefixes of each other.
const CLASSES: [&str; 4] = ["a", "a-b", "a--b", "a-b-c"];

fn value() -> impl Strategy<Value = Option<f64>> {
    prop_oneof![
        6 => (0.0..1000.0_f64).prop_map(Some),
        1 => Just(None),
        1 => prop::sample::select(vec![
            f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, -0.0, 1e308, f64::MIN_POSITIVE,
        ]).prop_map(Some),
    ]
}

fn label_of(query: Query) -> BoxedStrategy<Vec<(&'static str, &'static str)>> {
    let values: Vec<&str> = match query {
        Query::ProxyRequests => vec!["ok", "client_error", "timeout", ""],
        Query::KnativeRequests | Query::OwnRequests => vec!["200", "503", ""],
        Query::ProxyLatency | Query::KnativeLatency | Query::OwnLatency => {
            vec!["0.1", "1", "1.0", "+Inf", "NaN", "-1", "x"]
        }
        Query::Cpu | Query::Memory | Query::CpuThrottling | Query::OomEvents => {
            vec!["function", "oprc-proxy"]
        }
        _ => vec![],
    };
    let name = match query.source() {
        Source::CAdvisor => "container",
        _ => query.dimension().unwrap_or("extra"),
    };
    if values.is_empty() {
        return Just(vec![]).boxed();
    }
    prop::sample::select(values).prop_map(move |value| vec![(name, value)]).boxed()
}

/// A series with any labels of a pod of any class, or of a pod of none.
fn any_series() -> impl Strategy<Value = (Query, Series)> {
    prop::sample::select(Query::ALL.to_vec()).prop_flat_map(|query| {
        let class = prop::sample::select(vec!["a", "a-b", "a--b", "a-b-c", "stranger"]);
        let values = prop::collection::vec(value(), TIMES);
        (class, 0..3_usize, label_of(query), values).prop_map(
            move |(class, pod, labels, values)| {
                (query, series(&format!("{class}-{pod}"), &labels, &values))
            },
        )
    })
}

fn any_pod() -> impl Strategy<Value = PodRef> {
    let class = prop::sample::select(CLASSES.to_vec());
    (class, 0..3_usize, any::<bool>(), 0..TIMES, any::<bool>()).prop_map(
        |(class, number, ready, created, gone)| PodRef {
            ready,
            created: at(time(created) - 45),
            ready_at: ready.then(|| at(time(created) - 40)),
            deleted_at: gone.then(|| at(NOW)),
            ..pod(class, &format!("{class}-{number}"))
        },
    )
}

fn fold_all(all: &[(Query, Series)], pods: &[PodRef]) -> Folded {
    let mut answers = Answers::new();
    for (query, series) in all {
        let set = answers.entry(*query).or_insert_with(|| answer(vec![]));
        set.as_mut().unwrap().series.push(series.clone());
    }
    folded(answers, pods.to_vec())
}

/// Bit by bit, so that also the order of additions has to be the same.
fn text(folded: &Folded) -> String {
    format!("{folded:?}")
}

proptest! {
    #[test]
    fn order_of_the_input_changes_nothing(
        (all, shuffled) in prop::collection::vec(any_series(), 0..40)
            .prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
        (pods, shuffled_pods) in prop::collection::vec(any_pod(), 0..12)
            .prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
    ) {
        prop_assert_eq!(text(&fold_all(&all, &pods)), text(&fold_all(&shuffled, &shuffled_pods)));
    }

    #[test]
    fn output_has_only_known_values(
        all in prop::collection::vec(any_series(), 0..60),
        pods in prop::collection::vec(any_pod(), 0..12),
    ) {
        for component in fold_all(&all, &pods).components.values() {
            for (signal, observed) in &component.signals {
                let sane = |value: f64| value.is_finite() && value.is_sign_positive();
                prop_assert!(observed.points.iter().all(|point| sane(point.value)), "{signal:?}");
                let latest = observed.points.last().unwrap();
                prop_assert_eq!((latest.value, latest.at), (observed.latest, observed.at));
                prop_assert!(observed.points.is_sorted_by(|a, b| a.at < b.at));
                prop_assert!(observed.at >= at(NOW - 3 * STEP));
                if matches!(signal, Signal::ErrorRatio) {
                    prop_assert!(observed.latest <= 1.0);
                }
            }
        }
    }

    #[test]
    fn series_of_other_classes_change_nothing(
        all in prop::collection::vec(any_series(), 0..40),
        pods in prop::collection::vec(any_pod(), 0..12),
        class in prop::sample::select(CLASSES.to_vec()),
    ) {
        let own = |name: &str| name.strip_prefix(class).is_some_and(|rest| {
            matches!(rest.as_bytes(), [b'-', digit] if digit.is_ascii_digit())
        });
        let only: Vec<_> =
            all.iter().filter(|(_, series)| own(&series.labels["pod"])).cloned().collect();
        let (alone, together) = (fold_all(&only, &pods), fold_all(&all, &pods));
        let id = component(class);
        prop_assert_eq!(
            format!("{:?}", alone.components.get(&id)),
            format!("{:?}", together.components.get(&id))
        );
    }

    #[test]
    fn sum_is_unknown_without_any_of_its_pods(
        count in 1..6_usize, missing in any::<prop::sample::Index>(), query in prop::sample::select(vec![
            Query::ProxyInFlight, Query::ProxyQueueLength, Query::KnativeInFlight, Query::ProxyRejected,
        ]),
    ) {
        let pods: Vec<_> = (0..count).map(|number| pod("a", &format!("p{number}"))).collect();
        let mut all: Vec<_> =
            pods.iter().map(|pod| (query, constant(&pod.name, &[], 1.0))).collect();
        prop_assert_eq!(fold_all(&all, &pods).components[&component("a")].signals.len(), 1);
        all.remove(missing.index(count));
        prop_assert_eq!(fold_all(&all, &pods).components[&component("a")].signals.len(), 0);
    }
}
