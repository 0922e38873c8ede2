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
        let (name, program) = (name.to_owned(), program.to_owned());
        Self { name, program, args, env: BTreeMap::new(), place: Place::Host }
    }
}
