//! The number of copies that an availability requires.

use oprc_models::limits;

pub const MAX_COPIES: i32 = limits::REPLICAS.max;

/// Tolerance for rounding where copies reach a target exactly.
const ROUNDING: f64 = 1e-12;

/// Which copies must be up for the whole to be available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Any one of them.
    Any,
    /// More than half of them.
    Quorum,
}

/// The minimum number of copies for a target, regardless of the availability of nodes.
pub fn floor(target: f64) -> i32 {
    if target >= 0.999 {
        3
    } else if target >= 0.99 {
        2
    } else {
        1
    }
}

/// The joint availability of copies on nodes of the given availability.
pub fn availability_of(needs: Needs, node: f64, copies: i32) -> f64 {
    match needs {
        Needs::Any => 1.0 - (1.0 - node).powi(copies),
        Needs::Quorum => {
            (copies / 2 + 1..=copies).map(|up| exactly(node, copies, up)).sum::<f64>().min(1.0)
        }
    }
}

/// The probability that exactly `up` of `copies` are up.
fn exactly(node: f64, copies: i32, up: i32) -> f64 {
    let ways: f64 = (1..=up).map(|at| f64::from(copies - up + at) / f64::from(at)).product();
    ways * node.powi(up) * (1.0 - node).powi(copies - up)
}

/// The number of copies that a target requires and its calculation; `None` if up to [`MAX_COPIES`]
/// copies don't reach it.
pub fn copies(target: f64, needs: Needs, node: Option<f64>) -> Option<(i32, String)> {
    let floor = floor(target);
    let table = format!("availability {target}: at least {floor} (3 for 0.999, 2 for 0.99)");
    let Some(node) = node else { return Some((floor, table)) };
    // Rounding must not let nodes that can fail reach 1.
    let unreachable = target >= 1.0 && node < 1.0;
    let reaches =
        |copies: i32| !unreachable && availability_of(needs, node, copies) + ROUNDING >= target;
    let found = (floor..=MAX_COPIES).find(|&copies| reaches(copies))?;
    let sum = |copies: i32| match needs {
        Needs::Any => {
            format!("1-(1-{node})^{copies} = {}", shown(availability_of(needs, node, copies)))
        }
        Needs::Quorum => {
            let least = copies / 2 + 1;
            let value = shown(availability_of(needs, node, copies));
            format!("{least} or more of {copies} nodes at {node} = {value}")
        }
    };
    // The calculation for one copy less shows why it is too few.
    let less = (found > floor).then(|| format!("; {} is too low", sum(found - 1)));
    Some((found, format!("{table}; {}{}", sum(found), less.unwrap_or_default())))
}

/// Nine digits, without trailing zeros.
fn shown(value: f64) -> String {
    let text = format!("{value:.9}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_table_is_a_lower_bound() {
        for (target, expected) in
            [(0.0, 1), (0.98, 1), (0.99, 2), (0.9989, 2), (0.999, 3), (1.0, 3)]
        {
            assert_eq!(copies(target, Needs::Any, None).unwrap().0, expected, "{target}");
            assert_eq!(copies(target, Needs::Quorum, Some(1.0)).unwrap().0, expected, "{target}");
        }
    }

    #[test]
    fn copies_where_any_one_suffices() {
        assert_eq!(copies(0.99, Needs::Any, Some(0.9)).unwrap().0, 2);
        assert_eq!(copies(0.999, Needs::Any, Some(0.9)).unwrap().0, 3);
        assert_eq!(copies(0.99999, Needs::Any, Some(0.9)).unwrap().0, 5);
        assert!(copies(1.0, Needs::Any, Some(0.5)).is_none());
        assert!(copies(0.9999, Needs::Any, Some(0.0)).is_none());
    }

    #[test]
    fn copies_where_a_majority_is_needed() {
        // By hand: 3 of 0.99: 3·0.99²·0.01 + 0.99³ = 0.999702; 2 of 0.99: 0.99² = 0.9801.
        assert!((availability_of(Needs::Quorum, 0.99, 3) - 0.999_702).abs() < 1e-9);
        assert!((availability_of(Needs::Quorum, 0.99, 2) - 0.9801).abs() < 1e-9);
        let (number, because) = copies(0.99, Needs::Quorum, Some(0.99)).unwrap();
        assert_eq!(number, 3);
        assert!(because.contains("2 or more of 3 nodes at 0.99 = 0.999702"), "{because}");
        assert!(because.contains("0.9801 is too low"), "{because}");
        assert!(copies(0.99, Needs::Quorum, Some(0.4)).is_none());
    }

    proptest! {
        #[test]
        fn higher_target_never_requires_fewer_copies(
            low in 0.0..=1.0f64, high in 0.0..=1.0f64, node in proptest::option::of(0.0..=1.0f64),
            quorum: bool,
        ) {
            let needs = if quorum { Needs::Quorum } else { Needs::Any };
            let (low, high) = if low <= high { (low, high) } else { (high, low) };
            let less = copies(low, needs, node).map_or(i32::MAX, |it| it.0);
            let more = copies(high, needs, node).map_or(i32::MAX, |it| it.0);
            prop_assert!(less <= more);
            prop_assert!(less >= floor(low));
            if let Some(node) = node && less < i32::MAX {
                prop_assert!(availability_of(needs, node, less) + 1e-9 >= low);
            }
        }
    }
}
