//! Units of resources, and how quantities read in explanations.

use std::fmt;

use serde::Serialize;

pub(super) const MIB: f64 = 1024.0 * 1024.0;
pub(super) const DAY: f64 = 86_400.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// In cores.
    Cpu,
    /// In bytes.
    Memory,
}

impl Resource {
    /// Recommended values are multiples of it.
    fn unit(self) -> f64 {
        match self {
            Self::Cpu => 0.001,
            Self::Memory => MIB,
        }
    }

    /// Width of the first bucket of a histogram.
    pub(super) fn first_bucket(self) -> f64 {
        match self {
            Self::Cpu => 0.01,
            Self::Memory => 1e7,
        }
    }

    /// A raise by this much is never too large a step: small values would need many steps otherwise.
    pub(super) fn smallest_step(self) -> f64 {
        match self {
            Self::Cpu => 0.1,
            Self::Memory => 100.0 * MIB,
        }
    }

    pub(super) fn round_up(self, value: f64) -> f64 {
        // A multiple of the unit may be a little more than that after a multiplication.
        (value / self.unit() - 1e-6).ceil() * self.unit()
    }

    pub(super) fn round_down(self, value: f64) -> f64 {
        (value / self.unit() + 1e-6).floor() * self.unit()
    }

    /// Displays a value as in `210 MiB` or `350m`.
    pub fn show(self, value: f64) -> impl fmt::Display {
        Quantity { resource: self, value }
    }
}

struct Quantity {
    resource: Resource,
    value: f64,
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value;
        match self.resource {
            Resource::Cpu if value < 10.0 => write!(f, "{:.0}m", value * 1000.0),
            Resource::Cpu => write!(f, "{value:.1} cores"),
            Resource::Memory if value < 10.0 * MIB => write!(f, "{:.1} MiB", value / MIB),
            Resource::Memory if value < 10_240.0 * MIB => write!(f, "{:.0} MiB", value / MIB),
            Resource::Memory => write!(f, "{:.1} GiB", value / MIB / 1024.0),
        }
    }
}

/// Displays seconds as in `90 s`, `10 min`, `24 h` or `7 d`.
pub(super) struct Span(pub(super) f64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            seconds if seconds < 300.0 => write!(f, "{:.0} s", seconds.ceil()),
            seconds if seconds < 7200.0 => write!(f, "{:.0} min", seconds / 60.0),
            seconds if seconds < 2.0 * DAY => write!(f, "{:.0} h", seconds / 3600.0),
            seconds => write!(f, "{:.0} d", seconds / DAY),
        }
    }
}

/// Whether a value can be a measurement or a setting.
pub(super) fn is_known(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}
