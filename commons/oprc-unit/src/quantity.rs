//! Amounts of resources, compared by what they are worth.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube_quantity::ParsedQuantity;

/// What an amount is worth, or why it is none.
pub(crate) fn parse(text: &str) -> Result<f64, String> {
    let parsed = ParsedQuantity::try_from(Quantity(text.to_owned())).ok();
    // Kubernetes' own end at 2^63.
    let worth = parsed.and_then(|it| it.to_bytes_f64()).filter(|worth| worth.abs() < 1e19);
    worth.ok_or_else(|| format!("{text:?} is no amount; allowed are such as 250m, 1, 256Mi, 1G"))
}

/// Why a text isn't an amount that something can have.
pub(crate) fn fault(text: &str) -> Option<String> {
    match parse(text) {
        Ok(worth) => worth.is_sign_negative().then(|| format!("{text} is less than nothing")),
        Err(reason) => Some(reason),
    }
}

/// Why a text isn't the size of a disk: none has nothing.
pub(crate) fn disk_fault(text: &str) -> Option<String> {
    let nothing = || same_quantity(text, "0").then(|| format!("{text} is nothing"));
    fault(text).or_else(nothing)
}

/// Whether a text is an amount that something can have.
pub fn is_quantity(text: &str) -> bool {
    fault(text).is_none()
}

/// Whether a text is the size of a disk.
pub fn is_disk_size(text: &str) -> bool {
    disk_fault(text).is_none()
}

/// Whether two amounts are worth the same, however they are written.
pub fn same_quantity(left: &str, right: &str) -> bool {
    let same = |left: f64, right: f64| left.total_cmp(&right).is_eq();
    left == right
        || matches!((parse(left), parse(right)), (Ok(left), Ok(right)) if same(left, right))
}

/// Whether the first amount is larger than the second.
pub fn exceeds(left: &str, right: &str) -> bool {
    matches!((parse(left), parse(right)), (Ok(left), Ok(right)) if left > right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_compared_by_value() {
        assert!(same_quantity("1000m", "1"));
        assert!(same_quantity("1Gi", "1024Mi"));
        assert!(!same_quantity("1G", "1Gi"));
        assert!(!same_quantity("lots", "1"));
        assert!(exceeds("2Gi", "1Gi"));
        assert!(parse("10 apples").is_err());
        assert!(parse("").is_err());
        assert!(parse("9e27").is_err() && parse("100E").is_err());
        assert!(exceeds("9000P", "1m") && !exceeds("1m", "9000P"));
    }

    #[test]
    fn rejects_negative_quantities_and_empty_volumes() {
        for (text, amount, disk) in [
            ("1Gi", true, true),
            ("0", true, false),
            ("0Gi", true, false),
            ("-1", false, false),
            ("-1Gi", false, false),
            ("much", false, false),
        ] {
            assert_eq!((is_quantity(text), is_disk_size(text)), (amount, disk), "{text}");
        }
    }
}
