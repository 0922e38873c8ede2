//! A process that the supervisor keeps running.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Host,
    /// Process 1 of a node's namespaces.
    NodeInit(u8),
    /// In the namespaces of a node.
    Node(u8),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Component {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) place: Place,
}

impl Component {
    pub(crate) fn on_host(name: &str, program: &Path, args: Vec<String>) -> Self {
        Self::at(Place::Host, name.to_owned(), program, args)
    }

    pub(crate) fn at(place: Place, name: String, program: &Path, args: Vec<String>) -> Self {
        Self { name, program: program.to_owned(), args, env: BTreeMap::new(), place }
    }
}

/// An argument with a value.
pub(crate) fn flag(name: &str, value: impl std::fmt::Display) -> String {
    format!("--{name}={value}")
}

/// An argument with a path.
pub(crate) fn file(name: &str, path: &Path) -> String {
    flag(name, path.display())
}
