//! Selects the versions that a package's dependencies resolve to. Pure.
//!
//! One version of each package, so that all requirements of the selected versions are satisfied,
//! there is no cycle, and each is the first of its candidates that allows a solution.

use std::collections::{BTreeMap, BTreeSet};

use oprc_models::{Dependency, OPackage};

/// Direct and transitive dependencies of a package: publishing it writes the heads of all.
pub(super) const MAX_PACKAGES: usize = 64;
const MAX_ATTEMPTS: usize = 10_000;

/// Versions by package name, preferred ones first.
pub(super) type Candidates<'a> = BTreeMap<&'a str, Vec<&'a OPackage>>;
pub(super) type Solution<'a> = BTreeMap<&'a str, &'a OPackage>;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unsolvable {
    /// Index of the root's dependency that leads to the conflict.
    pub(super) dependency: usize,
    pub(super) field: &'static str,
    pub(super) message: String,
}

pub(super) fn solve<'a>(
    root: &'a OPackage,
    candidates: &'a Candidates<'a>,
) -> Result<Solution<'a>, Unsolvable> {
    let requirements = root.dependencies.iter().enumerate();
    let requirements = requirements.map(|(root_dependency, dependency)| Requirement {
        by: &root.name,
        root_dependency,
        dependency,
    });
    let mut search = Search {
        root,
        candidates,
        requirements: requirements.collect(),
        solution: Solution::new(),
        attempts: 0,
        error: None,
    };
    if search.solve_from(0) {
        return Ok(search.solution);
    }
    Err(search.error.unwrap_or_else(|| Unsolvable {
        dependency: 0,
        field: "version",
        message: "no versions satisfy all requirements".to_owned(),
    }))
}

#[derive(Clone, Copy)]
struct Requirement<'a> {
    by: &'a str,
    /// Index of the root's dependency that it comes from.
    root_dependency: usize,
    dependency: &'a Dependency,
}

struct Search<'a> {
    root: &'a OPackage,
    candidates: &'a Candidates<'a>,
    requirements: Vec<Requirement<'a>>,
    solution: Solution<'a>,
    attempts: usize,
    /// The first one: it is about the preferred candidates.
    error: Option<Unsolvable>,
}

impl<'a> Search<'a> {
    /// Satisfies all requirements from `next` on; restores the search on failure. Recursion is bounded by
    /// the number of packages.
    fn solve_from(&mut self, mut next: usize) -> bool {
        loop {
            let Some(&requirement) = self.requirements.get(next) else { return self.is_acyclic() };
            next += 1;
            let Dependency { name, version: range } = requirement.dependency;
            if *name == self.root.name {
                let message = format!("packages depend on each other: {}", self.path(requirement));
                return self.fail(requirement, "name", message);
            }
            if let Some(solution) = self.solution.get(name.as_str()) {
                if range.matches(&solution.version) {
                    continue;
                }
                let message = self.conflict_message(requirement);
                return self.fail(requirement, "version", message);
            }
            return self.try_candidates(requirement, next);
        }
    }

    fn try_candidates(&mut self, requirement: Requirement<'a>, next: usize) -> bool {
        let Dependency { name, version: range } = requirement.dependency;
        let Some(candidates) = self.candidates.get(name.as_str()).filter(|it| !it.is_empty())
        else {
            let message = format!("there is no package {name:?}{}", self.by(requirement));
            return self.fail(requirement, "name", message);
        };
        if self.solution.len() >= MAX_PACKAGES {
            let message = format!("more than {MAX_PACKAGES} packages would be required");
            return self.fail(requirement, "name", message);
        }
        let before = self.requirements.len();
        let mut any = false;
        for candidate in candidates.iter().filter(|it| range.matches(&it.version)) {
            any = true;
            self.attempts += 1;
            if self.attempts > MAX_ATTEMPTS {
                let message = "too many combinations of versions: narrow the ranges";
                return self.fail(requirement, "version", message.to_owned());
            }
            self.solution.insert(name, candidate);
            let requirements = candidate.dependencies.iter();
            self.requirements.extend(requirements.map(|dependency| Requirement {
                by: name,
                root_dependency: requirement.root_dependency,
                dependency,
            }));
            if self.solve_from(next) {
                return true;
            }
            self.requirements.truncate(before);
            self.solution.remove(name.as_str());
        }
        if !any {
            let published: Vec<String> =
                candidates.iter().take(8).map(|it| it.version.to_string()).collect();
            let more = if candidates.len() > published.len() { ", …" } else { "" };
            let message = format!(
                "no version of {name} matches {range}{}; published: {}{more}",
                self.by(requirement),
                published.join(", ")
            );
            return self.fail(requirement, "version", message);
        }
        false
    }

    fn fail(&mut self, requirement: Requirement<'_>, field: &'static str, message: String) -> bool {
        let dependency = requirement.root_dependency;
        self.error.get_or_insert(Unsolvable { dependency, field, message });
        false
    }

    /// Names the requiring package unless it is the root.
    fn by(&self, requirement: Requirement<'_>) -> String {
        if requirement.by == self.root.name {
            String::new()
        } else {
            format!(", which {} requires", requirement.by)
        }
    }

    fn conflict_message(&self, requirement: Requirement<'_>) -> String {
        let Dependency { name, version } = requirement.dependency;
        let mut all = self.requirements.iter();
        let other = all.find(|it| it.dependency.name == *name && it.by != requirement.by);
        let other =
            other.map(|it| format!(", {} {}", it.by, it.dependency.version)).unwrap_or_default();
        format!("no version of {name} satisfies all: {} requires {version}{other}", requirement.by)
    }

    /// The path of dependencies from the root.
    fn path(&self, requirement: Requirement<'a>) -> String {
        let mut path = vec![requirement.dependency.name.as_str(), requirement.by];
        while let Some(last) = path.last().copied()
            && last != self.root.name
            && path.len() <= MAX_PACKAGES + 2
        {
            let Some(before) = self.requirements.iter().find(|it| it.dependency.name == last)
            else {
                break;
            };
            path.push(before.by);
        }
        path.reverse();
        path.join(" → ")
    }

    fn is_acyclic(&mut self) -> bool {
        let mut left: BTreeSet<&str> = self.solution.keys().copied().collect();
        let blocked_by = |name: &str, left: &BTreeSet<&'a str>| {
            let dependencies = self.solution.get(name).map(|it| &it.dependencies)?;
            let mut names = dependencies.iter().map(|it| it.name.as_str());
            names.find_map(|name| left.get(name).copied())
        };
        while let Some(free) = left.iter().copied().find(|name| blocked_by(name, &left).is_none()) {
            left.remove(free);
        }
        let Some(mut at) = left.first().copied() else { return true };
        let mut path: Vec<&str> = Vec::new();
        while !path.contains(&at) {
            path.push(at);
            at = blocked_by(at, &left).unwrap_or(at);
        }
        path.push(at);
        let cycle = path.iter().skip_while(|name| **name != at).copied().collect::<Vec<_>>();
        let message = format!("packages depend on each other: {}", cycle.join(" → "));
        let cause = self.requirements.iter().find(|it| it.dependency.name == at).copied();
        cause.is_some_and(|cause| self.fail(cause, "name", message))
    }
}
