//! Kubernetes quantities, compared by value.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube_quantity::ParsedQuantity;

pub(crate) fn parse(text: &str) -> Result<f64, String> {
    let parsed = ParsedQuantity::try_from(Quantity(text.to_owned())).ok();
    // Kubernetes limits quantities to 2^63.
    let value = parsed.and_then(|it| it.to_bytes_f64()).filter(|value| value.abs() < 1e19);
    value.ok_or_else(|| format!("{text:?} isn't a quantity; examples: 250m, 1, 256Mi, 1G"))
}

/// Why a text is not a non-negative quantity.
pub(crate) fn error(text: &str) -> Option<String> {
    match parse(text) {
        Ok(value) => value.is_sign_negative().then(|| format!("{text} is negative")),
        Err(reason) => Some(reason),
    }
}

/// Why a text is not the size of a volume.
pub(crate) fn volume_size_error(text: &str) -> Option<String> {
    let zero = || same_quantity(text, "0").then(|| "must be greater than 0".to_owned());
    error(text).or_else(zero)
}

/// Whether a text is a non-negative quantity.
pub fn is_quantity(text: &str) -> bool {
    error(text).is_none()
}

/// Whether a text is a quantity greater than 0.
pub fn is_volume_size(text: &str) -> bool {
    volume_size_error(text).is_none()
}

/// Whether two quantities have the same value, such as `1` and `1000m`.
pub fn same_quantity(left: &str, right: &str) -> bool {
    let same = |left: f64, right: f64| left.total_cmp(&right).is_eq();
    left == right
        || matches!((parse(left), parse(right)), (Ok(left), Ok(right)) if same(left, right))
}

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
        for (text, quantity, volume_size) in [
            ("1Gi", true, true),
            ("0", true, false),
            ("0Gi", true, false),
            ("-1", false, false),
            ("-1Gi", false, false),
            ("much", false, false),
        ] {
            assert_eq!(
                (is_quantity(text), is_volume_size(text)),
                (quantity, volume_size),
                "{text}"
            );
        }
    }
}
