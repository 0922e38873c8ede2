use std::collections::HashMap;

/// Namespace and name.
pub type Key = (String, String);
/// Uids by namespace and name; an empty one stands for any.
pub type Known = HashMap<Key, String>;

pub(super) fn key(namespace: &str, name: &str) -> Key {
    (namespace.to_owned(), name.to_owned())
}
