use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

/// The times of a range query: `start`, and multiples of `step` after it until `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    start: i64,
    /// In milliseconds, at least 1.
    step: i64,
    /// The number of steps after `start`.
    steps: usize,
}

impl Window {
    /// Bound on the number of points of a series.
    pub const MAX_STEPS: usize = 1000;

    /// The last time is the latest multiple of `step`: some stores move other times to such ones.
    /// `range` is shortened to a multiple of `step`, and to [`Self::MAX_STEPS`].
    pub fn ending_at(now: Timestamp, range: Duration, step: Duration) -> Self {
        let step = milliseconds(step).max(1);
        let steps = usize::try_from(milliseconds(range) / step).unwrap_or(Self::MAX_STEPS);
        let steps = steps.min(Self::MAX_STEPS);
        let length = i64::try_from(steps).unwrap_or_default().saturating_mul(step);
        let end = now.as_millisecond().div_euclid(step).saturating_mul(step);
        Self { start: end.saturating_sub(length), step, steps }
    }

    /// Every `stride`-th time, such that the last one is the same.
    pub(super) fn every(&self, stride: usize) -> Self {
        let stride = stride.clamp(1, self.steps.max(1));
        let factor = i64::try_from(stride).unwrap_or(i64::MAX);
        let (step, steps) = (self.step.saturating_mul(factor), self.steps / stride);
        let length = i64::try_from(steps).unwrap_or_default().saturating_mul(step);
        Self { start: self.end_millisecond().saturating_sub(length), step, steps }
    }

    pub fn start(&self) -> Timestamp {
        self.at(0)
    }

    pub fn end(&self) -> Timestamp {
        self.at(self.steps)
    }

    pub fn step(&self) -> Duration {
        Duration::from_millis(self.step.unsigned_abs())
    }

    /// The number of times, including both ends.
    pub(crate) fn len(&self) -> usize {
        self.steps + 1
    }

    pub fn at(&self, index: usize) -> Timestamp {
        Timestamp::from_millisecond(self.millisecond(index)).unwrap_or(Timestamp::MAX)
    }

    fn millisecond(&self, index: usize) -> i64 {
        let offset = i64::try_from(index).unwrap_or(i64::MAX).saturating_mul(self.step);
        self.start.saturating_add(offset)
    }

    fn end_millisecond(&self) -> i64 {
        self.millisecond(self.steps)
    }

    /// None for a time that isn't one of the window.
    pub fn index(&self, at: Timestamp) -> Option<usize> {
        let offset = at.as_millisecond().checked_sub(self.start)?;
        if offset % self.step != 0 {
            return None;
        }
        usize::try_from(offset / self.step).ok().filter(|index| *index <= self.steps)
    }

    /// The first time that is not before `at`; `len` if there is none.
    pub(super) fn first_from(&self, at: Timestamp) -> usize {
        let offset = at.as_millisecond().saturating_sub(self.start).max(0);
        let index = offset / self.step + i64::from(offset % self.step != 0);
        usize::try_from(index).map_or(self.len(), |index| index.min(self.len()))
    }
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millisecond: i64) -> Timestamp {
        Timestamp::from_millisecond(millisecond).unwrap()
    }

    #[test]
    fn times_are_multiples_of_the_step() {
        let window =
            Window::ending_at(at(100_007), Duration::from_secs(70), Duration::from_secs(30));
        assert_eq!((window.start(), window.end()), (at(30_000), at(90_000)));
        assert_eq!(window.len(), 3);
        assert_eq!(window.index(at(60_000)), Some(1));
        assert_eq!(window.index(at(60_001)), None);
        assert_eq!(window.index(at(120_000)), None);
        assert_eq!(window.index(at(0)), None);
        for (time, index) in [(0, 0), (30_000, 0), (30_001, 1), (90_000, 2), (90_001, 3)] {
            assert_eq!(window.first_from(at(time)), index, "{time}");
        }
    }

    #[test]
    fn every_second_time_ends_at_the_same_one() {
        let seconds = Duration::from_secs;
        let window = Window::ending_at(at(600_000), seconds(50), seconds(10));
        let coarse = window.every(2);
        assert_eq!((coarse.start(), coarse.end(), coarse.len()), (at(560_000), at(600_000), 3));
        assert_eq!(window.every(1), window);
        assert_eq!(window.every(0), window);
        let longest = window.every(usize::MAX);
        assert_eq!((longest.start(), longest.end()), (window.start(), window.end()));
        let single = Window::ending_at(at(600_000), Duration::ZERO, seconds(10));
        assert_eq!(single.every(4), single);
    }

    #[test]
    fn number_of_steps_is_bounded() {
        let window = Window::ending_at(at(0), Duration::MAX, Duration::ZERO);
        assert_eq!(window.len(), Window::MAX_STEPS + 1);
        let window = Window::ending_at(at(0), Duration::ZERO, Duration::MAX);
        assert_eq!((window.len(), window.start()), (1, at(0)));
    }
}
