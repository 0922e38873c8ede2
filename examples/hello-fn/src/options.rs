//! Query parameters that simulate load, latency and failures.

use std::time::Duration;

use axum::http::StatusCode;
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;

const MAX_DURATION_MS: u64 = 60_000;
const MAX_MEMORY_MB: usize = 1024;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RequestOptions {
    pub(crate) name: Option<String>,
    sleep_ms: u64,
    burn_ms: u64,
    hold_mb: usize,
    keep_mb: usize,
    fail: Option<u16>,
}

impl RequestOptions {
    /// Rejects values out of range.
    pub(crate) fn validate(self) -> Result<Self, String> {
        for (field, value) in [("sleep_ms", self.sleep_ms), ("burn_ms", self.burn_ms)] {
            if value > MAX_DURATION_MS {
                return Err(format!("{field}: at most {MAX_DURATION_MS}"));
            }
        }
        for (field, value) in [("hold_mb", self.hold_mb), ("keep_mb", self.keep_mb)] {
            if value > MAX_MEMORY_MB {
                return Err(format!("{field}: at most {MAX_MEMORY_MB}"));
            }
        }
        if self.fail.is_some_and(|status| !(200..600).contains(&status)) {
            return Err("fail: must be a status from 200 to 599".to_owned());
        }
        Ok(self)
    }

    /// Simulates the load and returns the status to respond with.
    pub(crate) async fn simulate(&self) -> StatusCode {
        // Non-zero, because the kernel allocates pages on the first write.
        let held = vec![1_u8; self.hold_mb << 20];
        std::mem::forget(std::hint::black_box(vec![1_u8; self.keep_mb << 20]));
        tokio::time::sleep(Duration::from_millis(self.sleep_ms)).await;
        if self.burn_ms > 0 {
            let amount = Duration::from_millis(self.burn_ms);
            let burn = move || {
                let start = cpu_time();
                while cpu_time().saturating_sub(start) < amount {
                    (0..1000).for_each(|_| std::hint::spin_loop());
                }
            };
            // The task neither panics nor is cancelled.
            let _ = tokio::task::spawn_blocking(burn).await;
        }
        drop(std::hint::black_box(held));
        self.fail.and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or(StatusCode::OK)
    }
}

/// CPU time that the thread has used.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_values_out_of_range() {
        let rejection = |options: RequestOptions| options.validate().unwrap_err();
        assert!(
            rejection(RequestOptions { sleep_ms: 60_001, ..RequestOptions::default() })
                .starts_with("sleep_ms")
        );
        assert!(
            rejection(RequestOptions { burn_ms: 60_001, ..RequestOptions::default() })
                .starts_with("burn_ms")
        );
        assert!(
            rejection(RequestOptions { hold_mb: 1025, ..RequestOptions::default() })
                .starts_with("hold_mb")
        );
        assert!(
            rejection(RequestOptions { keep_mb: 1025, ..RequestOptions::default() })
                .starts_with("keep_mb")
        );
        assert!(
            rejection(RequestOptions { fail: Some(42), ..RequestOptions::default() })
                .starts_with("fail")
        );
    }

    #[tokio::test]
    async fn responds_with_the_requested_status() {
        let options =
            RequestOptions { fail: Some(503), hold_mb: 1, burn_ms: 1, ..RequestOptions::default() };
        assert_eq!(options.validate().unwrap().simulate().await, StatusCode::SERVICE_UNAVAILABLE);
    }
}
