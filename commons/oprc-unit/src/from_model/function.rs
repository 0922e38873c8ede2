//! Functions of a unit.

use oprc_models::{self as model, ResolvedFunction};

use super::{Source, constraints, container, macros, requirements};
use crate::spec::{
    Access, Binding, FunctionConfig, FunctionSpec, FunctionTrigger, OdgmIntegration, SingleFunction,
};

pub(super) fn spec(source: &Source<'_>, resolved: &ResolvedFunction) -> FunctionSpec {
    let function = &resolved.function;
    let container = function.container();
    let bindings = source.class.bindings.iter().filter(|it| it.function == resolved.key);
    let mut bindings: Vec<_> = bindings
        .map(|it| Binding {
            name: it.name.clone(),
            access: it.access.map(Into::into),
            condition: it.condition.clone(),
            trigger_on_state_change: it.trigger_on_state_change,
            async_execution: it.async_execution,
        })
        .collect();
    if bindings.is_empty() {
        // Only macros call it.
        let name = macros::method_of(source.class, resolved);
        bindings.push(Binding { name, access: Some(Access::Private), ..Binding::default() });
    }
    let body = SingleFunction {
        kind: Some(function.kind().into()),
        image: container.and_then(|it| it.image.clone()),
        port: container.and_then(|it| it.port),
        bindings,
        // Each binding has its own access.
        access: None,
        provision: container.and_then(container::provision),
        health_check: container
            .and_then(|it| it.health_check.as_ref())
            .map(container::health_check),
        config: function.config.as_ref().map(|it| FunctionConfig {
            timeout_ms: it.timeout,
            retries: it.retries,
            env: it.env.iter().map(|(name, text)| (name.clone(), text.0.clone())).collect(),
        }),
        requirements: function.requirements.as_ref().map(requirements),
        constraints: function.constraints.as_ref().map(constraints),
        odgm: function.odgm.as_ref().map(|it| OdgmIntegration {
            collections: it.collections.clone(),
            access_mode: it.access_mode.map(Into::into),
            caching_strategy: it.caching_strategy.map(Into::into),
            event_triggers: it.event_triggers.iter().map(trigger).collect(),
        }),
        flow: function.flow.as_ref().map(|it| macros::spec(source, resolved, it)),
    };
    FunctionSpec { key: resolved.key.clone(), body }
}

fn trigger(trigger: &model::FunctionTrigger) -> FunctionTrigger {
    FunctionTrigger {
        method: trigger.method.clone(),
        trigger_type: trigger.trigger_type.map(Into::into),
        collection_filters: trigger.collections.clone(),
        async_execution: trigger.async_execution,
    }
}
