//! Kubernetes resource quantities, compared by value.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube_quantity::ParsedQuantity;

use crate::{limits, names::quote};

/// The value of a quantity in its base unit (cores or bytes), or why it is invalid.
pub fn parse_quantity(text: &str) -> Result<f64, String> {
    let short = (text.len() <= limits::QUANTITY).then(|| Quantity(text.to_owned()));
    let parsed = short.and_then(|it| ParsedQuantity::try_from(it).ok());
    // Kubernetes limits quantities to 2^63.
    let value = parsed.and_then(|it| it.to_bytes_f64()).filter(|value| value.abs() < 1e19);
    let value = value.ok_or_else(|| {
        format!("{} is not a quantity; use a form such as 250m, 1, 256Mi or 1G", quote(text))
    })?;
    if value.is_sign_negative() {
        Err(format!("{} must not be negative", quote(text)))
    } else {
        Ok(value)
    }
}

/// The size of a volume in bytes, or why it is invalid.
pub fn parse_volume_size(text: &str) -> Result<f64, String> {
    let size = parse_quantity(text)?;
    if size > 0.0 { Ok(size) } else { Err("must be greater than 0".to_owned()) }
}

/// Whether a text is a non-negative quantity.
pub fn is_quantity(text: &str) -> bool {
    parse_quantity(text).is_ok()
}

/// Whether a text is a quantity greater than 0.
pub fn is_volume_size(text: &str) -> bool {
    parse_volume_size(text).is_ok()
}

/// Whether two quantities have the same value, such as `1` and `1000m`.
pub fn same_quantity(left: &str, right: &str) -> bool {
    left == right || compare(left, right).is_some_and(std::cmp::Ordering::is_eq)
}

/// Whether a quantity is larger than another; false if one of them is invalid.
pub fn exceeds(left: &str, right: &str) -> bool {
    compare(left, right).is_some_and(std::cmp::Ordering::is_gt)
}

fn compare(left: &str, right: &str) -> Option<std::cmp::Ordering> {
    Some(parse_quantity(left).ok()?.total_cmp(&parse_quantity(right).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_compared_by_value() {
        assert_eq!(parse_quantity("1Ki"), Ok(1024.0));
        assert!(same_quantity("1000m", "1"));
        assert!(same_quantity("1Gi", "1024Mi"));
        assert!(!same_quantity("1G", "1Gi"));
        assert!(!same_quantity("lots", "1"));
        assert!(exceeds("2Gi", "1Gi"));
        assert!(exceeds("9000P", "1m") && !exceeds("1m", "9000P"));
    }

    #[test]
    fn rejects_what_is_no_quantity() {
        let long = "0".repeat(limits::QUANTITY) + "1";
        for text in ["", "ten", "10 apples", "1 G", "9e27", "100E", &long] {
            assert!(parse_quantity(text).is_err(), "{text}");
        }
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
