//! Loads from files.

use std::fmt;

use super::Function;
use crate::queueing::wait_quantile;

/// The longest trace: a year.
const MAX_SECONDS: usize = 366 * 86_400;

/// Why a trace can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// Starting at 1; none if the error isn't about a line.
    pub line: Option<usize>,
    pub message: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(formatter, "line {line}: {}", self.message),
            None => formatter.write_str(&self.message),
        }
    }
}

impl std::error::Error for TraceError {}

/// Reads one value per line: requests in each second. Empty lines and lines that start with `#` are
/// skipped.
pub fn parse_trace(text: &str) -> Result<Vec<f64>, TraceError> {
    let error = |line, message: String| Err(TraceError { line, message });
    let mut load = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.parse::<f64>() {
            Ok(value) if value.is_finite() && value >= 0.0 => load.push(value),
            _ => {
                let start: String = line.chars().take(40).collect();
                let message = format!("{start:?} is not a number of requests, such as 12 or 0.5");
                return error(Some(at + 1), message);
            }
        }
        if load.len() > MAX_SECONDS {
            return error(None, format!("the trace is longer than {MAX_SECONDS} seconds"));
        }
    }
    if load.iter().all(|value| *value == 0.0) {
        return error(None, "the trace has no requests".to_owned());
    }
    Ok(load)
}

/// Scales a load so that its peak is the most that a number of instances serves within the
/// requirement.
pub fn scale_to_instances(load: &mut [f64], function: &Function, instances: u32) {
    let wait = function.wait() / function.service_time;
    let (mut low, mut high) = (0.0, f64::from(instances));
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if wait_quantile(instances, middle) <= wait { low = middle } else { high = middle }
    }
    let peak = load.iter().copied().fold(0.0, f64::max);
    let factor = low / function.service_time / peak;
    for value in load.iter_mut().filter(|_| factor.is_finite()) {
        *value *= factor;
    }
}
