//! Whether all that may become of a deployment can be stored: each step is one transaction, and one
//! that is too large would be tried for ever. Pure.

use oprc_cp_storage::{Check, MAX_BYTES, Transaction};

use super::{
    stage::goes_back,
    transition::{Units, back},
};
use crate::{
    error::Error,
    records::{self, DeploymentRecord, Former},
};

/// What comes to a transaction later: what clusters have taken, why something failed, and the head
/// of a package that gets more versions.
const SPARE: usize = 64 << 10;

/// Refuses what couldn't be stored, gone back from or changed again. `units` are all of the
/// deployment's as this change stores them.
pub fn check_room(record: &DeploymentRecord, units: &Units) -> Result<(), Error> {
    let most = most(record, units)? + SPARE;
    if most <= MAX_BYTES {
        return Ok(());
    }
    let (with, or) = if goes_back(&record.deployment) {
        (", with what it goes back to", ", or set rollbackOnFailure to false")
    } else {
        ("", "")
    };
    let message = format!(
        "its plan and units take {most} bytes in the store{with}; {MAX_BYTES} are the most: split \
         the deployment{or}"
    );
    Err(Error::Parameter { field: "deployment", message })
}

/// How many bytes the largest transaction has that a change leads to: itself, going back from it,
/// and another change of the same size.
fn most(record: &DeploymentRecord, units: &Units) -> Result<usize, Error> {
    let now = bytes(record, units)?;
    if !goes_back(&record.deployment) {
        return Ok(now);
    }
    let again = DeploymentRecord { former: Some(Former::of(record)), ..record.clone() };
    Ok(now.max(bytes(record, &back(record, units))?).max(bytes(&again, units)?))
}

fn bytes(record: &DeploymentRecord, units: &Units) -> Result<usize, Error> {
    let key = &record.deployment.key;
    let name = records::deployment(key);
    let mut change = Transaction::new()
        .check(name.clone(), Check::Exists)
        .put(name, records::write(record)?)
        // Its entry in the history tells what is wanted, too.
        .put(records::revision(key, &record.revision), records::write(&record.deployment)?);
    for ((cluster, id), unit) in units {
        let name = records::unit(cluster, id);
        change = change.check(name.clone(), Check::Exists).put(name, records::write(unit)?);
    }
    Ok(change.bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::transition::units_of, *};

    /// A deployment whose unit takes so many bytes, and the unit.
    fn sized(policy: &str, bytes: usize, former: Option<usize>) -> (DeploymentRecord, Units) {
        let plan = |bytes: usize| {
            json!({"deployment": "d", "package": "p", "version": "1.0.0", "reasons": [], "units": [
                {"id": "d.A..east", "cluster": "east", "environment": "", "namespace": "",
                 "class": "A", "spec": "x".repeat(bytes), "reasons": []}]})
        };
        let deployment = json!({"key": "d", "policy": policy});
        let former = former.map(|bytes| {
            json!({"revision": "r1", "deployment": deployment.clone(), "plan": plan(bytes)})
        });
        let record: DeploymentRecord = serde_json::from_value(json!({
            "deployment": deployment, "revision": "r2", "created_at": "", "updated_at": "",
            "correlation_id": "", "stage": {"stage": "driving", "since": ""},
            "plan": plan(bytes), "former": former,
        }))
        .unwrap();
        let units = units_of(Some(("r2", &record.plan)), "d", "", &Units::new());
        (record, units)
    }

    fn refused(policy: &str, bytes: usize, former: Option<usize>) -> Option<String> {
        let (record, units) = sized(policy, bytes, former);
        check_room(&record, &units).err().map(|error| error.to_string())
    }

    #[test]
    fn what_goes_back_is_as_small_as_that_needs() {
        // The plan and the unit; going back and the next change have another plan.
        assert_eq!(refused("BEST_EFFORT", 450 << 10, None), None);
        assert_eq!(refused("ALL_OR_NOTHING", 300 << 10, None), None);
        let why = refused("ALL_OR_NOTHING", 450 << 10, None).unwrap();
        assert!(why.contains("deployment: ") && why.contains("split the deployment"), "{why}");
        assert!(why.contains(&MAX_BYTES.to_string()) && why.contains("rollbackOnFailure"), "{why}");
        let why = refused("BEST_EFFORT", 600 << 10, None).unwrap();
        assert!(!why.contains("rollbackOnFailure"), "{why}");
    }

    #[test]
    fn what_is_small_may_have_to_go_back_to_what_is_large() {
        assert_eq!(refused("ALL_OR_NOTHING", 1 << 10, Some(400 << 10)), None);
        refused("ALL_OR_NOTHING", 1 << 10, Some(500 << 10)).unwrap();
    }
}
