//! What a request may ask for beside an answer.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use serde::Deserialize;

const LONGEST_MS: u64 = 60_000;
const LARGEST_MB: usize = 1024;

/// The query of a request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wish {
    pub(crate) name: Option<String>,
    #[serde(default)]
    sleep_ms: u64,
    #[serde(default)]
    burn_ms: u64,
    #[serde(default)]
    hold_mb: usize,
    fail: Option<u16>,
}

impl Wish {
    /// Refuses what is out of range.
    pub(crate) fn check(self) -> Result<Self, String> {
        for (field, value) in [("sleep_ms", self.sleep_ms), ("burn_ms", self.burn_ms)] {
            if value > LONGEST_MS {
                return Err(format!("{field}: at most {LONGEST_MS}"));
            }
        }
        if self.hold_mb > LARGEST_MB {
            return Err(format!("hold_mb: at most {LARGEST_MB}"));
        }
        if self.fail.is_some_and(|status| !(200..600).contains(&status)) {
            return Err("fail: a status from 200 to 599".to_owned());
        }
        Ok(self)
    }

    /// Does what is asked and tells the status to answer with.
    pub(crate) async fn grant(&self) -> StatusCode {
        // Written to, or the kernel wouldn't give the pages.
        let held = vec![1_u8; self.hold_mb << 20];
        tokio::time::sleep(Duration::from_millis(self.sleep_ms)).await;
        if self.burn_ms > 0 {
            let end = Instant::now() + Duration::from_millis(self.burn_ms);
            let burn = move || {
                while Instant::now() < end {
                    std::hint::spin_loop();
                }
            };
            // It can't fail: nothing in it panics and nobody cancels it.
            let _ = tokio::task::spawn_blocking(burn).await;
        }
        drop(std::hint::black_box(held));
        self.fail.and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or(StatusCode::OK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_named() {
        let refused = |wish: Wish| wish.check().unwrap_err();
        assert!(refused(Wish { sleep_ms: 60_001, ..Wish::default() }).starts_with("sleep_ms"));
        assert!(refused(Wish { burn_ms: 60_001, ..Wish::default() }).starts_with("burn_ms"));
        assert!(refused(Wish { hold_mb: 1025, ..Wish::default() }).starts_with("hold_mb"));
        assert!(refused(Wish { fail: Some(42), ..Wish::default() }).starts_with("fail"));
    }

    #[tokio::test]
    async fn failing_is_granted() {
        let wish = Wish { fail: Some(503), hold_mb: 1, burn_ms: 1, ..Wish::default() };
        assert_eq!(wish.check().unwrap().grant().await, StatusCode::SERVICE_UNAVAILABLE);
    }
}
