//! Amounts of resources, as Kubernetes writes them.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube_quantity::ParsedQuantity;

use crate::names::shown;

/// What an amount is worth, or why it is none.
pub(crate) fn worth(text: &str) -> Result<f64, String> {
    let parsed = ParsedQuantity::try_from(Quantity(text.to_owned())).ok();
    // Kubernetes' own end at 2^63.
    let worth = parsed.and_then(|it| it.to_bytes_f64()).filter(|worth| worth.abs() < 1e19);
    let worth = worth.ok_or_else(|| {
        format!("{} is no amount; allowed are such as 250m, 1, 256Mi, 1G", shown(text))
    })?;
    if worth < 0.0 { Err(format!("{} is less than nothing", shown(text))) } else { Ok(worth) }
}

#[cfg(test)]
mod tests {
    use super::worth;

    #[test]
    fn amounts() {
        assert_eq!(worth("1Ki"), Ok(1024.0));
        assert!(worth("250m") < worth("1"));
        for bad in ["", "ten", "-1", "9e27", "1 G"] {
            assert!(worth(bad).is_err(), "{bad}");
        }
    }
}
