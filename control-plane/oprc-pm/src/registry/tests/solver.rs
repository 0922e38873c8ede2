//! The solver against an exhaustive search.

use std::collections::BTreeMap;

use oprc_models::{Dependency, OPackage, Version};
use proptest::prelude::*;

use super::super::solver::{Candidates, solve};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn arb_package(name: &'static str) -> impl Strategy<Value = Vec<OPackage>> {
    let ranges = prop::sample::select(vec!["*", "^1", "^2", "<2", "=1.1.0", "1.0.0"]);
    let dependency = (prop::sample::select(NAMES.to_vec()), ranges);
    let versions = prop::sample::subsequence(vec!["1.0.0", "1.1.0", "2.0.0"], 0..=3);
    (versions, prop::collection::vec(prop::collection::vec(dependency, 0..3), 3)).prop_map(
        move |(versions, dependencies)| {
            let packages = versions.iter().zip(dependencies).map(|(version, on)| {
                let on: BTreeMap<&str, &str> = on.into_iter().filter(|it| it.0 != name).collect();
                new(name, version, &on.into_iter().collect::<Vec<_>>())
            });
            packages.rev().collect()
        },
    )
}

fn new(name: &str, version: &str, on: &[(&str, &str)]) -> OPackage {
    let dependencies = on.iter().map(|(name, range)| Dependency {
        name: (*name).to_owned(),
        version: range.parse().unwrap(),
    });
    OPackage {
        name: name.to_owned(),
        version: version.parse::<Version>().unwrap(),
        dependencies: dependencies.collect(),
        ..OPackage::default()
    }
}

type Solution<'a> = BTreeMap<&'a str, &'a OPackage>;

/// Whether a solution satisfies all dependencies, has no unneeded package and no cycle.
fn is_valid(root: &OPackage, solution: &Solution<'_>) -> bool {
    let all = || solution.values().copied().chain([root]);
    let satisfied = |it: &Dependency| {
        solution.get(it.name.as_str()).is_some_and(|found| it.version.matches(&found.version))
    };
    let mut reached = vec![root];
    let mut at = 0;
    while at < reached.len() && reached.len() < 100 {
        for it in &reached[at].dependencies {
            if let Some(found) = solution.get(it.name.as_str())
                && !reached.iter().any(|it| it.name == found.name)
            {
                reached.push(found);
            }
        }
        at += 1;
    }
    // Without cycles, packages without remaining dependencies can be removed until none is left.
    let mut left: Vec<&OPackage> = all().collect();
    while let Some(at) = left.iter().position(|it| {
        !it.dependencies.iter().any(|on| left.iter().any(|other| other.name == on.name))
    }) {
        left.remove(at);
    }
    all().all(|it| it.dependencies.iter().all(satisfied))
        && reached.len() == solution.len() + 1
        && left.is_empty()
}

/// Whether there is a valid solution, by exhaustive search.
fn is_solvable<'a>(
    root: &OPackage,
    pool: &Candidates<'a>,
    names: &[&'a str],
    solution: &mut Solution<'a>,
) -> bool {
    let Some((name, rest)) = names.split_first() else { return is_valid(root, solution) };
    if is_solvable(root, pool, rest, solution) {
        return true;
    }
    let candidates = pool.get(name).cloned().unwrap_or_default();
    candidates.into_iter().any(|candidate| {
        solution.insert(name, candidate);
        let found = is_solvable(root, pool, rest, solution);
        solution.remove(name);
        found
    })
}

proptest! {
    #[test]
    fn finds_a_solution_if_there_is_one(
        a in arb_package("a"), b in arb_package("b"), c in arb_package("c"), d in arb_package("d")
    ) {
        let all = [a, b, c, d];
        let pool: Candidates<'_> =
            NAMES.iter().copied().zip(all.iter().map(|it| it.iter().collect())).collect();
        for root in &all[0] {
            let solution = solve(root, &pool);
            match &solution {
                Ok(solution) => prop_assert!(is_valid(root, solution), "{root:?} {solution:?}"),
                Err(error) => {
                    prop_assert!(!is_solvable(root, &pool, &NAMES[1..], &mut Solution::new()));
                    prop_assert!(error.dependency < root.dependencies.len());
                }
            }
            prop_assert_eq!(solution, solve(root, &pool));
        }
    }
}

#[test]
fn errors_name_the_packages() {
    let all = [
        new("b", "1.0.0", &[("c", "^1")]),
        new("c", "1.0.0", &[]),
        new("c", "2.0.0", &[]),
        new("d", "1.0.0", &[("root", "*")]),
        new("e", "1.0.0", &[("missing", "*")]),
        new("f", "1.0.0", &[("g", "*")]),
        new("g", "1.0.0", &[("f", "*")]),
    ];
    let mut pool = Candidates::new();
    for package in &all {
        pool.entry(&package.name).or_default().insert(0, package);
    }
    for (on, at, field, message) in [
        (
            vec![("c", "^2"), ("b", "*")],
            1,
            "version",
            "no version of c satisfies all: b requires ^1, root ^2",
        ),
        (vec![("c", "^3")], 0, "version", "no version of c matches ^3; published: 2.0.0, 1.0.0"),
        (vec![("d", "*")], 0, "name", "packages depend on each other: root → d → root"),
        (vec![("e", "*")], 0, "name", "there is no package \"missing\", which e requires"),
        (vec![("c", "*"), ("f", "*")], 1, "name", "packages depend on each other: f → g → f"),
    ] {
        let root = new("root", "1.0.0", &on);
        let error = solve(&root, &pool).unwrap_err();
        assert_eq!((error.dependency, error.field, error.message.as_str()), (at, field, message));
    }
    // An older version of `c` satisfies both.
    let root = new("root", "1.0.0", &[("c", "*"), ("b", "*")]);
    assert_eq!(solve(&root, &pool).unwrap()["c"].version.to_string(), "1.0.0");
}

#[test]
fn gives_up_an_excessive_search() {
    let names: Vec<String> = (0..12).map(|at| format!("p{at}")).collect();
    let mut all = Vec::new();
    for name in &names {
        for minor in 0..10 {
            all.push(new(name, &format!("1.{minor}.0"), &[("x", &format!("={minor}.0.0"))]));
        }
    }
    all.push(new("x", "99.0.0", &[]));
    let mut pool = Candidates::new();
    for package in &all {
        pool.entry(&package.name).or_default().push(package);
    }
    let on: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "*")).collect();
    assert!(solve(&new("root", "1.0.0", &on), &pool).is_err());
}
