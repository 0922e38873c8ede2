//! A token bucket for each caller.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// Buckets kept at most. Beyond that the least recently used are dropped, which can only let a
/// caller send more.
const MAX_CALLERS: usize = 10_000;

pub(super) struct RateLimiter {
    per_second: f64,
    burst: f64,
    buckets: Mutex<HashMap<String, Bucket>>,
}

struct Bucket {
    left: f64,
    at: Instant,
}

impl RateLimiter {
    /// `per_second` 0 means no limit.
    pub(super) fn new(per_second: u32, burst: u32) -> Self {
        let buckets = Mutex::default();
        Self { per_second: per_second.into(), burst: burst.max(1).into(), buckets }
    }

    /// Takes one token of a caller, or returns how long until there is one.
    pub(super) fn take(&self, caller: &str, now: Instant) -> Result<(), Duration> {
        if self.per_second <= 0.0 {
            return Ok(());
        }
        let mut buckets = self.buckets.lock();
        if buckets.len() >= MAX_CALLERS && !buckets.contains_key(caller) {
            self.evict(&mut buckets, now);
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

    /// Drops full buckets, which are the same as new ones, then the older half.
    fn evict(&self, buckets: &mut HashMap<String, Bucket>, now: Instant) {
        buckets.retain(|_, bucket| self.filled(bucket, now) < self.burst);
        if buckets.len() >= MAX_CALLERS {
            let mut times: Vec<Instant> = buckets.values().map(|bucket| bucket.at).collect();
            times.sort_unstable();
            let middle = times.get(MAX_CALLERS / 2).copied().unwrap_or(now);
            buckets.retain(|_, bucket| bucket.at > middle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allows_a_burst_then_the_rate() {
        let limiter = RateLimiter::new(10, 3);
        let now = Instant::now();
        for _ in 0..3 {
            assert_eq!(limiter.take("a", now), Ok(()));
        }
        let wait = limiter.take("a", now).unwrap_err();
        assert!((wait.as_secs_f64() - 0.1).abs() < 0.001, "{wait:?}");
        assert_eq!(limiter.take("b", now), Ok(()));
        let later = now + Duration::from_millis(101);
        assert_eq!(limiter.take("a", later), Ok(()));
        assert!(limiter.take("a", later).is_err());
    }

    #[test]
    fn bounds_the_number_of_buckets() {
        let limiter = RateLimiter::new(1, 2);
        let now = Instant::now();
        for caller in 0..3 * MAX_CALLERS {
            let at = now + Duration::from_nanos(u64::try_from(caller).unwrap());
            let _ = limiter.take(&caller.to_string(), at);
        }
        assert!(limiter.buckets.lock().len() <= MAX_CALLERS);
    }

    #[test]
    fn zero_means_no_limit() {
        let limiter = RateLimiter::new(0, 1);
        let now = Instant::now();
        assert!((0..100).all(|_| limiter.take("a", now).is_ok()));
    }
}
