//! Amounts of resources, compared by what they are worth.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube_quantity::ParsedQuantity;

/// What an amount is worth, or why it is none.
pub(super) fn parse(text: &str) -> Result<f64, String> {
    let parsed = ParsedQuantity::try_from(Quantity(text.to_owned())).ok();
    // Kubernetes' own end at 2^63.
    let worth = parsed.and_then(|it| it.to_bytes_f64()).filter(|worth| worth.abs() < 1e19);
    worth.ok_or_else(|| format!("{text:?} is no amount; allowed are such as 250m, 1, 256Mi, 1G"))
}

/// Whether a text is an amount.
pub fn is_quantity(text: &str) -> bool {
    parse(text).is_ok()
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
    fn amounts_are_compared_by_value() {
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
}
