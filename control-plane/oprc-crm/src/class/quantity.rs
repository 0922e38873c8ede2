//! Amounts of resources, compared by what they are worth.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube_quantity::ParsedQuantity;

/// What an amount is worth, or why it is none.
pub(super) fn parse(text: &str) -> Result<ParsedQuantity, String> {
    ParsedQuantity::try_from(Quantity(text.to_owned()))
        .map_err(|_| format!("{text:?} is no amount; allowed are such as 250m, 1, 256Mi, 1G"))
}

/// Whether a text is an amount.
pub fn is_quantity(text: &str) -> bool {
    parse(text).is_ok()
}

/// Whether two amounts are worth the same, however they are written.
pub fn same_quantity(left: &str, right: &str) -> bool {
    left == right
        || matches!((parse(left), parse(right)), (Ok(left), Ok(right)) if left == right)
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
    }
}
