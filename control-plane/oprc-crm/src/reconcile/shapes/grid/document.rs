//! The ConfigMap of the data grid: the class document and the number of members. Nodes follow both
//! while they run, so a changed method or number of members restarts no node.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use oprc_unit::{
    MacroPlan, MethodPlan, OdgmPlan, TriggerPlan, ValidFunction, names,
    spec::{
        Access, AccessMode, ClassReference, GridMember, KeySpec, KeyType, StateType, TriggerType,
    },
};
use serde::Serialize;
use serde_json::json;

use super::super::super::manifest::{
    Context, DesiredObject, FunctionPlan, GRID_PORT, desired_object,
};
use crate::kinds::CONFIG_MAP;

/// The folder of the ConfigMap in a node.
pub(super) const CONFIG_DIR: &str = "/etc/odgm";
pub(super) const CLASS_FILE: &str = "class.json";
pub(super) const MEMBERS_FILE: &str = "members.json";
/// The longest call that a node accepts, in milliseconds.
const MAX_CALL_MS: i32 = 600_000;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ClassDocument<'a> {
    name: &'a str,
    state_type: StateType,
    key_specs: Vec<KeySpec>,
    data_access: Access,
    methods: BTreeMap<&'a str, Method<'a>>,
    macros: BTreeMap<&'a str, Macro<'a>>,
    triggers: Vec<Trigger<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<Batch>,
    max_trigger_depth: i32,
    references: BTreeMap<&'a str, Reference<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    membership: Option<Membership<'a>>,
}

/// The member of the deployment that the grid belongs to, and those that have other objects.
#[derive(Serialize)]
struct Membership<'a> {
    member: i32,
    members: &'a [GridMember],
    /// By collection: the member of each partition.
    partitions: BTreeMap<&'a str, &'a [i32]>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Method<'a> {
    url: String,
    access: Access,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    read_only: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stateless: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_concurrency: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retries: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    condition: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Macro<'a> {
    access: Access,
    #[serde(skip_serializing_if = "Option::is_none")]
    condition: Option<&'a str>,
    steps: Vec<Step<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Step<'a> {
    method: &'a str,
    target: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    args: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    arg_refs: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    inputs: &'a [String],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Trigger<'a> {
    method: &'a str,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<TriggerType>,
    collections: &'a [String],
    #[serde(rename = "async")]
    async_execution: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    condition: Option<&'a str>,
    timeout_ms: i32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Batch {
    size: i32,
    timeout_ms: i32,
}

#[derive(Serialize)]
struct Reference<'a> {
    class: &'a str,
    url: String,
    access: Access,
}

pub(super) fn config_map(
    context: &Context<'_>,
    plan: &OdgmPlan,
    functions: &[FunctionPlan],
) -> DesiredObject {
    let name = names::odgm(&context.class.identity.base);
    let mut data = BTreeMap::from([(
        CLASS_FILE.to_owned(),
        serde_json::to_string(&document(context, plan, functions)).unwrap_or_default(),
    )]);
    if plan.is_replicated() {
        let members = json!({"members": plan.replicas});
        data.insert(MEMBERS_FILE.to_owned(), members.to_string());
    }
    let object = ConfigMap {
        metadata: context.meta(&name, context.odgm_labels()),
        data: Some(data),
        ..ConfigMap::default()
    };
    desired_object(CONFIG_MAP, &object)
}

fn document<'a>(
    context: &'a Context<'_>,
    plan: &'a OdgmPlan,
    functions: &'a [FunctionPlan],
) -> ClassDocument<'a> {
    let callable = |it: &&MethodPlan| functions.iter().any(|f| f.key == it.function);
    let own = plan.methods.iter().filter(callable).filter_map(|it| {
        let function = context.class.functions.iter().find(|f| f.key == it.function)?;
        let url = functions.iter().find(|f| f.key == it.function)?.url.clone()?;
        Some((it.name.as_str(), method(it, function, url)))
    });
    let mut methods: BTreeMap<_, _> = own.collect();
    add_routes(plan, &mut methods);
    let triggers = plan.triggers.iter().filter(|_| plan.events);
    // A Job isn't called.
    let triggers = triggers.filter(|it| methods.contains_key(it.method.as_str()));
    let triggers = triggers.map(|it| trigger(plan, it)).collect();
    ClassDocument {
        name: &plan.class,
        state_type: plan.state_type,
        key_specs: key_specs(plan),
        data_access: plan.data_access,
        macros: plan.macros.iter().map(|it| (it.name.as_str(), macro_of(it))).collect(),
        methods,
        triggers,
        batch: plan.batch.map(|(size, timeout_ms)| Batch { size, timeout_ms }),
        max_trigger_depth: plan.trigger_depth,
        references: plan
            .references
            .iter()
            .filter_map(|it| Some((it.name.as_str(), reference(context, it)?)))
            .collect(),
        membership: plan.membership.as_ref().map(|it| Membership {
            member: it.own,
            members: &it.members,
            partitions: plan.collections.iter().map(|it| (it.name.as_str(), &*it.owners)).collect(),
        }),
    }
}

fn method<'a>(plan: &'a MethodPlan, function: &ValidFunction, url: String) -> Method<'a> {
    Method {
        url,
        access: plan.access,
        read_only: function.odgm.access_mode == Some(AccessMode::ReadOnly),
        stateless: false,
        timeout_ms: function.timeout_ms.map(|it| it.min(MAX_CALL_MS)),
        max_concurrency: function.max_concurrency,
        retries: function.retries,
        condition: plan.condition.as_deref(),
    }
}

/// A route of the user replaces the address of a method, unless it is only to be used without one.
fn add_routes<'a>(plan: &'a OdgmPlan, methods: &mut BTreeMap<&'a str, Method<'a>>) {
    for (name, route) in &plan.routes {
        match methods.get_mut(name.as_str()) {
            Some(method) if !route.standby => method.url.clone_from(&route.url),
            Some(_) => {}
            None => {
                let method = Method {
                    url: route.url.clone(),
                    access: Access::Internal,
                    read_only: false,
                    stateless: route.stateless,
                    timeout_ms: None,
                    max_concurrency: None,
                    retries: None,
                    condition: None,
                };
                methods.insert(name, method);
            }
        }
    }
}

/// References are keys of the state, too: an id, or a list of ids.
fn key_specs(plan: &OdgmPlan) -> Vec<KeySpec> {
    let mut all = plan.key_specs.clone();
    if !all.is_empty() {
        for reference in &plan.references {
            if all.iter().all(|it| it.name != reference.name) {
                let name = reference.name.clone();
                all.push(KeySpec { name, kind: KeyType::Json, optional: true, immutable: false });
            }
        }
    }
    all
}

fn macro_of(plan: &MacroPlan) -> Macro<'_> {
    let steps = plan.flow.steps.iter().map(|step| Step {
        method: &step.method,
        target: step.target(),
        name: step.name.as_deref(),
        args: &step.args,
        arg_refs: &step.arg_refs,
        inputs: &step.inputs,
    });
    Macro {
        access: plan.access,
        condition: plan.condition.as_deref(),
        steps: steps.collect(),
        output: plan.flow.output.as_deref(),
    }
}

fn trigger<'a>(plan: &OdgmPlan, trigger: &'a TriggerPlan) -> Trigger<'a> {
    Trigger {
        method: &trigger.method,
        kind: Some(trigger.trigger_type).filter(|it| *it != TriggerType::default()),
        collections: &trigger.collections,
        async_execution: trigger.async_execution,
        condition: trigger.condition.as_deref(),
        timeout_ms: plan.trigger_timeout_ms.min(MAX_CALL_MS),
    }
}

/// None if the address of the other class isn't known.
fn reference<'a>(context: &Context<'_>, reference: &'a ClassReference) -> Option<Reference<'a>> {
    let grid = |unit: &String| {
        let service = names::odgm_service(&names::base(&names::class_runtime(unit)));
        format!("http://{service}.{}.svc:{GRID_PORT}", context.class.identity.namespace)
    };
    Some(Reference {
        class: &reference.class,
        url: reference.url.clone().or_else(|| reference.unit.as_ref().map(grid))?,
        access: reference.access.unwrap_or_default(),
    })
}
