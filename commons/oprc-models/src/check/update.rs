//! Compatibility of a new package version with the previous one.

use crate::{
    diagnostics::{Diagnostics, Path},
    model::{FunctionBinding, FunctionState, OClass, OFunction, OPackage, VersionRange},
    names::quote,
};

/// Checks whether `new` may be published after `old`, the highest version below it.
///
/// Immutable functions and bindings never change. A FROZEN function changes only its state.
/// Classes, functions and bindings may be removed only if they were marked for removal (a binding:
/// its class) or the version number allows breaking changes.
pub fn check_update(old: &OPackage, new: &OPackage) -> Result<(), Diagnostics> {
    let mut diagnostics = Diagnostics::default();
    let root = Path::default();
    if old.name != new.name {
        let message = format!("{} is not a version of {}", quote(&new.name), quote(&old.name));
        diagnostics.add(&root.field("name"), message);
    }
    if new.version <= old.version {
        let message = format!("{} must be higher than {}", new.version, old.version);
        diagnostics.add(&root.field("version"), message);
    }
    let breaking = !compatible(old, new);
    let path = root.field("functions");
    for before in &old.functions {
        match find(&new.functions, |it| it.key == before.key) {
            Some((index, after)) => {
                check_function(&mut diagnostics, &path.index(index), before, after);
            }
            None => check_removal(
                &mut diagnostics,
                &path,
                &format!("the function {}", quote(&before.key)),
                before.immutable || before.state() == FunctionState::Frozen,
                before.mark_for_removal || breaking,
            ),
        }
    }
    let path = root.field("classes");
    for before in &old.classes {
        match find(&new.classes, |it| it.key == before.key) {
            Some((index, after)) => {
                check_class(&mut diagnostics, &path.index(index), before, after, breaking);
            }
            None => check_removal(
                &mut diagnostics,
                &path,
                &format!("the class {}", quote(&before.key)),
                before.functions.iter().any(|binding| binding.immutable),
                before.mark_for_removal || breaking,
            ),
        }
    }
    diagnostics.or(())
}

fn find<T>(items: &[T], matches: impl Fn(&T) -> bool) -> Option<(usize, &T)> {
    items.iter().enumerate().find(|(_, item)| matches(item))
}

/// Whether the new version number promises compatibility with the old one; pre-releases count as
/// their release.
fn compatible(old: &OPackage, new: &OPackage) -> bool {
    let (old, new) = (&old.version.0, &new.version.0);
    let caret = format!("^{}.{}.{}", old.major, old.minor, old.patch);
    let release = semver::Version::new(new.major, new.minor, new.patch);
    caret.parse::<VersionRange>().is_ok_and(|range| range.matches(&crate::Version(release)))
}

fn check_function(
    diagnostics: &mut Diagnostics,
    path: &Path,
    before: &OFunction,
    after: &OFunction,
) {
    if before.immutable && before != after {
        return diagnostics.add_with_hint(
            path,
            format!("{} is immutable but differs from the previous version", quote(&before.key)),
            "publish the change under another key",
        );
    }
    let same_state = OFunction { state: before.state, ..after.clone() };
    if before.state() == FunctionState::Frozen && *before != same_state {
        diagnostics.add_with_hint(
            path,
            format!("{} is FROZEN but differs from the previous version", quote(&before.key)),
            "first publish a version that only sets its state to ENABLED",
        );
    }
}

fn check_class(
    diagnostics: &mut Diagnostics,
    path: &Path,
    before: &OClass,
    after: &OClass,
    breaking: bool,
) {
    let path = path.field("functions");
    for binding in &before.functions {
        let same_name = |it: &FunctionBinding| it.name == binding.name;
        let name = quote(&binding.name);
        match find(&after.functions, same_name) {
            Some((index, other)) if binding.immutable && binding != other => diagnostics.add(
                &path.index(index),
                format!("{name} is immutable but differs from the previous version"),
            ),
            Some(_) => {}
            None => check_removal(
                diagnostics,
                &path,
                &format!("the binding {name}"),
                binding.immutable,
                before.mark_for_removal || breaking,
            ),
        }
    }
}

fn check_removal(
    diagnostics: &mut Diagnostics,
    path: &Path,
    what: &str,
    immutable: bool,
    allowed: bool,
) {
    if immutable {
        diagnostics.add(path, format!("{what} is immutable or FROZEN and cannot be removed"));
    } else if !allowed {
        diagnostics.add_with_hint(
            path,
            format!("{what} was removed without being marked for removal"),
            "first publish a version with markForRemoval, or raise the major version",
        );
    }
}
