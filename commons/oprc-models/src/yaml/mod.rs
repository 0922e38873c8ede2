//! The YAML reader: a tree with source positions, and conversion of its nodes with diagnostics.

mod reader;
mod scalar;
mod tree;

pub(crate) use self::{
    reader::{Field, FromNode, Reader, scalar},
    scalar::Scalar,
    tree::{Kind, Node, Position, documents},
};
use crate::{
    diagnostics::{Path, did_you_mean},
    names::{closest_match, unknown_value},
};

/// Maximum size of a file in bytes.
pub const MAX_FILE_SIZE: usize = 1 << 20;
/// Maximum nesting depth of a document.
pub const MAX_DEPTH: usize = 32;
/// Maximum number of documents in a file.
pub const MAX_DOCUMENTS: usize = 64;
/// Maximum size of a file after expansion of aliases, in bytes; each key and value counts 64 bytes
/// in addition to its text.
pub const MAX_EXPANDED_SIZE: usize = 8 << 20;

pub(crate) fn read_enum<T>(
    node: &Node,
    path: &Path,
    reader: &mut Reader<'_>,
    parse: impl Fn(&str) -> Option<T>,
    allowed: &[&'static str],
) -> Option<T> {
    let Some((text, Scalar::Text)) = scalar(node) else {
        return reader.type_mismatch(&format!("one of {}", allowed.join(", ")), node, path);
    };
    let found = parse(text);
    if found.is_none() {
        let message = unknown_value(text, allowed.iter().copied());
        let hint = closest_match(text, allowed.iter().copied()).map(did_you_mean);
        reader.add_at(path, node.position, message, hint);
    }
    found
}
