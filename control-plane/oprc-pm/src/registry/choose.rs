//! Which versions of other packages one is settled with. Pure.
//!
//! One version of each, such that the wishes of all that were chosen are met, no package depends
//! on itself by way of others, and each is the first of its candidates that lets the rest be.

use std::collections::{BTreeMap, BTreeSet};

use oprc_models::{Dependency, OPackage};

/// How many packages one may depend on, by way of others too: the heads of all of them are written
/// when it is published.
pub(super) const MOST_PACKAGES: usize = 64;
/// How many choices are tried before it is given up.
const MOST_CHOICES: usize = 10_000;

/// All packages by name, each with its versions, those first that are wanted most.
pub(super) type Pool<'a> = BTreeMap<&'a str, Vec<&'a OPackage>>;
/// What was chosen.
pub(super) type Chosen<'a> = BTreeMap<&'a str, &'a OPackage>;

/// Why nothing could be chosen.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    /// Which dependency of the package it is about.
    pub(super) at: usize,
    /// Which field of that.
    pub(super) field: &'static str,
    pub(super) message: String,
}

/// Chooses for a package.
pub(super) fn choose<'a>(root: &'a OPackage, pool: &'a Pool<'a>) -> Result<Chosen<'a>, Trouble> {
    let wishes = root.dependencies.iter().enumerate();
    let wishes = wishes.map(|(at, dependency)| Wish { by: &root.name, at, dependency }).collect();
    let mut search =
        Search { root, pool, wishes, chosen: Chosen::new(), choices: 0, trouble: None };
    if search.go_on(0) {
        return Ok(search.chosen);
    }
    Err(search.trouble.unwrap_or_else(|| Trouble {
        at: 0,
        field: "version",
        message: "nothing was found that will do".to_owned(),
    }))
}

/// That a package wants another.
#[derive(Clone, Copy)]
struct Wish<'a> {
    by: &'a str,
    /// The dependency of the root that it came by.
    at: usize,
    dependency: &'a Dependency,
}

struct Search<'a> {
    root: &'a OPackage,
    pool: &'a Pool<'a>,
    wishes: Vec<Wish<'a>>,
    chosen: Chosen<'a>,
    choices: usize,
    /// The first: it is about what was wanted most.
    trouble: Option<Trouble>,
}

impl<'a> Search<'a> {
    /// Meets all wishes from one on. Is as before where that can't be. Goes no deeper than there
    /// are packages.
    fn go_on(&mut self, mut next: usize) -> bool {
        loop {
            let Some(&wish) = self.wishes.get(next) else { return self.is_acyclic() };
            next += 1;
            let Dependency { name, version: range } = wish.dependency;
            if *name == self.root.name {
                let way = self.way(wish);
                return self.fail(wish, "name", format!("packages depend on each other: {way}"));
            }
            if let Some(chosen) = self.chosen.get(name.as_str()) {
                if range.matches(&chosen.version) {
                    continue;
                }
                let message = self.quarrel(wish);
                return self.fail(wish, "version", message);
            }
            return self.choose(wish, next);
        }
    }

    fn choose(&mut self, wish: Wish<'a>, next: usize) -> bool {
        let Dependency { name, version: range } = wish.dependency;
        let Some(candidates) = self.pool.get(name.as_str()).filter(|it| !it.is_empty()) else {
            return self.fail(
                wish,
                "name",
                format!("there is no package {name:?}{}", self.by(wish)),
            );
        };
        if self.chosen.len() >= MOST_PACKAGES {
            let message = format!("more than {MOST_PACKAGES} packages would be needed");
            return self.fail(wish, "name", message);
        }
        let before = self.wishes.len();
        let mut any = false;
        for candidate in candidates.iter().filter(|it| range.matches(&it.version)) {
            any = true;
            self.choices += 1;
            if self.choices > MOST_CHOICES {
                let message = "there are too many ways to choose versions: narrow the ranges";
                return self.fail(wish, "version", message.to_owned());
            }
            self.chosen.insert(name, candidate);
            let wishes = candidate.dependencies.iter();
            self.wishes.extend(wishes.map(|dependency| Wish { by: name, at: wish.at, dependency }));
            if self.go_on(next) {
                return true;
            }
            self.wishes.truncate(before);
            self.chosen.remove(name.as_str());
        }
        if !any {
            let there: Vec<String> =
                candidates.iter().take(8).map(|it| it.version.to_string()).collect();
            let more = if candidates.len() > there.len() { ", …" } else { "" };
            let message = format!(
                "no version of {name} is {range}{}: there are {}{more}",
                self.by(wish),
                there.join(", ")
            );
            return self.fail(wish, "version", message);
        }
        false
    }

    fn fail(&mut self, wish: Wish<'_>, field: &'static str, message: String) -> bool {
        self.trouble.get_or_insert(Trouble { at: wish.at, field, message });
        false
    }

    /// Who wants it, unless that is plain.
    fn by(&self, wish: Wish<'_>) -> String {
        if wish.by == self.root.name { String::new() } else { format!(", which {} needs", wish.by) }
    }

    fn quarrel(&self, wish: Wish<'_>) -> String {
        let Dependency { name, version } = wish.dependency;
        let other = self.wishes.iter().find(|it| it.dependency.name == *name && it.by != wish.by);
        let other =
            other.map(|it| format!(", {} {}", it.by, it.dependency.version)).unwrap_or_default();
        format!("no version of {name} suits all: {} needs {version}{other}", wish.by)
    }

    /// From the root to what is wished.
    fn way(&self, wish: Wish<'a>) -> String {
        let mut way = vec![wish.dependency.name.as_str(), wish.by];
        while let Some(last) = way.last().copied()
            && last != self.root.name
            && way.len() <= MOST_PACKAGES + 2
        {
            let Some(before) = self.wishes.iter().find(|it| it.dependency.name == last) else {
                break;
            };
            way.push(before.by);
        }
        way.reverse();
        way.join(" → ")
    }

    /// Whether those that were chosen don't depend on each other in a circle.
    fn is_acyclic(&mut self) -> bool {
        let mut left: BTreeSet<&str> = self.chosen.keys().copied().collect();
        let waits = |name: &str, left: &BTreeSet<&'a str>| {
            let dependencies = self.chosen.get(name).map(|it| &it.dependencies)?;
            let mut names = dependencies.iter().map(|it| it.name.as_str());
            names.find_map(|name| left.get(name).copied())
        };
        while let Some(free) = left.iter().copied().find(|name| waits(name, &left).is_none()) {
            left.remove(free);
        }
        let Some(mut at) = left.first().copied() else { return true };
        let mut way: Vec<&str> = Vec::new();
        while !way.contains(&at) {
            way.push(at);
            at = waits(at, &left).unwrap_or(at);
        }
        way.push(at);
        let circle = way.iter().skip_while(|name| **name != at).copied().collect::<Vec<_>>();
        let message = format!("packages depend on each other: {}", circle.join(" → "));
        let came = self.wishes.iter().find(|it| it.dependency.name == at).map_or(0, |it| it.at);
        self.trouble.get_or_insert(Trouble { at: came, field: "name", message });
        false
    }
}
