//! Kubernetes resource quantities.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube_quantity::ParsedQuantity;

use crate::names::quote;

/// The value of a quantity in its base unit (cores or bytes), or why it is invalid.
pub(crate) fn parse(text: &str) -> Result<f64, String> {
    let parsed = ParsedQuantity::try_from(Quantity(text.to_owned())).ok();
    // Kubernetes limits quantities to 2^63.
    let value = parsed.and_then(|it| it.to_bytes_f64()).filter(|value| value.abs() < 1e19);
    let value = value.ok_or_else(|| {
        format!("{} is not a quantity; use a form such as 250m, 1, 256Mi or 1G", quote(text))
    })?;
    if value < 0.0 { Err(format!("{} must not be negative", quote(text))) } else { Ok(value) }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn parses_valid_quantities_and_rejects_others() {
        assert_eq!(parse("1Ki"), Ok(1024.0));
        assert!(parse("250m") < parse("1"));
        for bad in ["", "ten", "-1", "9e27", "1 G"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
