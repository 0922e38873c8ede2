//! Quantiles of histograms, as `histogram_quantile` of Prometheus computes them.

/// Relative differences below this are rounding errors of sums.
const TOLERANCE: f64 = 1e-12;

/// The `q`-quantile of a histogram, interpolated linearly inside its bucket; None if there are no
/// observations, no finite bucket or no `+Inf` bucket.
///
/// `buckets` are upper bounds with cumulative counts or rates, in order of their bounds, which are at
/// least 0 and differ. A quantile in the `+Inf` bucket is the highest finite bound, which is then too
/// low.
pub fn bucket_quantile(q: f64, buckets: &[(f64, f64)]) -> Option<f64> {
    let (last, finite) = buckets.split_last()?;
    let (highest, _) = finite.last()?;
    if last.0 != f64::INFINITY || !(0.0..=1.0).contains(&q) {
        return None;
    }
    let total = monotonic(buckets).last().filter(|total| *total > 0.0)?;
    let rank = q * total;
    let (mut lower_bound, mut below) = (0.0, 0.0);
    for (&(bound, _), count) in finite.iter().zip(monotonic(finite)) {
        if count >= rank {
            // Only a quantile of 0 has a rank that an empty first bucket reaches.
            let share = if count > below { (rank - below) / (count - below) } else { 0.0 };
            return Some(lower_bound + (bound - lower_bound) * share);
        }
        (lower_bound, below) = (bound, count);
    }
    Some(*highest)
}

/// The counts without decreases, which scrapes at different times and rounding cause.
fn monotonic(buckets: &[(f64, f64)]) -> impl Iterator<Item = f64> + '_ {
    let mut previous: Option<f64> = None;
    buckets.iter().map(move |&(_, count)| {
        let count = match previous {
            Some(before) if count <= before || count - before <= count * TOLERANCE => before,
            _ => count,
        };
        previous = Some(count);
        count
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INF: f64 = f64::INFINITY;

    #[test]
    fn interpolates_as_prometheus_does() {
        let buckets = [(0.1, 10.0), (0.2, 30.0), (0.5, 40.0), (INF, 40.0)];
        for (q, expected) in [
            (0.0, 0.0),
            (0.125, 0.05),
            (0.25, 0.1),
            (0.5, 0.15),
            (0.75, 0.2),
            (0.875, 0.35),
            (1.0, 0.5),
        ] {
            let found = bucket_quantile(q, &buckets).unwrap();
            assert!((found - expected).abs() < 1e-9, "{q}: {found}");
        }
    }

    #[test]
    fn quantile_in_the_last_bucket_is_its_lower_bound() {
        assert_eq!(bucket_quantile(0.9, &[(0.1, 1.0), (1.0, 5.0), (INF, 10.0)]), Some(1.0));
        assert_eq!(bucket_quantile(0.5, &[(0.1, 0.0), (1.0, 0.0), (INF, 10.0)]), Some(1.0));
    }

    #[test]
    fn incomplete_histograms_have_no_quantile() {
        for buckets in
            [[].as_slice(), &[(INF, 5.0)], &[(0.1, 1.0), (0.2, 5.0)], &[(0.1, 0.0), (INF, 0.0)]]
        {
            assert_eq!(bucket_quantile(0.5, buckets), None, "{buckets:?}");
        }
        for q in [-0.1, 1.1, f64::NAN] {
            assert_eq!(bucket_quantile(q, &[(0.1, 1.0), (INF, 1.0)]), None);
        }
    }

    #[test]
    fn decreases_are_ignored() {
        let rough = [(0.1, 10.0), (0.2, 9.0), (0.5, 20.0), (INF, 19.0)];
        let smooth = [(0.1, 10.0), (0.2, 10.0), (0.5, 20.0), (INF, 20.0)];
        for q in [0.1, 0.5, 0.75, 1.0] {
            assert_eq!(bucket_quantile(q, &rough), bucket_quantile(q, &smooth), "{q}");
        }
    }

    fn histogram() -> impl Strategy<Value = Vec<(f64, f64)>> {
        prop::collection::vec((0.001..10.0_f64, 0.0..1000.0_f64), 1..12).prop_map(|parts| {
            let (mut bound, mut count) = (0.0, 0.0);
            let mut buckets: Vec<_> = parts
                .into_iter()
                .map(|(width, more)| {
                    (bound, count) = (bound + width, count + more);
                    (bound, count)
                })
                .collect();
            buckets.push((INF, count + 1.0));
            buckets
        })
    }

    proptest! {
        #[test]
        fn grows_with_q_and_stays_inside_of_the_buckets(
            buckets in histogram(), a in 0.0..=1.0_f64, b in 0.0..=1.0_f64
        ) {
            let (low, high) = (a.min(b), a.max(b));
            let (low, high) =
                (bucket_quantile(low, &buckets).unwrap(), bucket_quantile(high, &buckets).unwrap());
            let highest = buckets[buckets.len() - 2].0;
            prop_assert!(0.0 <= low && low <= high + 1e-9 && high <= highest);
        }

        #[test]
        fn the_rank_at_the_quantile_is_q(buckets in histogram(), q in 0.0..=1.0_f64) {
            let total = buckets[buckets.len() - 1].1;
            let found = bucket_quantile(q, &buckets).unwrap();
            // The cumulative count at the quantile, by the inverse interpolation.
            let (mut before, mut count) = ((0.0, 0.0), None);
            for &(bound, cumulative) in &buckets[..buckets.len() - 1] {
                if found <= bound {
                    let share = (found - before.0) / (bound - before.0);
                    count = Some(before.1 + share * (cumulative - before.1));
                    break;
                }
                before = (bound, cumulative);
            }
            let finite = buckets[buckets.len() - 2].1;
            let expected = (q * total).min(finite);
            prop_assert!((count.unwrap() - expected).abs() <= 1e-6 * total.max(1.0));
        }

        #[test]
        fn scaling_all_counts_changes_nothing(
            buckets in histogram(), q in 0.0..=1.0_f64, factor in 0.001..1000.0_f64
        ) {
            let scaled: Vec<_> = buckets.iter().map(|(le, count)| (*le, count * factor)).collect();
            let (a, b) = (bucket_quantile(q, &buckets).unwrap(), bucket_quantile(q, &scaled).unwrap());
            prop_assert!((a - b).abs() <= 1e-6 * a.max(1.0));
        }
    }
}
