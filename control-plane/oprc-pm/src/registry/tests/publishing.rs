//! Publishing, and the versions that dependencies resolve to.

use oprc_models::{OClassDeployment, VersionRange};

use super::*;

fn range(text: &str) -> VersionRange {
    text.parse().unwrap()
}

#[tokio::test]
async fn publishes_a_version_only_once() {
    let registry = registry().await;
    assert!(publish(&registry, &package("a", "1.0.0", "")).await.unwrap());
    // It is visible at once, and publishing it again changes nothing.
    let first = registry.version("a", "1.0.0").unwrap();
    assert_eq!(first.published_by.as_deref(), Some("ann"));
    assert!(!publish(&registry, &package("a", "1.0.0", "")).await.unwrap());
    assert_eq!(first, registry.version("a", "1.0.0").unwrap());
    let other = package("a", "1.0.0", "metadata: {description: other}");
    assert_eq!(reason(&publish(&registry, &other).await.unwrap_err()), "VERSION_EXISTS");
    assert_eq!(registry.count(), (1, 1));
}

#[tokio::test]
async fn publishes_all_of_a_file_or_nothing() {
    let registry = registry().await;
    let text =
        format!("{}---\n{}", package("a", "1.0.0", ""), depending("b", "1.0.0", &[("c", "*")]));
    let Error::Invalid(diagnostics) = publish(&registry, &text).await.unwrap_err() else {
        panic!()
    };
    assert_eq!(diagnostics.all.len(), 1);
    assert_eq!(diagnostics.all[0].path, "dependencies[0].name");
    assert!(diagnostics.all[0].location.as_ref().unwrap().line > 10, "{diagnostics}");
    assert_eq!(registry.count(), (0, 0));
    let text = format!("{}---\n{}", package("a", "1.0.0", ""), package("a", "1.0.0", ""));
    assert_eq!(reason(&publish(&registry, &text).await.unwrap_err()), "INVALID");
}

#[tokio::test]
async fn packages_of_one_file_may_depend_on_each_other_without_cycles() {
    let registry = registry().await;
    let text =
        format!("{}---\n{}", depending("a", "1.0.0", &[("b", "^1")]), package("b", "1.0.0", ""));
    publish(&registry, &text).await.unwrap();
    assert_eq!(registry.version("a", "1.0.0").unwrap().resolved["b"], "1.0.0");
    let back = publish(&registry, &depending("b", "1.1.0", &[("a", "*")])).await.unwrap_err();
    assert!(back.to_string().contains("b → a → b"), "{back}");
    let text = format!(
        "{}---\n{}",
        depending("x", "1.0.0", &[("y", "*")]),
        depending("y", "1.0.0", &[("x", "*")])
    );
    let circle = publish(&registry, &text).await.unwrap_err();
    assert!(circle.to_string().contains("depend on each other"), "{circle}");
}

#[tokio::test]
async fn prefers_the_newest_version_that_is_not_deprecated() {
    let registry = registry().await;
    for version in ["1.0.0", "1.2.0", "2.0.0", "2.1.0-rc.1"] {
        publish(&registry, &package("a", version, "")).await.unwrap();
    }
    let found = |requested: Option<&str>| {
        let found = registry.find("a", requested.map(range).as_ref()).unwrap();
        found.package.version.to_string()
    };
    assert_eq!(found(None), "2.0.0");
    assert_eq!(found(Some("^1")), "1.2.0");
    assert_eq!(found(Some("2.1.0-rc.1")), "2.1.0-rc.1");
    for version in ["1.2.0", "2.0.0"] {
        registry.deprecate("a", version, Some("wrong"), None).await.unwrap();
    }
    assert_eq!(found(Some("^1")), "1.0.0");
    assert_eq!(found(Some("^2")), "2.0.0");
    publish(&registry, &depending("b", "1.0.0", &[("a", "*")])).await.unwrap();
    assert_eq!(registry.version("b", "1.0.0").unwrap().resolved["a"], "1.0.0");
    registry.deprecate("a", "1.2.0", None, None).await.unwrap();
    assert_eq!(found(Some("^1")), "1.2.0");
    // A resolved dependency stays as it is.
    assert_eq!(registry.version("b", "1.0.0").unwrap().resolved["a"], "1.0.0");
    assert_eq!(reason(&registry.find("a", Some(&range("^3"))).unwrap_err()), "NOT_FOUND");
    assert_eq!(
        reason(&registry.deprecate("a", "1.2.0", Some(" "), None).await.unwrap_err()),
        "reason"
    );
    assert_eq!(
        reason(&registry.deprecate("a", "1.2.0", Some("x"), Some("no")).await.unwrap_err()),
        "CHANGED"
    );
}

#[tokio::test]
async fn classes_inherit_from_other_packages() {
    let registry = registry().await;
    publish(&registry, &package("a", "1.0.0", "")).await.unwrap();
    publish(&registry, &depending("b", "1.0.0", &[("a", "^1")])).await.unwrap();
    let text = "name: c\nversion: 1.0.0\ndependencies: [{name: b}, {name: a, version: ^1}]\n\
                classes: [{key: Child, parents: [a.Greeter]}]";
    publish(&registry, text).await.unwrap();
    let deployment = OClassDeployment { package: Some("c".into()), ..OClassDeployment::default() };
    let resolved = registry.package_of(&deployment, &[]).unwrap();
    assert_eq!(resolved.version.to_string(), "1.0.0");
    let class = resolved.class("Child").unwrap();
    assert_eq!(class.bindings[0].function, "a.greet");
    let again = registry.package_of(&deployment, &[]).unwrap();
    assert!(std::sync::Arc::ptr_eq(&resolved, &again));
}

#[tokio::test]
async fn checks_compatibility_with_neighbouring_versions() {
    let registry = registry().await;
    publish(&registry, &package("a", "1.0.0", "")).await.unwrap();
    let bare = "name: a\nversion: 1.1.0\nfunctions: [{key: other, type: LOGICAL}]";
    let gone = publish(&registry, bare).await.unwrap_err();
    assert!(
        gone.to_string().contains("marked for removal") || gone.to_string().contains("mark it"),
        "{gone}"
    );
    publish(&registry, &bare.replace("1.1.0", "2.0.0")).await.unwrap();
    publish(&registry, &package("a", "1.0.1", "")).await.unwrap();
    // The later version lacks what this one would declare immutable.
    let frozen = "name: a\nversion: 1.9.0\nfunctions:\n\
        - {key: greet, provision: {docker: {image: greet}}}\n\
        - {key: kept, type: LOGICAL, immutable: true}\n\
        classes: [{key: Greeter, functions: [{name: greet, function: greet}]}]";
    assert_eq!(reason(&publish(&registry, frozen).await.unwrap_err()), "LATER_VERSION");
}

#[tokio::test]
async fn concurrent_publications_all_succeed() {
    let registry = registry().await;
    publish(&registry, &package("base", "1.0.0", "")).await.unwrap();
    let all = (0..12).map(|at| {
        let registry = registry.clone();
        async move {
            // Half of them are versions of one package, and all write the head of the base.
            let name = if at % 2 == 0 { "one".to_owned() } else { format!("p{at}") };
            publish(&registry, &depending(&name, &format!("1.{at}.0"), &[("base", "*")])).await
        }
    });
    for result in futures::future::join_all(all).await {
        assert!(result.unwrap());
    }
    assert_eq!(registry.count(), (8, 13));
    assert_eq!(registry.versions("one").unwrap()[0].version, "1.10.0");
}

#[tokio::test]
async fn validates_a_file_without_publishing_it() {
    let registry = registry().await;
    let good = format!(
        "{}---\nkind: OClassDeployment\nkey: d\npackage: a\nclass: Greeter\n",
        package("a", "1.0.0", "")
    );
    assert_eq!(registry.validate(&file(&good)).unwrap()[0].name, "a");
    assert_eq!(registry.count(), (0, 0));
    let bad = good.replace("class: Greeter", "class: Nobody");
    assert_eq!(reason(&registry.validate(&file(&bad)).unwrap_err()), "INVALID");
    let unknown = good.replace("package: a", "package: b");
    assert_eq!(reason(&registry.validate(&file(&unknown)).unwrap_err()), "NOT_FOUND");
    publish(&registry, &good).await.unwrap();
    assert!(registry.validate(&file(&good)).unwrap()[0].unchanged);
}

#[tokio::test]
async fn publishes_the_examples() {
    let registry = registry().await;
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/packages");
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(publish(&registry, &text).await.unwrap());
        assert!(!publish(&registry, &text).await.unwrap());
    }
}

/// A plan made before publishing equals the one made after.
#[tokio::test]
async fn plans_with_a_file_as_if_it_were_published() {
    let deployment = |range: Option<&str>| OClassDeployment {
        package: Some("a".into()),
        version: range.map(|range| range.parse().unwrap()),
        ..OClassDeployment::default()
    };
    for (there, here) in
        [("1.0.0", "2.0.0-rc.1"), ("2.0.0-rc.1", "1.0.0"), ("1.0.0", "1.1.0"), ("1.1.0", "1.0.0")]
    {
        let registry = registry().await;
        publish(&registry, &package("a", there, "")).await.unwrap();
        let text = package("a", here, "");
        let documents = oprc_models::parse(&text, "a.yaml").unwrap();
        let deployments = [deployment(None), deployment(Some(">=1.0.0-a, <3"))];
        let of = |documents: &[oprc_models::Document]| -> Vec<String> {
            let of = deployments.iter().map(|it| registry.package_of(it, documents).unwrap());
            of.map(|it| it.version.to_string()).collect()
        };
        let before = of(&documents);
        publish(&registry, &text).await.unwrap();
        assert_eq!(before, of(&[]), "{there}, then {here}");
    }
}
