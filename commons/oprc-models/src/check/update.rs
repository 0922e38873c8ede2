//! What a new version of a package may do to the one before.

use crate::{
    fault::{Faults, Path},
    model::{FunctionState, OClass, OFunction, OPackage, VersionRange},
    names::shown,
};

/// Whether `new` may be published after `old`, which is the newest version below it.
///
/// What is immutable stays as it is, in every later version. A function that is FROZEN stays as it
/// is, apart from its state. Classes and functions go only where they were marked for removal, and
/// bindings only with them, unless the version says by its number that it breaks with the one
/// before.
pub fn check_update(old: &OPackage, new: &OPackage) -> Result<(), Faults> {
    let mut faults = Faults::default();
    let root = Path::default();
    if old.name != new.name {
        let message = format!("{} is no version of {}", shown(&new.name), shown(&old.name));
        faults.add(&root.field("name"), message);
    }
    if new.version <= old.version {
        let message = format!("{} doesn't come after {}", new.version, old.version);
        faults.add(&root.field("version"), message);
    }
    let breaks = !compatible(old, new);
    for before in &old.functions {
        let at = new.functions.iter().position(|it| it.key == before.key);
        match at.and_then(|at| Some((at, new.functions.get(at)?))) {
            Some((at, now)) => {
                function(&mut faults, &root.field("functions").index(at), before, now);
            }
            None => gone(
                &mut faults,
                &root.field("functions"),
                &format!("the function {}", shown(&before.key)),
                before.immutable || before.state() == FunctionState::Frozen,
                before.mark_for_removal || breaks,
            ),
        }
    }
    for before in &old.classes {
        let at = new.classes.iter().position(|it| it.key == before.key);
        match at.and_then(|at| Some((at, new.classes.get(at)?))) {
            Some((at, now)) => {
                class(&mut faults, &root.field("classes").index(at), before, now, breaks);
            }
            None => gone(
                &mut faults,
                &root.field("classes"),
                &format!("the class {}", shown(&before.key)),
                before.functions.iter().any(|binding| binding.immutable),
                before.mark_for_removal || breaks,
            ),
        }
    }
    faults.or(())
}

/// Whether a version is one that those who use the other can take.
fn compatible(old: &OPackage, new: &OPackage) -> bool {
    let (one, other) = (&old.version.0, &new.version.0);
    let caret = format!("^{}.{}.{}", one.major, one.minor, one.patch);
    let plain = semver::Version::new(other.major, other.minor, other.patch);
    caret.parse::<VersionRange>().is_ok_and(|range| range.matches(&crate::Version(plain)))
}

fn function(faults: &mut Faults, path: &Path, before: &OFunction, now: &OFunction) {
    if before.immutable && before != now {
        return faults.hint(
            path,
            format!("{} is immutable, and differs from the version before", shown(&before.key)),
            "publish what differs under another key",
        );
    }
    // Its state itself may change: that is how it thaws.
    let thawed = OFunction { state: before.state, ..now.clone() };
    if before.state() == FunctionState::Frozen && *before != thawed {
        faults.hint(
            path,
            format!("{} is FROZEN, and differs from the version before", shown(&before.key)),
            "publish a version that only sets its state to ENABLED first",
        );
    }
}

fn class(faults: &mut Faults, path: &Path, before: &OClass, now: &OClass, breaks: bool) {
    for binding in &before.functions {
        let at = now.functions.iter().position(|it| it.name == binding.name);
        match at.and_then(|at| Some((at, now.functions.get(at)?))) {
            Some((at, other)) if binding.immutable && binding != other => faults.add(
                &path.field("functions").index(at),
                format!("{} is immutable, and differs from before", shown(&binding.name)),
            ),
            Some(_) => {}
            None => gone(
                faults,
                &path.field("functions"),
                &format!("the binding {}", shown(&binding.name)),
                binding.immutable,
                before.mark_for_removal || breaks,
            ),
        }
    }
}

fn gone(faults: &mut Faults, path: &Path, what: &str, immutable: bool, may_go: bool) {
    if immutable {
        faults.add(path, format!("{what} is gone, and may not be changed"));
    } else if !may_go {
        faults.hint(
            path,
            format!("{what} is gone, and the version before didn't mark it for removal"),
            "publish a version with markForRemoval first, or raise the major version",
        );
    }
}
