//! Waiting times of calls: an M/M/n queue, in which `n` instances serve one call at a time each and
//! a call waits if all are busy.
//!
//! The offered load is the rate times the service time: the mean number of busy instances.

/// The share of calls that a latency requirement may not exceed: 95 % of calls are faster.
pub const QUANTILE: f64 = 0.95;

/// The quantile of the waiting time, in service times. Infinite if the load exceeds the instances.
pub fn wait_quantile(instances: u32, offered: f64) -> f64 {
    let mut queue = Queue::new(offered);
    for _ in 0..instances {
        queue.add_instance();
    }
    queue.wait_quantile()
}

/// The share of calls that wait. The load must not exceed the instances.
pub(crate) fn wait_probability(instances: u32, offered: f64) -> f64 {
    let mut queue = Queue::new(offered);
    for _ in 0..instances {
        queue.add_instance();
    }
    queue.wait_probability()
}

/// The smallest number of instances whose waiting times stay within a bound in service times, at
/// least 1 and at most `max`.
pub fn instances_for(offered: f64, wait: f64, max: u32) -> u32 {
    let mut queue = Queue::new(offered);
    queue.add_instance();
    while queue.instances < max && queue.wait_quantile() > wait {
        queue.add_instance();
    }
    queue.instances
}

/// Instances are added one by one, because Erlang's B formula for `n` follows from that for `n - 1`.
struct Queue {
    offered: f64,
    instances: u32,
    /// Erlang's B: the probability that all instances are busy if calls don't wait.
    blocking: f64,
}

impl Queue {
    fn new(offered: f64) -> Self {
        Self { offered: offered.max(0.0), instances: 0, blocking: 1.0 }
    }

    fn add_instance(&mut self) {
        self.instances += 1;
        let load = self.offered * self.blocking;
        self.blocking = load / (f64::from(self.instances) + load);
    }

    /// Erlang's C: the probability that a call waits.
    fn wait_probability(&self) -> f64 {
        let utilisation = self.offered / f64::from(self.instances);
        self.blocking / (1.0 - utilisation * (1.0 - self.blocking))
    }

    fn wait_quantile(&self) -> f64 {
        let idle = f64::from(self.instances) - self.offered;
        if idle <= 0.0 {
            return f64::INFINITY;
        }
        let waiting = self.wait_probability();
        if waiting <= 1.0 - QUANTILE { 0.0 } else { (waiting / (1.0 - QUANTILE)).ln() / idle }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_instance_waits_with_the_probability_of_its_utilisation() {
        // M/M/1: P(W > t) = u * exp(-(1 - u) t), so the quantile is ln(u / 0.05) / (1 - u).
        let expected = (0.5_f64 / 0.05).ln() / 0.5;
        assert!((wait_quantile(1, 0.5) - expected).abs() < 1e-12);
        assert!(wait_quantile(1, 0.04).abs() < f64::EPSILON);
        assert!(wait_quantile(1, 1.0).is_infinite());
        assert!(wait_quantile(0, 0.0).is_infinite());
    }

    #[test]
    fn two_instances_wait_with_the_probability_of_the_textbook() {
        // Erlang C for two instances and an offered load of 1 is 1/3.
        let expected = (1.0_f64 / 3.0 / 0.05).ln();
        assert!((wait_quantile(2, 1.0) - expected).abs() < 1e-12);
    }

    #[test]
    fn many_instances_tolerate_a_higher_utilisation_than_few() {
        let highest = |instances: u32| {
            let mut load = 0.0;
            while wait_quantile(instances, load + 0.01) <= 2.0 {
                load += 0.01;
            }
            load / f64::from(instances)
        };
        let (few, many) = (highest(2), highest(20));
        assert!(few < 0.55 && many > 0.85, "{few} {many}");
    }

    proptest! {
        #[test]
        fn the_number_is_the_smallest_within_the_bound(offered in 0.0..200.0_f64, wait in 0.0..20.0_f64) {
            let number = instances_for(offered, wait, 1000);
            prop_assert!(wait_quantile(number, offered) <= wait);
            prop_assert!(number == 1 || wait_quantile(number - 1, offered) > wait);
        }

        #[test]
        fn more_load_never_needs_fewer(a in 0.0..100.0_f64, b in 0.0..100.0_f64, wait in 0.0..10.0_f64) {
            let (low, high) = (a.min(b), a.max(b));
            prop_assert!(instances_for(low, wait, 500) <= instances_for(high, wait, 500));
        }
    }
}
