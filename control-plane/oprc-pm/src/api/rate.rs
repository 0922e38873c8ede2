//! How often one caller may ask: a bucket for each that fills again with time.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// So many callers are remembered. Beyond that those who have asked least lately are forgotten,
/// which only ever lets somebody ask more.
const CALLERS: usize = 10_000;

/// Buckets of all callers.
pub(super) struct Rates {
    per_second: f64,
    burst: f64,
    buckets: Mutex<HashMap<String, Bucket>>,
}

struct Bucket {
    left: f64,
    at: Instant,
}

impl Rates {
    /// So many a second in the long run, and so many at once; no limit where the first is 0.
    pub(super) fn new(per_second: u32, burst: u32) -> Self {
        let buckets = Mutex::default();
        Self { per_second: per_second.into(), burst: burst.max(1).into(), buckets }
    }

    /// Takes one request of a caller's, or tells how long there is to wait for the next.
    pub(super) fn take(&self, caller: &str, now: Instant) -> Result<(), Duration> {
        if self.per_second <= 0.0 {
            return Ok(());
        }
        let mut buckets = self.buckets.lock();
        if buckets.len() >= CALLERS && !buckets.contains_key(caller) {
            self.forget(&mut buckets, now);
        }
        let bucket = buckets
            .entry(caller.to_owned())
            .or_insert_with(|| Bucket { left: self.burst, at: now });
        bucket.left = self.filled(bucket, now);
        bucket.at = now;
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - bucket.left) / self.per_second))
    }

    fn filled(&self, bucket: &Bucket, now: Instant) -> f64 {
        let since = now.saturating_duration_since(bucket.at).as_secs_f64();
        (bucket.left + since * self.per_second).min(self.burst)
    }

    /// A full bucket tells nothing; where there are none, the older half goes.
    fn forget(&self, buckets: &mut HashMap<String, Bucket>, now: Instant) {
        buckets.retain(|_, bucket| self.filled(bucket, now) < self.burst);
        if buckets.len() >= CALLERS {
            let mut times: Vec<Instant> = buckets.values().map(|bucket| bucket.at).collect();
            times.sort_unstable();
            let middle = times.get(CALLERS / 2).copied().unwrap_or(now);
            buckets.retain(|_, bucket| bucket.at > middle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_the_rate() {
        let rates = Rates::new(10, 3);
        let now = Instant::now();
        for _ in 0..3 {
            assert_eq!(rates.take("a", now), Ok(()));
        }
        let wait = rates.take("a", now).unwrap_err();
        assert!((wait.as_secs_f64() - 0.1).abs() < 0.001, "{wait:?}");
        assert_eq!(rates.take("b", now), Ok(()));
        let later = now + Duration::from_millis(101);
        assert_eq!(rates.take("a", later), Ok(()));
        assert!(rates.take("a", later).is_err());
    }

    #[test]
    fn nothing_grows_without_bound() {
        let rates = Rates::new(1, 2);
        let now = Instant::now();
        for caller in 0..3 * CALLERS {
            let at = now + Duration::from_nanos(u64::try_from(caller).unwrap());
            let _ = rates.take(&caller.to_string(), at);
        }
        assert!(rates.buckets.lock().len() <= CALLERS);
    }

    #[test]
    fn no_limit_where_none_is_wanted() {
        let rates = Rates::new(0, 1);
        let now = Instant::now();
        assert!((0..100).all(|_| rates.take("a", now).is_ok()));
    }
}
