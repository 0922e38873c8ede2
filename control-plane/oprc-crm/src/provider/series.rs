use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

/// No signal has values above this; a larger one is an error of the exporter or an overflow.
pub const MAX_VALUE: f64 = 1e15;

/// The value if it can be a measurement. NaN, infinite, negative and absurdly large ones are unknown.
pub fn known_value(value: f64) -> Option<f64> {
    // Adding zero turns -0.0 into 0.0.
    (0.0..=MAX_VALUE).contains(&value).then_some(value + 0.0)
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub at: Timestamp,
    pub value: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    pub labels: BTreeMap<String, String>,
    /// In order of time, without those whose value is unknown.
    pub points: Vec<Point>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesSet {
    /// Their labels differ.
    pub series: Vec<Series>,
    /// The store warned that it couldn't evaluate everything, so a missing series or a lower value says
    /// nothing.
    pub partial: bool,
}
