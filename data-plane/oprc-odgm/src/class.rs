//! What the grid knows about its class: the document that CRM publishes.

mod key_spec;
mod macro_spec;
mod membership;
mod method;
mod trigger;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

pub use self::{
    key_spec::{KeySpec, KeyType, State},
    macro_spec::{Flow, MacroSpec, MacroStep, ValueRef, Values},
    membership::Membership,
    method::{Access, Method},
    trigger::{Batch, Cause, ChangeKind, Trigger, TriggerType},
};
use crate::{Error, member::OtherMember};

/// An object's state has at most this many bytes as JSON. With arguments, result and events it fits
/// into a transaction of the store.
pub const MAX_STATE_BYTES: usize = 256 << 10;

const DEFAULT_TRIGGER_DEPTH: u32 = 10;

/// The class whose objects a grid stores.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Class {
    pub name: String,
    pub state_type: StateType,
    /// The first is that of calls without a collection.
    pub collections: Vec<String>,
    /// If there is none, objects may have any keys.
    pub key_specs: Vec<KeySpec>,
    /// Who may read and write objects without a method.
    pub data_access: Access,
    /// By name.
    pub methods: BTreeMap<String, Method>,
    /// By name, which no method has.
    pub macros: BTreeMap<String, MacroSpec>,
    /// Methods that are called when an object has changed.
    pub triggers: Vec<Trigger>,
    /// Triggers that aren't waited for get several changes at once, if there is one.
    pub batch: Option<Batch>,
    /// How long a chain of triggered calls may be.
    #[serde(deserialize_with = "at_least_one")]
    pub max_trigger_depth: u32,
    /// Keys of the state that hold ids of objects of other classes.
    pub references: BTreeMap<String, Reference>,
    /// None if this grid has all objects of the class.
    pub membership: Option<Membership>,
}

/// A class whose objects a key of the state refers to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Reference {
    /// Its name.
    #[serde(default)]
    pub class: String,
    /// Address of its grid.
    pub url: String,
    /// Who may resolve it.
    #[serde(default)]
    pub access: Access,
}

impl Default for Class {
    fn default() -> Self {
        Self {
            name: String::new(),
            state_type: StateType::default(),
            collections: Vec::new(),
            key_specs: Vec::new(),
            data_access: Access::Internal,
            methods: BTreeMap::new(),
            macros: BTreeMap::new(),
            triggers: Vec::new(),
            batch: None,
            max_trigger_depth: DEFAULT_TRIGGER_DEPTH,
            references: BTreeMap::new(),
            membership: None,
        }
    }
}

fn at_least_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    method::bounded(deserializer, "maxTriggerDepth", 1..=u32::MAX)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum StateType {
    #[default]
    Normal,
    Collection,
    Singleton,
}

impl Class {
    /// Checks what the types don't: an error names the part and what is allowed.
    pub fn validate(&self) -> Result<(), String> {
        for (name, spec) in &self.macros {
            if let Some(problem) = spec.problem() {
                return Err(format!("the macro {name:?} {problem}"));
            }
            if self.methods.contains_key(name) {
                return Err(format!("{name:?} is the name of a method and of a macro"));
            }
        }
        let problem = self.membership.as_ref().and_then(Membership::problem);
        problem.map_or(Ok(()), |it| Err(format!("membership: {it}")))
    }

    /// Fails if another member of the deployment has the object.
    pub fn check_member(&self, collection: &str, id: &str) -> Result<(), Error> {
        let Some(membership) = &self.membership else { return Ok(()) };
        match membership.owner(collection, id) {
            Some(owner) if owner.id == membership.member => Ok(()),
            Some(owner) => {
                let (id, member) = (id.to_owned(), owner.clone());
                Err(Error::OtherMember(Box::new(OtherMember { id, member })))
            }
            None => Err(Error::Unavailable(format!("the members of {collection:?} are not known"))),
        }
    }

    /// Whether this grid has the object, if it exists.
    pub fn has_object(&self, collection: &str, id: &str) -> bool {
        !matches!(self.check_member(collection, id), Err(Error::OtherMember(_)))
    }

    /// A method that a caller may call.
    pub fn method(&self, name: &str, caller: Access) -> Result<&Method, Error> {
        let method = self.methods.get(name);
        let method = method.ok_or_else(|| Error::UnknownMethod(name.to_owned()))?;
        permit(|| format!("the method {name:?}"), method.access, caller)?;
        Ok(method)
    }

    /// A macro that a caller may call; none if there is no macro of this name.
    pub fn macro_spec(&self, name: &str, caller: Access) -> Result<Option<&MacroSpec>, Error> {
        let Some(spec) = self.macros.get(name) else { return Ok(None) };
        permit(|| format!("the macro {name:?}"), spec.access, caller)?;
        Ok(Some(spec))
    }

    /// A reference that a caller may resolve.
    pub fn reference(&self, key: &str, caller: Access) -> Result<&Reference, Error> {
        let reference = self.references.get(key);
        let reference = reference.ok_or_else(|| Error::UnknownReference(key.to_owned()))?;
        permit(|| format!("the reference {key:?}"), reference.access, caller)?;
        Ok(reference)
    }

    /// Whether a caller may read and write objects.
    pub fn permit_data(&self, caller: Access) -> Result<(), Error> {
        permit(|| "the data of objects".to_owned(), self.data_access, caller)
    }

    /// The collection of a call.
    pub fn collection<'a>(&'a self, name: Option<&'a str>) -> Result<&'a str, Error> {
        let found = match name {
            Some(name) => self.collections.iter().find(|it| *it == name),
            None => self.collections.first(),
        };
        found.map(String::as_str).ok_or_else(|| Error::UnknownCollection(name.unwrap_or("").into()))
    }

    /// The triggers of a change. A method isn't triggered by its own changes.
    pub fn triggers(
        &self,
        collection: &str,
        kind: ChangeKind,
        by: &Cause,
    ) -> impl Iterator<Item = &Trigger> {
        let is_too_deep = by.depth >= self.max_trigger_depth;
        self.triggers
            .iter()
            .filter(move |_| !is_too_deep)
            .filter(move |it| it.concerns(collection, kind))
            .filter(|it| by.method.as_ref() != Some(&it.method))
    }

    /// The trigger that calls a method for changes of a collection.
    pub fn trigger(&self, method: &str, collection: &str, kind: ChangeKind) -> Option<&Trigger> {
        self.triggers.iter().find(|it| it.method == method && it.concerns(collection, kind))
    }

    /// Checks all keys, and reports all problems.
    pub fn check(&self, state: &State) -> Result<(), Error> {
        let bytes = serde_json::to_vec(state).map_or(0, |it| it.len());
        if bytes > MAX_STATE_BYTES {
            return Err(Error::TooLarge { what: "the state", bytes, limit: MAX_STATE_BYTES });
        }
        if self.key_specs.is_empty() {
            return Ok(());
        }
        let problems = self.key_specs.iter().filter_map(|spec| spec.problem(state));
        let is_known = |key: &String| self.key_specs.iter().any(|it| it.name == *key);
        let unknown = state.keys().filter(|key| !is_known(key));
        let problems = problems.chain(unknown.map(|key| format!("{key} is not a key")));
        invalid_state(problems.collect())
    }

    /// Checks that immutable keys keep their values.
    pub fn check_change(
        &self,
        before: &State,
        after: &State,
        is_same: impl Fn(&Value, &Value) -> bool,
    ) -> Result<(), Error> {
        let problem = |spec: &KeySpec| spec.change_problem(before, after, &is_same);
        invalid_state(self.key_specs.iter().filter_map(problem).collect())
    }
}

fn invalid_state(problems: Vec<String>) -> Result<(), Error> {
    if problems.is_empty() { Ok(()) } else { Err(Error::InvalidState { problems }) }
}

fn permit(what: impl Fn() -> String, access: Access, caller: Access) -> Result<(), Error> {
    if caller < access {
        return Err(Error::Forbidden { what: what(), access: access.as_str() });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
