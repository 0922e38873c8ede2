//! The class `Counter` of `examples/packages/counter.yaml`.

use serde::{Deserialize, Serialize};

use crate::call::{NoArgs, Refusal, conflict};

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Counter {
    #[serde(default)]
    value: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Increment {
    #[serde(default = "one")]
    by: i64,
}

fn one() -> i64 {
    1
}

/// What the data grid sends to a trigger, besides the object: one event, or several of an asynchronous
/// trigger at once. The state of a deleted object is empty.
#[derive(Debug, Deserialize)]
pub(crate) struct Change {
    #[serde(default)]
    event: String,
    #[serde(default)]
    events: Vec<Change>,
}

impl Counter {
    pub(crate) fn increment(&mut self, args: &Increment) -> Result<i64, Refusal> {
        let sum = self.value.checked_add(args.by);
        self.value = sum.ok_or_else(|| conflict("the counter would overflow"))?;
        Ok(self.value)
    }

    pub(crate) fn reset(&mut self) -> i64 {
        self.value = 0;
        self.value
    }

    pub(crate) fn get(&self, _: &NoArgs) -> i64 {
        self.value
    }

    /// Called by the data grid after each change.
    pub(crate) fn announce(&self, id: &str, change: &Change) -> String {
        let name = self.label.as_deref().unwrap_or(id);
        match change.events.last().unwrap_or(change).event.as_str() {
            "DELETED" => format!("counter {name} was deleted"),
            _ => format!("counter {name} is {}", self.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::call::tests::called;

    #[test]
    fn counts() {
        let state = json!({"value": 2, "label": "visits"});
        let answer = called("increment", state.clone(), json!(null)).unwrap();
        assert_eq!(
            answer,
            json!({"object": {"state": {"value": 3, "label": "visits"}}, "result": 3})
        );
        assert_eq!(called("increment", state.clone(), json!({"by": -3})).unwrap()["result"], -1);
        assert_eq!(called("get", state.clone(), json!(null)).unwrap(), json!({"result": 2}));
        let answer = called("reset", state, json!(null)).unwrap();
        assert_eq!(answer["object"]["state"], json!({"value": 0, "label": "visits"}));
        assert!(called("increment", json!({"value": i64::MAX}), json!(null)).is_err());
    }

    #[test]
    fn announces_changes() {
        let announced = |event: &str, state| {
            let change = json!({"event": event, "at": 0, "cause": {"depth": 0}});
            called("announce", state, change).unwrap()["result"].take()
        };
        assert_eq!(announced("UPDATED", json!({"value": 2})), "counter a is 2");
        assert_eq!(announced("DELETED", json!({})), "counter a was deleted");
        let batch = json!({"events": [{"event": "CREATED"}, {"event": "DELETED"}]});
        let answer = called("announce", json!({}), batch).unwrap();
        assert_eq!(answer["result"], "counter a was deleted");
    }
}
