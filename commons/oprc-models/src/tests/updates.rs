//! What a new version may do to the one before.

use super::{package, with};
use crate::check_update;

fn told(old: &str, new: &str) -> String {
    match check_update(&package(old), &package(new)) {
        Ok(()) => String::new(),
        Err(faults) => faults.to_string(),
    }
}

#[test]
fn versions_go_up() {
    let old = with("1.0.0", "1.2.0");
    assert_eq!(told(&old, &with("1.0.0", "1.2.1")), "");
    assert!(told(&old, &with("1.0.0", "1.2.0")).contains("doesn't come after"));
    assert!(
        told(&old, &with("1.0.0", "1.2.1").replace("name: shop", "name: other")).contains("name:")
    );
}

#[test]
fn what_is_immutable_stays() {
    let old = with("- key: buy", "- key: buy\n    immutable: true");
    let next = |text: &str| text.replace("1.0.0", "2.0.0");
    assert_eq!(told(&old, &next(&old)), "");
    assert!(
        told(&old, &next(&old.replace("shop:1", "shop:2")))
            .contains("functions[0]: \"buy\" is immutable")
    );
    let gone =
        next(&old).replace("key: buy", "key: sell").replace("function: buy", "function: sell");
    assert!(told(&old, &gone).contains("the function \"buy\" is gone"));
    let old = with("function: buy", "function: buy\n        immutable: true");
    let other = next(&old).replace("        immutable: true", "        access: PUBLIC");
    assert!(told(&old, &other).contains("classes[0].functions[0]: \"buy\" is immutable"));
}

#[test]
fn what_is_frozen_only_thaws() {
    let old = with("- key: buy", "- key: buy\n    state: FROZEN");
    let next = old.replace("1.0.0", "1.1.0");
    assert_eq!(told(&old, &next.replace("FROZEN", "ENABLED")), "");
    assert!(told(&old, &next.replace("shop:1", "shop:2")).contains("is FROZEN"));
}

#[test]
fn what_goes_was_marked_or_the_version_breaks() {
    let sells = "- key: sell\n    provision: {docker: {image: a}}\n  - key: buy";
    let old = with("- key: buy", sells);
    assert!(told(&old, &with("1.0.0", "1.1.0")).contains("the function \"sell\" is gone"));
    assert_eq!(told(&old, &with("1.0.0", "2.0.0")), "");
    let marked = old.replace("- key: sell", "- key: sell\n    markForRemoval: true");
    assert_eq!(told(&marked, &with("1.0.0", "1.1.0")), "");
    // Below 1.0.0 the second number is the one that breaks.
    let early = old.replace("1.0.0", "0.1.0");
    assert_eq!(told(&early, &with("1.0.0", "0.2.0")), "");
    assert!(told(&early, &with("1.0.0", "0.1.1")).contains("is gone"));
}
