//! Conversions between counts and numbers. Counts of instances, samples and seconds are far below
//! 2^32, so none of them loses precision.

#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]

pub(crate) fn count(items: usize) -> f64 {
    items as f64
}

/// For durations, which are far below 2^53 milliseconds.
pub(crate) fn milliseconds(duration: i64) -> f64 {
    duration as f64
}

/// Rounds up; 0 for a negative or undefined number.
pub(crate) fn ceil(number: f64) -> u32 {
    number.ceil() as u32
}

/// Rounds down; 0 for a negative or undefined number.
pub(crate) fn floor(number: f64) -> u32 {
    number.floor() as u32
}

/// As [`ceil`], for a number of items.
pub(crate) fn ceil_items(number: f64) -> usize {
    number.ceil() as usize
}
