//! Lists and the catalogue.

use super::{super::*, *};

fn paging(after: Option<String>, limit: usize) -> Paging {
    Paging { after, limit: Some(limit) }
}

async fn filled() -> Registry {
    let registry = registry().await;
    for (name, about) in [
        ("alpha", "{description: Says Hello, tags: [one], labels: {team: x}}"),
        ("alpine", "{tags: [one, two], labels: {team: y}}"),
        ("beta", "{description: says nothing, labels: {team: x, tier: '1'}}"),
    ] {
        publish(&registry, &package(name, "1.0.0", &format!("metadata: {about}"))).await.unwrap();
    }
    registry
}

#[tokio::test]
async fn finds_packages_by_filter() {
    let registry = filled().await;
    let found = |filter: Filter| -> Vec<String> {
        let page = registry.list(&filter, &Paging::default()).unwrap();
        page.items.into_iter().map(|it| it.name).collect()
    };
    let any = Filter::default;
    assert_eq!(found(any()), ["alpha", "alpine", "beta"]);
    assert_eq!(found(Filter { prefix: Some("alp".into()), ..any() }), ["alpha", "alpine"]);
    assert_eq!(found(Filter { package: Some("alp".into()), ..any() }), [""; 0]);
    assert_eq!(found(Filter { package: Some("beta".into()), ..any() }), ["beta"]);
    let both = Filter { package: Some("beta".into()), prefix: Some("alp".into()), ..any() };
    assert_eq!(found(both), [""; 0]);
    assert_eq!(found(Filter { version: Some("9.9.9".into()), ..any() }), [""; 0]);
    assert_eq!(found(Filter { version: Some("1.0.0".into()), ..any() }).len(), 3);
    assert_eq!(found(Filter { tags: vec!["one".into(), "two".into()], ..any() }), ["alpine"]);
    assert_eq!(found(Filter { labels: labels("team=x").unwrap(), ..any() }), ["alpha", "beta"]);
    assert_eq!(found(Filter { labels: labels("team = x, tier").unwrap(), ..any() }), ["beta"]);
    assert_eq!(found(Filter { text: Some("SAYS hello".into()), ..any() }), ["alpha"]);
    assert_eq!(reason(&labels("=x").unwrap_err()), "labels");
}

#[tokio::test]
async fn packages_are_found_by_their_latest_version() {
    let registry = filled().await;
    let found = |tag: &str, team: &str| -> Vec<String> {
        let labels = labels(&format!("team={team}")).unwrap();
        let filter = Filter { tags: vec![tag.into()], labels, ..Filter::default() };
        let page = registry.list(&filter, &Paging::default()).unwrap();
        page.items.into_iter().map(|it| it.name).collect()
    };
    assert_eq!(found("one", "y"), ["alpine"]);
    let newer = package("alpine", "2.0.0", "metadata: {tags: [three], labels: {team: z}}");
    publish(&registry, &newer).await.unwrap();
    assert_eq!((found("one", "y"), found("three", "z")), (vec![], vec!["alpine".to_owned()]));
    registry.delete_version("alpine", "2.0.0", None).await.unwrap();
    assert_eq!((found("one", "y"), found("three", "z")), (vec!["alpine".to_owned()], vec![]));
    registry.delete_package("alpine", None).await.unwrap();
    assert_eq!(found("one", "y"), [""; 0]);
}

#[tokio::test]
async fn pages_are_complete_and_disjoint() {
    let registry = filled().await;
    let mut after = None;
    let mut names = Vec::new();
    loop {
        let page = registry.list(&Filter::default(), &paging(after, 1)).unwrap();
        names.extend(page.items.into_iter().map(|it| it.name));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(names, ["alpha", "alpine", "beta"]);
    let mut after = None;
    let mut classes = Vec::new();
    loop {
        let page = registry.classes(&Filter::default(), &paging(after, 2)).unwrap();
        classes.extend(page.items.into_iter().map(|it| format!("{}.{}", it.package, it.key)));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(classes, ["alpha.Greeter", "alpine.Greeter", "beta.Greeter"]);
    for wrong in [paging(None, 0), paging(None, 501)] {
        assert_eq!(reason(&registry.list(&Filter::default(), &wrong).unwrap_err()), "limit");
    }
    let wrong = paging(Some("x".into()), 1);
    assert_eq!(reason(&registry.functions(&Filter::default(), &wrong).unwrap_err()), "cursor");
}

#[tokio::test]
async fn catalogue_lists_the_latest_version() {
    let registry = filled().await;
    let newer = package("beta", "1.1.0", "").replace("image: greet", "image: newer");
    publish(&registry, &newer).await.unwrap();
    let filter = Filter { package: Some("beta".into()), ..Filter::default() };
    let functions = |filter: &Filter| registry.functions(filter, &Paging::default()).unwrap().items;
    let [function] = &functions(&filter)[..] else { panic!() };
    assert_eq!((function.version.as_str(), function.image.as_deref()), ("1.1.0", Some("newer")));
    assert_eq!(function.classes, ["Greeter"]);
    assert_eq!(function.kind, "TASK");
    let former = Filter { version: Some("1.0.0".into()), ..filter.clone() };
    assert_eq!(functions(&former)[0].image.as_deref(), Some("greet"));
    for other in [
        Filter { tags: vec!["none".into()], ..former.clone() },
        Filter { prefix: Some("alp".into()), ..former.clone() },
    ] {
        assert!(functions(&other).is_empty(), "{other:?}");
    }
    registry.deprecate("beta", "1.1.0", Some("no"), None).await.unwrap();
    assert_eq!(functions(&filter)[0].version, "1.0.0");
    let classes = registry.classes(&filter, &Paging::default()).unwrap().items;
    assert_eq!(classes[0].lineage, ["beta.Greeter"]);
    assert_eq!(classes[0].functions[0].access, "INTERNAL");
    let sought = Filter { text: Some("NEWER".into()), ..Filter::default() };
    assert!(functions(&sought).is_empty());
    let nameless = Filter { version: Some("1.0.0".into()), ..Filter::default() };
    let error = registry.classes(&nameless, &Paging::default()).unwrap_err();
    assert_eq!(reason(&error), "version");
}

#[tokio::test]
async fn catalogue_includes_descriptions() {
    let registry = registry().await;
    let text = "
name: a
version: 1.0.0
functions:
  - key: make
    name: Maker
    provision: {docker: {image: make}}
    outputCls: Thing
    variableDescriptions: [{name: SIZE, description: how big}]
  - key: both
    type: MACRO
    macro: {steps: [{function: make, as: one}, {function: make, target: one}]}
classes:
  - key: Base
    stateSpec: {keySpecs: [{name: id, type: STRING}, {name: size, type: INTEGER, optional: true}]}
    refSpec: [{name: next, class: Thing}]
    functions: [{name: make, function: make}]
  - key: Thing
    parents: [Base]
    functions: [{name: both, function: both}]
";
    publish(&registry, text).await.unwrap();
    let classes = registry.classes(&Filter::default(), &Paging::default()).unwrap().items;
    let thing = serde_json::to_value(&classes[1]).unwrap();
    let keys = serde_json::json!([
        {"name": "id", "type": "STRING", "optional": false},
        {"name": "size", "type": "INTEGER", "optional": true},
    ]);
    assert_eq!(thing["keySpecs"], keys);
    let references =
        serde_json::json!([{"name": "next", "class": "a.Thing", "access": "INTERNAL"}]);
    assert_eq!(thing["refSpec"], references);
    let functions = registry.functions(&Filter::default(), &Paging::default()).unwrap().items;
    let both = serde_json::to_value(&functions[0]).unwrap();
    assert_eq!(both["macro"]["steps"][1]["target"], "one");
    assert!(both.get("variableDescriptions").is_none() && both.get("outputCls").is_none());
    let make = serde_json::to_value(&functions[1]).unwrap();
    assert_eq!(
        (make["name"].as_str(), make["outputCls"].as_str()),
        (Some("Maker"), Some("a.Thing"))
    );
    assert_eq!(make["variableDescriptions"][0]["description"], "how big");
}
