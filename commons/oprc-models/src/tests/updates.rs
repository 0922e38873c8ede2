//! Compatibility of package versions.

use super::{package, with};
use crate::check_update;

fn messages(old: &str, new: &str) -> String {
    match check_update(&package(old), &package(new)) {
        Ok(()) => String::new(),
        Err(diagnostics) => diagnostics.to_string(),
    }
}

#[test]
fn versions_must_increase() {
    let old = with("1.0.0", "1.2.0");
    assert_eq!(messages(&old, &with("1.0.0", "1.2.1")), "");
    assert!(messages(&old, &with("1.0.0", "1.2.0")).contains("must be higher than"));
    assert!(
        messages(&old, &with("1.0.0", "1.2.1").replace("name: shop", "name: other"))
            .contains("name:")
    );
}

#[test]
fn immutable_items_cannot_change_or_be_removed() {
    let old = with("- key: buy", "- key: buy\n    immutable: true");
    let next = |text: &str| text.replace("1.0.0", "2.0.0");
    assert_eq!(messages(&old, &next(&old)), "");
    assert!(
        messages(&old, &next(&old.replace("shop:1", "shop:2")))
            .contains("functions[0]: \"buy\" is immutable")
    );
    let gone =
        next(&old).replace("key: buy", "key: sell").replace("function: buy", "function: sell");
    assert!(
        messages(&old, &gone)
            .contains("the function \"buy\" is immutable or FROZEN and cannot be removed")
    );
    let old = with("function: buy", "function: buy\n        immutable: true");
    let other = next(&old).replace("        immutable: true", "        access: PUBLIC");
    assert!(messages(&old, &other).contains("classes[0].functions[0]: \"buy\" is immutable"));
}

#[test]
fn frozen_functions_can_only_change_state() {
    let old = with("- key: buy", "- key: buy\n    state: FROZEN");
    let next = old.replace("1.0.0", "1.1.0");
    assert_eq!(messages(&old, &next.replace("FROZEN", "ENABLED")), "");
    assert!(messages(&old, &next.replace("shop:1", "shop:2")).contains("is FROZEN"));
}

#[test]
fn removal_needs_a_mark_or_a_breaking_version() {
    let sells = "- key: sell\n    provision: {docker: {image: a}}\n  - key: buy";
    let old = with("- key: buy", sells);
    assert!(messages(&old, &with("1.0.0", "1.1.0")).contains("the function \"sell\" was removed"));
    assert_eq!(messages(&old, &with("1.0.0", "2.0.0")), "");
    let marked = old.replace("- key: sell", "- key: sell\n    markForRemoval: true");
    assert_eq!(messages(&marked, &with("1.0.0", "1.1.0")), "");
    // Below 1.0.0 a minor version may break compatibility.
    let early = old.replace("1.0.0", "0.1.0");
    assert_eq!(messages(&early, &with("1.0.0", "0.2.0")), "");
    assert!(messages(&early, &with("1.0.0", "0.1.1")).contains("was removed"));
}
