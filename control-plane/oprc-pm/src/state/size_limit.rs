//! Rejects deployments whose later transitions would not fit into one transaction: an oversized
//! rollback would be retried for ever.

use oprc_cp_storage::MAX_BYTES;

use super::{
    replace_deployment,
    schema::{encode, revision_key},
};
use crate::{
    error::Error,
    rollout::{
        DeploymentRecord, FormerRevision, Stage, Units, desired_units, rolls_back_on_failure,
    },
};

/// Reserve for what later transactions add: acknowledgements, failure messages, and the package
/// head with further versions.
const RESERVED_BYTES: usize = 64 << 10;

/// `units` are all unit records of the deployment as this change stores them.
pub fn check_transaction_size(record: &DeploymentRecord, units: &Units) -> Result<(), Error> {
    let bytes = largest_transaction(record, units)? + RESERVED_BYTES;
    if bytes <= MAX_BYTES {
        return Ok(());
    }
    let (with, or) = if rolls_back_on_failure(&record.deployment) {
        (", including the revision to roll back to", ", or set rollbackOnFailure to false")
    } else {
        ("", "")
    };
    let message = format!(
        "its plan and units take {bytes} bytes in the store{with}; the maximum is {MAX_BYTES}: \
         split the deployment{or}"
    );
    Err(Error::Parameter { field: "deployment", message })
}

/// Without rollback, this change. With rollback, the larger of its rollback and the next change, if
/// that has the same size: both also write a second plan.
fn largest_transaction(record: &DeploymentRecord, units: &Units) -> Result<usize, Error> {
    if !rolls_back_on_failure(&record.deployment) {
        return transaction_bytes(record, units);
    }
    // The record has both plans, and all units are written.
    let stage = Stage::RollingBack { because: String::new() };
    let rollback = DeploymentRecord { stage, ..record.clone() };
    let rollback = transaction_bytes(&rollback, &desired_units(&rollback, units))?;
    let next = DeploymentRecord { former: Some(FormerRevision::of(record)), ..record.clone() };
    Ok(rollback.max(transaction_bytes(&next, units)?))
}

fn transaction_bytes(record: &DeploymentRecord, units: &Units) -> Result<usize, Error> {
    let key = &record.deployment.key;
    let transaction = replace_deployment(key, None, Some(record), &[], units)?;
    let revision = encode(&record.deployment)?;
    Ok(transaction.put(revision_key(key, &record.revision), revision).bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rollout::desired_units;

    const AT: &str = "2026-11-16T00:00:00Z";

    /// A deployment whose unit takes that many bytes, and the unit.
    fn sized(policy: &str, bytes: usize, former: Option<usize>) -> (DeploymentRecord, Units) {
        let plan = |bytes: usize| {
            json!({"deployment": "d", "package": "p", "version": "1.0.0", "reasons": [], "units": [
                {"id": "d.A..east", "cluster": "east", "environment": "", "namespace": "",
                 "class": "A", "spec": {"template_hint": "x".repeat(bytes)}, "reasons": []}]})
        };
        let deployment = json!({"key": "d", "policy": policy});
        let former = former.map(|bytes| json!({"revision": "r1", "plan": plan(bytes)}));
        let record: DeploymentRecord = serde_json::from_value(json!({
            "deployment": deployment, "revision": "r2", "created_at": AT, "updated_at": AT,
            "correlation_id": "", "stage": {"stage": "rolling_out"}, "stage_since": AT,
            "plan": plan(bytes), "former": former,
        }))
        .unwrap();
        let units = desired_units(&record, &Units::new());
        (record, units)
    }

    fn rejection(policy: &str, bytes: usize, former: Option<usize>) -> Option<String> {
        let (record, units) = sized(policy, bytes, former);
        check_transaction_size(&record, &units).err().map(|error| error.to_string())
    }

    #[test]
    fn rollback_must_fit_into_a_transaction() {
        // A rollback and the next change have a second plan.
        assert_eq!(rejection("BEST_EFFORT", 900 << 10, None), None);
        assert_eq!(rejection("ALL_OR_NOTHING", 450 << 10, None), None);
        let why = rejection("ALL_OR_NOTHING", 500 << 10, None).unwrap();
        assert!(why.contains("deployment: ") && why.contains("split the deployment"), "{why}");
        assert!(why.contains(&MAX_BYTES.to_string()) && why.contains("rollbackOnFailure"), "{why}");
        let why = rejection("BEST_EFFORT", 1000 << 10, None).unwrap();
        assert!(!why.contains("rollbackOnFailure"), "{why}");
    }

    #[test]
    fn rollback_to_a_large_revision_must_fit_too() {
        assert_eq!(rejection("ALL_OR_NOTHING", 1 << 10, Some(900 << 10)), None);
        rejection("ALL_OR_NOTHING", 1 << 10, Some(1000 << 10)).unwrap();
    }

    #[test]
    fn a_spec_is_stored_once() {
        let (record, units) = sized("BEST_EFFORT", 100 << 10, None);
        let bytes = transaction_bytes(&record, &units).unwrap();
        assert!((100 << 10..102 << 10).contains(&bytes), "{bytes}");
    }
}
