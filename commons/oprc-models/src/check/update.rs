//! Compatibility of a new package version with the previous one.

use crate::{
    diagnostics::{Diagnostics, FieldCursor},
    model::{FunctionState, OClass, OFunction, OPackage, VersionRange},
    names::quote,
};

/// Checks whether `new` may be published after `old`, the highest version below it.
///
/// Immutable functions and bindings never change. A FROZEN function changes only its state.
/// Classes, functions and bindings may be removed only if they were marked for removal (a binding:
/// its class) or the version number allows breaking changes.
pub fn check_update(old: &OPackage, new: &OPackage) -> Result<(), Diagnostics> {
    Diagnostics::collect(|root| {
        if old.name != new.name {
            let message = format!("{} is not a version of {}", quote(&new.name), quote(&old.name));
            root.field("name").add(message);
        }
        if new.version <= old.version {
            let message = format!("{} must be higher than {}", new.version, old.version);
            root.field("version").add(message);
        }
        let breaking = !compatible(old, new);
        let at = root.field("functions");
        for before in &old.functions {
            match find(&at, &new.functions, |it| it.key == before.key) {
                Some((at, after)) => check_function(&at, before, after),
                None => check_removal(
                    &at,
                    &format!("the function {}", quote(&before.key)),
                    before.immutable || before.state() == FunctionState::Frozen,
                    before.mark_for_removal || breaking,
                ),
            }
        }
        let at = root.field("classes");
        for before in &old.classes {
            match find(&at, &new.classes, |it| it.key == before.key) {
                Some((at, after)) => check_class(&at.field("functions"), before, after, breaking),
                None => check_removal(
                    &at,
                    &format!("the class {}", quote(&before.key)),
                    before.functions.iter().any(|binding| binding.immutable),
                    before.mark_for_removal || breaking,
                ),
            }
        }
    })
}

fn find<'a, T>(
    at: &FieldCursor<'a>,
    items: &'a [T],
    matches: impl Fn(&T) -> bool,
) -> Option<(FieldCursor<'a>, &'a T)> {
    let index = items.iter().position(matches)?;
    Some((at.index(index), items.get(index)?))
}

/// Whether the new version number promises compatibility with the old one; pre-releases count as
/// their release.
fn compatible(old: &OPackage, new: &OPackage) -> bool {
    let (old, new) = (&old.version.0, &new.version.0);
    let caret = format!("^{}.{}.{}", old.major, old.minor, old.patch);
    let release = semver::Version::new(new.major, new.minor, new.patch);
    caret.parse::<VersionRange>().is_ok_and(|range| range.matches(&crate::Version(release)))
}

fn check_function(at: &FieldCursor<'_>, before: &OFunction, after: &OFunction) {
    let key = quote(&before.key);
    let same_state = OFunction { state: before.state, ..after.clone() };
    if before.immutable && before != after {
        at.add_with_hint(
            format!("{key} is immutable but differs from the previous version"),
            "publish the change under another key",
        );
    } else if before.state() == FunctionState::Frozen && *before != same_state {
        at.add_with_hint(
            format!("{key} is FROZEN but differs from the previous version"),
            "first publish a version that only sets its state to ENABLED",
        );
    }
}

fn check_class(at: &FieldCursor<'_>, before: &OClass, after: &OClass, breaking: bool) {
    for binding in &before.functions {
        let name = quote(&binding.name);
        match find(at, &after.functions, |it| it.name == binding.name) {
            Some((at, other)) if binding.immutable && binding != other => {
                at.add(format!("{name} is immutable but differs from the previous version"));
            }
            Some(_) => {}
            None => check_removal(
                at,
                &format!("the binding {name}"),
                binding.immutable,
                before.mark_for_removal || breaking,
            ),
        }
    }
}

fn check_removal(at: &FieldCursor<'_>, what: &str, immutable: bool, allowed: bool) {
    if immutable {
        at.add(format!("{what} is immutable or FROZEN and cannot be removed"));
    } else if !allowed {
        at.add_with_hint(
            format!("{what} was removed without being marked for removal"),
            "first publish a version with markForRemoval, or raise the major version",
        );
    }
}
