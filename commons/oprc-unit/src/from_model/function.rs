//! Functions of a unit.

use oprc_models::{ResolvedClass, ResolvedFunction};

use super::{constraints, container, requirements};
use crate::spec::{Binding, FunctionConfig, FunctionSpec, OdgmIntegration, SingleFunction};

pub(super) fn spec(class: &ResolvedClass, resolved: &ResolvedFunction) -> FunctionSpec {
    let function = &resolved.function;
    let container = function.container();
    let bindings = class.bindings.iter().filter(|it| it.function == resolved.key);
    let body = SingleFunction {
        kind: Some(function.kind().into()),
        image: container.and_then(|it| it.image.clone()),
        port: container.and_then(|it| it.port),
        bindings: bindings
            .map(|it| Binding {
                name: it.name.clone(),
                access: it.access.map(Into::into),
                trigger_on_state_change: it.trigger_on_state_change,
                async_execution: it.async_execution,
            })
            .collect(),
        // Each binding has its own access.
        access: None,
        provision: container.and_then(container::provision),
        health_check: container
            .and_then(|it| it.health_check.as_ref())
            .map(container::health_check),
        config: function.config.as_ref().map(|it| FunctionConfig {
            timeout_ms: it.timeout,
            env: it.env.iter().map(|(name, text)| (name.clone(), text.0.clone())).collect(),
        }),
        requirements: function.requirements.as_ref().map(requirements),
        constraints: function.constraints.as_ref().map(constraints),
        odgm: function.odgm.as_ref().map(|it| OdgmIntegration {
            collections: it.collections.clone(),
            access_mode: it.access_mode.map(Into::into),
            caching_strategy: it.caching_strategy.map(Into::into),
        }),
    };
    FunctionSpec { key: resolved.key.clone(), body }
}
