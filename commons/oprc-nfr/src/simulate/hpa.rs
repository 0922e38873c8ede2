//! The HorizontalPodAutoscaler with a CPU target, as the controller of Kubernetes computes it.
//!
//! Defaults of kube-controller-manager: a sync period of 15 s, a tolerance of 10 %, 5 minutes of CPU
//! initialisation. Defaults of the API: scale up by the larger of 100 % and 4 pods in 15 s, scale
//! down to the highest recommendation of the last 300 s.

use std::collections::VecDeque;

use crate::convert::{ceil, count, floor};

const TOLERANCE: f64 = 0.1;
const DOWN_WINDOW: u32 = 300;
const UP_PERIOD: u32 = 15;
const UP_PODS: u32 = 4;

/// What the autoscaler knows of a pod.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum PodCpu {
    /// CPU usage as a fraction of the request.
    Used(f64),
    /// Not ready, or not for a whole measurement yet: its usage says nothing.
    NotReady,
    /// No measurement yet.
    Missing,
}

#[derive(Clone, Debug)]
pub(super) struct Autoscaler {
    /// Target utilisation in percent, such as 70.
    target: u32,
    min: u32,
    max: u32,
    /// Recommendations of the stabilisation window, with their times.
    recommendations: VecDeque<(u32, u32)>,
    /// Pods added in the last period, with their times.
    added: VecDeque<(u32, u32)>,
}

impl Autoscaler {
    pub(super) fn new(target: u32, min: u32, max: u32) -> Self {
        Self { target, min, max, recommendations: VecDeque::new(), added: VecDeque::new() }
    }

    /// The number of replicas at a time in seconds, given the present number.
    pub(super) fn decide(&mut self, now: u32, current: u32, pods: &[PodCpu]) -> u32 {
        let desired = self.recommend(current, pods).clamp(self.min, self.max);
        self.recommendations.push_back((now, desired));
        while self.recommendations.front().is_some_and(|it| it.0 + DOWN_WINDOW <= now) {
            self.recommendations.pop_front();
        }
        let highest = self.recommendations.iter().map(|it| it.1).max().unwrap_or(desired);
        let stabilized = current.max(desired).min(highest);
        let limited = stabilized.min(self.up_limit(now, current));
        if limited > current {
            self.added.push_back((now, limited - current));
        }
        limited
    }

    fn up_limit(&mut self, now: u32, current: u32) -> u32 {
        while self.added.front().is_some_and(|it| it.0 + UP_PERIOD <= now) {
            self.added.pop_front();
        }
        let added: u32 = self.added.iter().map(|it| it.1).sum();
        let start = current.saturating_sub(added);
        (start + UP_PODS).max(start * 2).max(current)
    }

    /// The mean usage relative to the target. The controller computes it in whole percent.
    fn ratio(&self, sum: f64, pods: usize) -> f64 {
        // Sums of usages such as 0.35 are not exact.
        let percent = floor(100.0 * sum / count(pods) + 1e-6);
        f64::from(percent) / f64::from(self.target)
    }

    /// Ready pods decide. If pods are missing or not ready, the result is corrected for them in the
    /// direction that changes less, and dropped if that reverses the direction.
    fn recommend(&self, current: u32, pods: &[PodCpu]) -> u32 {
        let used = |pod: &PodCpu| match pod {
            PodCpu::Used(usage) => Some(*usage),
            PodCpu::NotReady | PodCpu::Missing => None,
        };
        let usages: Vec<f64> = pods.iter().filter_map(used).collect();
        if usages.is_empty() {
            return current;
        }
        let sum: f64 = usages.iter().sum();
        let ratio = self.ratio(sum, usages.len());
        let not_ready = pods.iter().filter(|pod| **pod == PodCpu::NotReady).count();
        let missing = pods.iter().filter(|pod| **pod == PodCpu::Missing).count();
        let correct_not_ready = not_ready > 0 && ratio > 1.0;
        if !correct_not_ready && missing == 0 {
            return scaled(ratio, usages.len(), current);
        }
        let mut corrected = sum;
        let mut number = usages.len();
        if missing > 0 && (ratio - 1.0).abs() > f64::EPSILON {
            number += missing;
            // 100 % of the request if pods are to be removed, nothing if pods are to be added.
            corrected += if ratio < 1.0 { count(missing) } else { 0.0 };
        }
        if correct_not_ready {
            number += not_ready;
        }
        let new_ratio = self.ratio(corrected, number);
        let reversed = (ratio < 1.0 && new_ratio > 1.0) || (ratio > 1.0 && new_ratio < 1.0);
        let replicas = scaled(new_ratio, number, current);
        let wrong_way =
            (new_ratio < 1.0 && replicas > current) || (new_ratio > 1.0 && replicas < current);
        if reversed || wrong_way { current } else { replicas }
    }
}

fn scaled(ratio: f64, pods: usize, current: u32) -> u32 {
    if (ratio - 1.0).abs() <= TOLERANCE {
        return current;
    }
    ceil(ratio * count(pods))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(usage: f64, pods: usize) -> Vec<PodCpu> {
        vec![PodCpu::Used(usage); pods]
    }

    fn autoscaler() -> Autoscaler {
        Autoscaler::new(70, 1, 100)
    }

    #[test]
    fn nothing_changes_within_the_tolerance() {
        assert_eq!(autoscaler().decide(0, 10, &used(0.769, 10)), 10);
        assert_eq!(autoscaler().decide(0, 10, &used(0.631, 10)), 10);
        assert_eq!(autoscaler().decide(0, 10, &used(0.78, 10)), 12);
    }

    #[test]
    fn scales_up_by_four_pods_or_to_twice_the_number() {
        assert_eq!(autoscaler().decide(0, 1, &used(10.0, 1)), 5);
        assert_eq!(autoscaler().decide(0, 10, &used(10.0, 10)), 20);
        let mut hpa = autoscaler();
        assert_eq!(hpa.decide(0, 10, &used(10.0, 10)), 20);
        assert_eq!(hpa.decide(15, 20, &used(10.0, 20)), 40);
    }

    #[test]
    fn scales_down_to_the_highest_recommendation_of_five_minutes() {
        let mut hpa = autoscaler();
        assert_eq!(hpa.decide(0, 10, &used(0.7, 10)), 10);
        for now in (15..300).step_by(15) {
            assert_eq!(hpa.decide(now, 10, &used(0.35, 10)), 10, "{now}");
        }
        assert_eq!(hpa.decide(300, 10, &used(0.35, 10)), 5);
    }

    #[test]
    fn pods_that_are_not_ready_count_as_idle_when_scaling_up() {
        let mut pods = used(1.0, 10);
        assert_eq!(autoscaler().decide(0, 10, &pods), 15);
        pods.extend([PodCpu::NotReady; 4]);
        // 10 busy of 14: a ratio of 1.02 is within the tolerance.
        assert_eq!(autoscaler().decide(0, 14, &pods), 14);
    }

    #[test]
    fn missing_pods_count_as_busy_when_scaling_down() {
        let mut pods = used(0.5, 4);
        pods.extend([PodCpu::Missing; 2]);
        // (4 × 0.5 + 2 × 1) / 6 / 0.7 is within the tolerance.
        assert_eq!(autoscaler().decide(0, 6, &pods), 6);
        assert_eq!(autoscaler().decide(0, 6, &[PodCpu::Missing; 6]), 6);
    }

    #[test]
    fn bounds_are_kept() {
        assert_eq!(Autoscaler::new(70, 3, 12).decide(0, 10, &used(2.0, 10)), 12);
        let mut hpa = Autoscaler::new(70, 3, 12);
        assert_eq!(hpa.decide(0, 10, &used(0.0, 10)), 3);
    }
}
