//! Validation of units, and the plan of their data grid.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod data_grid;
mod members;
mod validation;

use serde_json::{Value, json};

use super::{Identity, Rejection, ValidClass, validate};
use crate::{
    platform::{Platform, Profile},
    spec::UnitSpec,
};

fn platform() -> Platform {
    Platform::of(Profile::Full)
}

fn read(spec: &Value) -> UnitSpec {
    serde_json::from_value(spec.clone()).unwrap_or_else(|error| panic!("{error}: {spec}"))
}

fn check_in(spec: &Value, platform: &Platform) -> Result<ValidClass, Rejection> {
    let identity = Identity {
        name: "shop".to_owned(),
        base: "shop".to_owned(),
        namespace: "ns".to_owned(),
        uid: "uid".to_owned(),
        generation: 1,
        deployment_id: "unit-1".to_owned(),
        environment: Some("prod".to_owned()),
    };
    validate(platform.profile, identity, &read(spec), platform)
}

fn check(spec: &Value) -> Result<ValidClass, Rejection> {
    check_in(spec, &platform())
}

/// A valid class with one function.
fn plain() -> Value {
    json!({"functions": [{"key": "f", "image": "img"}]})
}

/// Sets a value at a JSON pointer, creating objects on the way.
fn with(spec: &Value, pointer: &str, value: Value) -> Value {
    let mut spec = spec.clone();
    let mut place = &mut spec;
    for part in pointer.trim_start_matches('/').split('/') {
        place = match part.parse::<usize>() {
            Ok(at) => &mut place[at],
            Err(_) => &mut place[part],
        };
    }
    *place = value;
    spec
}
