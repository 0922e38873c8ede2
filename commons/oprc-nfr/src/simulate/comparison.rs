//! What enforcement promises in comparison with an autoscaler.

use super::{Curve, Outcome, Policy};

/// The outcomes of one curve, summed over its seeds.
pub struct Comparison {
    curve: Curve,
    hpa: Outcome,
    enforced: Outcome,
    oracle: Outcome,
}

impl Comparison {
    /// `outcomes` are in the order of [`Policy::ALL`].
    pub fn of(curve: Curve, outcomes: &[Outcome; 5]) -> Self {
        let of = |policy| {
            let found = Policy::ALL.iter().zip(outcomes).find(|it| *it.0 == policy);
            found.map(|it| *it.1).unwrap_or_default()
        };
        let [hpa, enforced] = [of(Policy::Hpa), of(Policy::Enforced)];
        Self { curve, hpa, enforced, oracle: of(Policy::Oracle) }
    }

    /// Promises that aren't kept.
    pub fn failures(&self) -> Vec<&'static str> {
        let Self { curve, hpa, enforced, oracle } = self;
        let (violation, of_hpa) = (enforced.violation_seconds, hpa.violation_seconds);
        let predictable = matches!(curve, Curve::Ramp | Curve::Daily);
        let hours = enforced.replica_hours;
        let promises = [
            (violation <= of_hpa, "longer in violation than the autoscaler"),
            (!predictable || 3 * violation <= of_hpa, "less than three times better"),
            (hours <= 1.1 * hpa.replica_hours, "more than 1.1 times the replica-hours"),
            (
                *curve == Curve::Burst || hours <= 2.0 * oracle.replica_hours,
                "more than twice the replica-hours of perfect foresight",
            ),
        ];
        promises.into_iter().filter(|it| !it.0).map(|it| it.1).collect()
    }
}
