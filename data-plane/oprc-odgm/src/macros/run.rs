//! The progress of a macro, as it is stored.

use std::collections::BTreeMap;

use oprc_cp_storage::Revision;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::{
    Error, ObjectId,
    class::{Access, Class, Flow, MacroStep, State, ValueRef, Values},
    grid::new_id,
    invocation::{CallOrigin, Invocation},
    record::encode,
};

/// Of a record, with all results. Together with the result of the macro it fits into a transaction.
const MAX_RECORD_BYTES: usize = 640 << 10;

/// A run, and the version of its record.
pub(super) struct Run {
    pub(super) id: String,
    pub(super) version: Revision,
    pub(super) record: RunRecord,
}

/// It is written before each step, with the arguments of the step: a run that is continued repeats the same
/// call, and the idempotency key of the step keeps its change from being stored twice.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunRecord {
    pub(super) name: String,
    pub(super) collection: String,
    pub(super) object: String,
    pub(super) args: Value,
    pub(super) flow: Flow,
    /// By the name of the step.
    pub(super) results: BTreeMap<String, Value>,
    /// The result of the last step.
    pub(super) last: Value,
    /// The index of the next step.
    pub(super) next: usize,
    /// The call of the next step.
    pub(super) call: Option<StepCall>,
    pub(super) depth: u32,
    pub(super) chain: Vec<String>,
    /// Milliseconds since 1970.
    pub(super) deadline: i64,
    pub(super) idempotency_key: Option<String>,
    /// Why the run ended; it can be continued with its idempotency key.
    pub(super) failure: Option<String>,
    /// When it was written, in milliseconds since 1970.
    pub(super) at: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StepCall {
    /// The grid of the object and its class, if that is another one.
    pub(super) remote: Option<(String, String)>,
    pub(super) collection: Option<String>,
    pub(super) object: String,
    pub(super) args: Value,
}

/// Identifies the run of a call: the same for the same idempotency key.
pub(super) fn run_id(object_key: &str, idempotency_key: Option<&str>) -> String {
    let Some(key) = idempotency_key else { return format!("{}{}", new_id(), new_id()) };
    let digest = Sha256::digest(format!("{object_key}/{key}"));
    hex::encode(digest.get(..16).unwrap_or_default())
}

impl RunRecord {
    /// The run as it is after its grid was lost: a repeated call continues it, but nothing else. None if its
    /// call can't be repeated.
    pub(crate) fn interrupted(mut self) -> Option<Self> {
        self.idempotency_key.as_ref()?;
        self.failure.get_or_insert_with(|| "a restore interrupted the run".to_owned());
        Some(self)
    }

    /// The call that the run belongs to.
    pub(super) fn invocation(&self) -> Result<Invocation, Error> {
        let id = ObjectId::parse(&self.object)?;
        let mut call = Invocation::new(id, &self.name, self.args.clone(), Access::Private);
        call.collection = Some(self.collection.clone());
        call.idempotency_key.clone_from(&self.idempotency_key);
        call.origin = CallOrigin {
            depth: self.depth,
            chain: self.chain.clone(),
            expires: Some(self.deadline),
            foreign: Vec::new(),
        };
        Ok(call)
    }

    pub(super) fn step(&self) -> Option<&MacroStep> {
        self.flow.steps.get(self.next)
    }

    /// Names the next step to people.
    pub(super) fn step_name(&self) -> String {
        let name = self.step().and_then(|it| it.name.clone());
        name.unwrap_or_else(|| format!("#{}", self.next + 1))
    }

    /// Decides on the call of the next step.
    pub(super) fn resolve(&mut self, class: &Class, state: &State) -> Result<(), Error> {
        let Some(step) = self.step() else {
            self.call = None;
            return Ok(());
        };
        let values = Values { state, args: &self.args, results: &self.results };
        let resolved = || -> Result<StepCall, String> {
            let target = step.target.as_deref().unwrap_or("$");
            let reference = match ValueRef::parse(target) {
                Some(ValueRef::Key(key)) => class.references.get(key),
                _ => None,
            };
            let of_reference = reference.map(|it| (it.url.clone(), it.class.clone()));
            let of_step = step.url.clone().map(|url| (url, String::new()));
            let remote = of_step.or(of_reference);
            let object =
                if target == "$" { self.object.clone() } else { object_id(&values, target)? };
            let own = || remote.is_none().then(|| self.collection.clone());
            let collection = step.collection.clone().or_else(own);
            Ok(StepCall { remote, collection, object, args: values.arguments(step)? })
        };
        self.call = Some(resolved().map_err(Error::UnresolvedReference)?);
        Ok(())
    }

    pub(super) fn add_result(&mut self, result: Value) {
        if let Some(name) = self.step().and_then(|it| it.name.clone()) {
            self.results.insert(name, result.clone());
        }
        self.last = result;
        self.next += 1;
        self.call = None;
    }

    pub(super) fn output(&self) -> Value {
        let named = self.flow.output.as_ref().and_then(|it| self.results.get(it));
        named.unwrap_or(&self.last).clone()
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, Error> {
        let record = encode(self)?;
        if record.len() > MAX_RECORD_BYTES {
            let (what, bytes) = ("the run, with arguments and results,", record.len());
            return Err(Error::TooLarge { what, bytes, limit: MAX_RECORD_BYTES });
        }
        Ok(record)
    }
}

/// A result or key that refers to an object: its id, or an object with its id.
fn object_id(values: &Values<'_>, target: &str) -> Result<String, String> {
    let value = values.get(target)?;
    let id = value.as_str().or_else(|| value.get("id").and_then(Value::as_str));
    id.map(str::to_owned).ok_or_else(|| format!("{target:?} is not the id of an object"))
}
