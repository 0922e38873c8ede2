//! Functions of a unit.

use oprc_models::ResolvedFunction;

use super::{Source, constraints, container, macros, requirements};
use crate::spec::{Access, Binding, FunctionConfig, FunctionSpec, OdgmIntegration, SingleFunction};

pub(super) fn spec(source: &Source<'_>, resolved: &ResolvedFunction) -> FunctionSpec {
    let function = &resolved.function;
    let container = function.container();
    let bindings = || source.class.bindings.iter().filter(|it| it.function == resolved.key);
    let body = SingleFunction {
        kind: Some(function.kind().into()),
        image: container.and_then(|it| it.image.clone()),
        port: container.and_then(|it| it.port),
        bindings: bindings()
            .map(|it| Binding {
                name: it.name.clone(),
                access: it.access.map(Into::into),
                immutable: it.immutable,
                condition: it.condition.clone(),
                trigger_on_state_change: it.trigger_on_state_change,
                async_execution: it.async_execution,
            })
            .collect(),
        // Each binding has its own access; a function without one is only called by macros.
        access: bindings().next().is_none().then_some(Access::Private),
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
        }),
        flow: function.flow.as_ref().map(|it| macros::spec(source, resolved, it)),
    };
    FunctionSpec { key: resolved.key.clone(), body }
}
