//! What CRM owns and somebody changes is back at once; what others own is left alone.

use std::time::{Duration, Instant};

use k8s_openapi::api::{
    apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler, core::v1::Service,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use oprc_crm::{
    crd::{ClassRuntimeStatus, Phase},
    kinds::{AUTOSCALER, DEPLOYMENT, Kind, SERVICE},
    names,
    reconcile::report::FOREIGN_AUTOSCALER,
};
use oprc_sandbox::within;
use oprc_tests::{
    Place,
    class::{AVAILABLE, all, available, degraded, deploy, hello, of, until, with_odgm},
    crm::{Crm, Options},
    serving::{exactly, follow, objects, with_crm},
};
use serde_json::{Value, json};

/// Who changes what isn't theirs.
const SOMEBODY: &str = "somebody";
/// How long what was changed may stay so.
const AT_ONCE: Duration = Duration::from_secs(1);

fn by_somebody() -> PostParams {
    PostParams { field_manager: Some(SOMEBODY.to_owned()), ..PostParams::default() }
}

fn version(object: &DynamicObject) -> String {
    object.metadata.resource_version.clone().unwrap()
}

/// Whether CRM has looked at an object of a class after everything that was done before: it heals
/// a label of it.
async fn crm_looks(place: &Place, kind: &Kind, name: &str) {
    let api = objects(place, kind);
    let spoiled = json!({"metadata": {"labels": {"oaas.io/component": "spoiled"}}});
    let params = PatchParams { field_manager: Some(SOMEBODY.to_owned()), ..PatchParams::default() };
    let spoiled = api.patch(name, &params, &Patch::Merge(&spoiled)).await.unwrap();
    let healed = |object: Option<&DynamicObject>| {
        object.is_some_and(|object| object.labels()["oaas.io/component"] == "function")
    };
    follow(&api, name, &version(&spoiled), "the label to be back", healed).await.unwrap();
}

/// The container of a function in its Deployment.
fn container(deployment: &DynamicObject) -> &Value {
    deployment.data.pointer("/spec/template/spec/containers/0").unwrap()
}

fn variable<'a>(deployment: &'a DynamicObject, name: &str) -> Option<&'a str> {
    let all = container(deployment)["env"].as_array().unwrap();
    all.iter().find(|one| one["name"] == name)?["value"].as_str()
}

#[tokio::test]
async fn what_others_add_stays_and_what_we_no_longer_want_goes() {
    with_crm(&Options::default(), async |place: &Place, crm: &Crm| {
        let mut spec = of(&[hello("greet")]);
        let own = hello("greet")["provision"]["env"][0].clone();
        let passing = json!({"name": "PASSING", "value": "yes"});
        spec["functions"][0]["provision"]["env"] = json!([own, passing]);
        deploy(&crm.client, "shared", &spec).await.unwrap();
        available(place, "shared").await;
        let name = names::function("shared", Some("greet"));

        let meta = json!({"labels": {"team": "a"}, "annotations": {"example.com/note": "kept"}});
        let theirs = [
            (SERVICE, json!({"metadata": meta})),
            (
                DEPLOYMENT,
                json!({
                    "metadata": meta,
                    "spec": {"template": {"spec": {"containers": [
                        {"name": "function", "env": [{"name": "THEIRS", "value": "yes"}]},
                    ]}}},
                }),
            ),
        ];
        for (kind, mut object) in theirs {
            object["apiVersion"] = json!(kind.api_version());
            object["kind"] = json!(kind.kind);
            let apply = PatchParams::apply(SOMEBODY);
            objects(place, &kind).patch(&name, &apply, &Patch::Apply(&object)).await.unwrap();
        }
        let kept = async |when: &str| {
            for kind in [SERVICE, DEPLOYMENT] {
                let object = objects(place, &kind).get(&name).await.unwrap();
                assert_eq!(object.labels()["team"], "a", "{when}");
                assert_eq!(object.annotations()["example.com/note"], "kept", "{when}");
                if kind == DEPLOYMENT {
                    assert_eq!(variable(&object, "THEIRS"), Some("yes"), "{when}");
                }
            }
        };
        for kind in [SERVICE, DEPLOYMENT] {
            crm_looks(place, &kind, &name).await;
        }
        kept("through a heal").await;
        let deployment = objects(place, &DEPLOYMENT).get(&name).await.unwrap();
        assert_eq!(variable(&deployment, "PASSING"), Some("yes"));

        spec["functions"][0]["provision"]["env"] = json!([own]);
        deploy(&crm.client, "shared", &spec).await.unwrap();
        available(place, "shared").await;
        kept("through an update").await;
        let deployment = objects(place, &DEPLOYMENT).get(&name).await.unwrap();
        assert_eq!(variable(&deployment, "PASSING"), None);
        assert_eq!(variable(&deployment, "DRAIN_MS"), Some("0"));
    })
    .await;
}

#[tokio::test]
async fn what_is_deleted_is_back() {
    with_crm(&Options::default(), async |place: &Place, crm: &Crm| {
        deploy(&crm.client, "whole", &of(&[hello("greet")])).await.unwrap();
        available(place, "whole").await;
        let name = names::function("whole", Some("greet"));
        for kind in [SERVICE, DEPLOYMENT] {
            let api = objects(place, &kind);
            let before = api.get(&name).await.unwrap();
            let begun = Instant::now();
            api.delete(&name, &DeleteParams::background()).await.unwrap();
            let anew = |object: Option<&DynamicObject>| {
                object.is_some_and(|object| object.metadata.uid != before.metadata.uid)
            };
            let what = format!("{kind} to be back");
            let back = follow(&api, &name, &version(&before), &what, anew).await.unwrap();
            let took = back.duration_since(begun);
            assert!(took <= AT_ONCE, "{kind} was back after {took:?}");
        }
        available(place, "whole").await;
        let expected = ["Deployment/whole--greet", "Pod/whole--greet", "Service/whole--greet"];
        exactly(place, "the same objects", &expected).await;
    })
    .await;
}

#[tokio::test]
async fn an_object_of_somebody_else_is_never_touched() {
    with_crm(&Options::default(), async |place: &Place, crm: &Crm| {
        let name = names::function("taken", Some("greet"));
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"app": "theirs"}},
            "spec": {"selector": {"app": "theirs"}, "ports": [{"port": 80}]},
        }))
        .unwrap();
        let services: Api<Service> = Api::namespaced(place.client.clone(), &place.namespace);
        let theirs = services.create(&by_somebody(), &service).await.unwrap();
        deploy(&crm.client, "taken", &of(&[hello("greet")])).await.unwrap();
        let status = degraded(place, "taken", "NameTaken").await;
        assert!(status.message.unwrap().contains(&format!("Service {name}")));
        // The rest is there, and CRM looks at it again and again.
        crm_looks(place, &DEPLOYMENT, &name).await;
        let status = degraded(place, "taken", "NameTaken").await;
        assert!(!status.resource_refs.iter().any(|it| it.kind == "Service"));
        let now = services.get(&name).await.unwrap();
        assert_eq!(now.resource_version(), theirs.resource_version());

        services.delete(&name, &DeleteParams::default()).await.unwrap();
        available(place, "taken").await;
        let ours = services.get(&name).await.unwrap();
        assert_ne!(ours.metadata.uid, theirs.metadata.uid);
        assert_eq!(ours.owner_references()[0].name, "taken");
    })
    .await;
}

fn has_foreign_autoscaler(status: &ClassRuntimeStatus) -> bool {
    status.phase == Phase::Available && status.holds(FOREIGN_AUTOSCALER)
}

async fn autoscalers(place: &Place) -> Vec<String> {
    all(place, &AUTOSCALER).await.iter().map(kube::ResourceExt::name_any).collect()
}

#[tokio::test]
async fn somebody_elses_autoscaler_has_the_replicas() {
    let options = Options::default().with("OPRC_CRM_FEATURES_HPA", "true");
    with_crm(&options, async |place: &Place, crm: &Crm| {
        let mut spec = of(&[hello("greet")]);
        spec["functions"][0]["provision"]["min_scale"] = json!(1);
        spec["functions"][0]["provision"]["max_scale"] = json!(3);
        deploy(&crm.client, "scaled", &spec).await.unwrap();
        available(place, "scaled").await;
        let name = names::function("scaled", Some("greet"));
        assert_eq!(autoscalers(place).await, [name.as_str()]);

        // Its own controller would bring two replicas, too.
        let theirs: HorizontalPodAutoscaler = serde_json::from_value(json!({
            "metadata": {"name": "theirs"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "minReplicas": 2,
                "maxReplicas": 4,
            },
        }))
        .unwrap();
        let scalers: Api<HorizontalPodAutoscaler> =
            Api::namespaced(place.client.clone(), &place.namespace);
        scalers.create(&by_somebody(), &theirs).await.unwrap();
        let what = "the autoscaler to be seen";
        until(place, "scaled", what, AVAILABLE, has_foreign_autoscaler).await;
        let gone =
            await_condition(scalers.clone(), &name, |it: Option<&HorizontalPodAutoscaler>| {
                it.is_none()
            });
        within("our autoscaler to be gone", AVAILABLE, gone).await.unwrap();

        let deployments: Api<Deployment> = Api::namespaced(place.client.clone(), &place.namespace);
        let two = json!({"spec": {"replicas": 2}});
        let params =
            PatchParams { field_manager: Some(SOMEBODY.to_owned()), ..PatchParams::default() };
        deployments.patch_scale(&name, &params, &Patch::Merge(&two)).await.unwrap();
        crm_looks(place, &DEPLOYMENT, &name).await;
        let replicas = async || deployments.get(&name).await.unwrap().spec.unwrap().replicas;
        assert_eq!(replicas().await, Some(2));

        let colour = json!({"name": "COLOUR", "value": "green"});
        spec["functions"][0]["provision"]["env"].as_array_mut().unwrap().push(colour);
        deploy(&crm.client, "scaled", &spec).await.unwrap();
        let what = "the update to be Available";
        until(place, "scaled", what, AVAILABLE, has_foreign_autoscaler).await;
        assert_eq!(replicas().await, Some(2));
        assert_eq!(autoscalers(place).await, ["theirs"]);

        scalers.delete("theirs", &DeleteParams::default()).await.unwrap();
        let ours =
            await_condition(scalers, &name, |it: Option<&HorizontalPodAutoscaler>| it.is_some());
        within("our autoscaler to be back", AVAILABLE, ours).await.unwrap();
        let alone = |status: &ClassRuntimeStatus| {
            status.phase == Phase::Available && !status.holds(FOREIGN_AUTOSCALER)
        };
        until(place, "scaled", "nobody else to scale it", AVAILABLE, alone).await;
        // Ours begins with what it finds.
        assert_eq!(replicas().await, Some(2));
    })
    .await;
}

mod proof {
    //! Each field that we own, in each way that it can be changed.

    use oprc_tests::proof;
    use serde_json::Map;

    use super::*;

    /// How a field is changed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Way {
        /// As by `kubectl edit`.
        Edit,
        /// As by `kubectl edit`, and away.
        Remove,
        /// By a server-side apply of that field alone, with force.
        Apply,
    }

    /// A field that we own.
    #[derive(Clone, Debug)]
    struct Leaf {
        kind: Kind,
        name: String,
        /// Steps in the API server's notation, such as `f:spec`.
        path: Vec<String>,
    }

    impl std::fmt::Display for Leaf {
        fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(formatter, "{} {} {}", self.kind, self.name, self.path.join(" "))
        }
    }

    /// What the element of a list is known by.
    fn keys(step: &str) -> Option<Map<String, Value>> {
        serde_json::from_str(step.strip_prefix("k:")?).ok()
    }

    fn is_element(item: &Value, keys: &Map<String, Value>) -> bool {
        keys.iter().all(|(name, value)| item.get(name) == Some(value))
    }

    impl Leaf {
        /// What stands there.
        fn of<'a>(&self, object: &'a Value) -> Option<&'a Value> {
            self.path.iter().try_fold(object, |at, step| match step.strip_prefix("f:") {
                Some(name) => at.get(name),
                None => at.as_array()?.iter().find(|item| is_element(item, &keys(step).unwrap())),
            })
        }

        /// Puts something there, or nothing.
        fn put(&self, object: &mut Value, value: Option<Value>) {
            let (last, above) = self.path.split_last().unwrap();
            let parent = above.iter().fold(object, |at, step| match step.strip_prefix("f:") {
                Some(name) => &mut at[name],
                None => {
                    let keys = keys(step).unwrap();
                    let items = at.as_array_mut().unwrap();
                    items.iter_mut().find(|item| is_element(item, &keys)).unwrap()
                }
            });
            match (last.strip_prefix("f:"), value) {
                (Some(name), Some(value)) => parent[name] = value,
                (Some(name), None) => drop(parent.as_object_mut().unwrap().remove(name)),
                (None, value) => {
                    let keys = keys(last).unwrap();
                    let items = parent.as_array_mut().unwrap();
                    items.retain(|item| !is_element(item, &keys));
                    items.extend(value);
                }
            }
        }

        /// An object with nothing but that, as it is applied.
        fn alone(&self, value: Value) -> Value {
            let mut object =
                self.path.iter().rev().fold(value, |below, step| match step.strip_prefix("f:") {
                    Some(name) => json!({name: below}),
                    None => {
                        let mut item = keys(step).unwrap();
                        item.extend(below.as_object().unwrap().clone());
                        json!([item])
                    }
                });
            object["apiVersion"] = json!(self.kind.api_version());
            object["kind"] = json!(self.kind.kind);
            object
        }

        /// What an element is known by isn't a field: with another it would be another element.
        fn is_key(&self) -> bool {
            let [.., above, last] = self.path.as_slice() else { return false };
            let name = last.strip_prefix("f:");
            keys(above).is_some_and(|keys| name.is_some_and(|name| keys.contains_key(name)))
        }

        /// What makes an object one of ours, so that without it it is somebody else's.
        fn is_owner(&self) -> bool {
            self.path.iter().any(|step| step == "f:ownerReferences")
        }
    }

    fn collect(set: &Value, leaf: &Leaf, into: &mut Vec<Leaf>) {
        let below = set.as_object().into_iter().flatten().filter(|(key, _)| *key != ".");
        let mut any = false;
        for (step, set) in below {
            any = true;
            let mut deeper = leaf.clone();
            deeper.path.push(step.clone());
            collect(set, &deeper, into);
        }
        if !any {
            into.push(leaf.clone());
        }
    }

    /// All fields of an object that CRM owns.
    fn owned(kind: &Kind, object: &DynamicObject) -> Vec<Leaf> {
        let ours = object.managed_fields().iter().find(|entry| {
            entry.manager.as_deref() == Some("oprc-crm")
                && entry.operation.as_deref() == Some("Apply")
        });
        let fields = &ours.unwrap().fields_v1.as_ref().unwrap().0;
        let whole = Leaf { kind: kind.clone(), name: object.name_any(), path: Vec::new() };
        let mut all = Vec::new();
        collect(fields, &whole, &mut all);
        all.retain(|leaf| !leaf.is_key());
        all
    }

    /// Other values of the same type, of which the API server may like one.
    fn others(leaf: &Leaf, value: &Value) -> Vec<Value> {
        match value {
            // What isn't an amount at all can't even be read.
            Value::String(_) if leaf.path.iter().any(|step| step == "f:resources") => {
                vec![json!("11m"), json!("17Mi")]
            }
            Value::String(text) => {
                let words =
                    ["26%", "IfNotPresent", "Unconfined", "HTTPS", "Recreate", "RollingUpdate"];
                let longer = format!("{text}x");
                std::iter::once(longer.as_str()).chain(words).map(|word| json!(word)).collect()
            }
            Value::Number(number) => {
                let number = number.as_i64().unwrap();
                vec![json!(number + 1), json!((number - 1).max(0))]
            }
            Value::Bool(flag) => vec![json!(!flag)],
            Value::Array(items) => {
                let mut more = items.clone();
                more.extend(items.first().map(|_| json!("NET_RAW")));
                vec![Value::Array(more), json!([])]
            }
            Value::Object(map) => {
                let fields = ["blockOwnerDeletion", "fieldPath", "app"];
                let one = fields.iter().find(|field| map.contains_key(**field));
                let Some(field) = one else { return Vec::new() };
                let below = if *field == "fieldPath" {
                    vec![json!("metadata.namespace")]
                } else {
                    others(leaf, &map[*field])
                };
                let with = |value: Value| {
                    let mut map = map.clone();
                    map.insert((*field).to_owned(), value);
                    Value::Object(map)
                };
                below.into_iter().map(with).collect()
            }
            Value::Null => Vec::new(),
        }
    }

    /// Changes a field, and gives the object that it became, and when that was asked for.
    async fn change(
        api: &Api<DynamicObject>,
        leaf: &Leaf,
        way: Way,
        value: Option<&Value>,
    ) -> Result<(DynamicObject, Instant), kube::Error> {
        if way == Way::Apply {
            let object = leaf.alone(value.unwrap().clone());
            let params = PatchParams::apply(SOMEBODY).force();
            let begun = Instant::now();
            let changed = api.patch(&leaf.name, &params, &Patch::Apply(&object)).await?;
            return Ok((changed, begun));
        }
        loop {
            let mut object = serde_json::to_value(api.get(&leaf.name).await?).unwrap();
            leaf.put(&mut object, value.cloned());
            let object = serde_json::from_value(object).unwrap();
            let begun = Instant::now();
            match api.replace(&leaf.name, &by_somebody(), &object).await {
                // Its controller wrote the status in between.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                done => return done.map(|changed| (changed, begun)),
            }
        }
    }

    /// What came of a change.
    enum Outcome {
        Healed(Duration),
        /// It wasn't put back.
        Kept(String),
        /// Nobody can make such a change.
        Refused,
        /// It is the same with and without.
        Nothing,
    }

    /// Makes an object what it was, so that others of its fields can be tried.
    async fn restore(api: &Api<DynamicObject>, name: &str, before: &Value) {
        let mut object: DynamicObject = serde_json::from_value(before.clone()).unwrap();
        object.metadata.resource_version = None;
        object.metadata.managed_fields = None;
        api.replace(name, &by_somebody(), &object).await.unwrap();
    }

    async fn heals(place: &Place, leaf: &Leaf, way: Way) -> Outcome {
        let api = objects(place, &leaf.kind);
        let before = serde_json::to_value(api.get(&leaf.name).await.unwrap()).unwrap();
        let ours = leaf.of(&before).unwrap_or_else(|| panic!("{leaf} isn't there"));
        let values = match way {
            Way::Remove => vec![None],
            Way::Edit | Way::Apply => others(leaf, ours).into_iter().map(Some).collect(),
        };
        let mut refused = false;
        for value in values {
            let (changed, begun) = match change(&api, leaf, way, value.as_ref()).await {
                Ok(changed) => changed,
                Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => {
                    refused = true;
                    continue;
                }
                Err(error) => panic!("{leaf} {way:?}: {error}"),
            };
            let since = version(&changed);
            if leaf.of(&serde_json::to_value(changed).unwrap()) == Some(ours) {
                continue;
            }
            let back = |object: Option<&DynamicObject>| {
                let object = object.map(|object| serde_json::to_value(object).unwrap());
                object.is_some_and(|object| leaf.of(&object) == Some(ours))
            };
            let what = format!("{leaf} ({way:?}, {value:?}) to be {ours}");
            return match follow(&api, &leaf.name, &since, &what, back).await {
                Ok(then) => Outcome::Healed(then.duration_since(begun)),
                Err(error) => {
                    restore(&api, &leaf.name, &before).await;
                    Outcome::Kept(error.to_string())
                }
            };
        }
        if refused { Outcome::Refused } else { Outcome::Nothing }
    }

    /// Holds rollouts of a Deployment, or lets them go on: one field that CRM doesn't own. Otherwise
    /// each change would have its node make and end pods.
    async fn pause(place: &Place, deployment: &str, paused: bool) {
        let hold = json!({"spec": {"paused": paused}});
        let params =
            PatchParams { field_manager: Some("pause".to_owned()), ..PatchParams::default() };
        objects(place, &DEPLOYMENT).patch(deployment, &params, &Patch::Merge(&hold)).await.unwrap();
    }

    /// The same order each time.
    fn shuffle<T>(items: &mut [T]) {
        let mut seed = 1_u64;
        for at in (1..items.len()).rev() {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let other = (seed >> 33) % (at as u64 + 1);
            items.swap(at, usize::try_from(other).unwrap());
        }
    }

    /// What is to be of an object, whoever said so.
    async fn wanted(place: &Place, kind: &Kind, name: &str) -> Value {
        let object = objects(place, kind).get(name).await.unwrap();
        json!([
            object.labels(),
            object.annotations().get("oaas.io/deployment-id"),
            object.owner_references(),
            object.data["spec"]
        ])
    }

    #[tokio::test]
    async fn every_field_that_we_own_is_back_within_a_second() {
        with_crm(&Options::default(), async |place: &Place, crm: &Crm| {
            deploy(&crm.client, "healed", &with_odgm(&[hello("greet")])).await.unwrap();
            available(place, "healed").await;
            let function = names::function("healed", Some("greet"));
            let children = [
                (SERVICE, function.clone()),
                (DEPLOYMENT, function),
                (SERVICE, names::odgm_service("healed")),
                (DEPLOYMENT, names::odgm("healed")),
            ];
            let (mut changes, mut before) = (Vec::new(), Vec::new());
            for (kind, name) in &children {
                if *kind == DEPLOYMENT {
                    pause(place, name, true).await;
                }
                let object = objects(place, kind).get(name).await.unwrap();
                for leaf in owned(kind, &object) {
                    let ways: &[Way] = if leaf.is_owner() {
                        &[Way::Edit, Way::Apply]
                    } else {
                        &[Way::Edit, Way::Remove, Way::Apply]
                    };
                    changes.extend(ways.iter().map(|way| (leaf.clone(), *way)));
                }
                before.push(wanted(place, kind, name).await);
            }
            let proof = proof::begin("fields of children changed by hand", 30, changes.len());
            shuffle(&mut changes);
            changes.truncate(proof.rounds);
            let at = |leaf: &Leaf| {
                let fits = |(kind, name): &(Kind, String)| *kind == leaf.kind && *name == leaf.name;
                children.iter().position(fits)
            };
            changes.sort_by_key(|(leaf, _)| at(leaf));

            let (mut took, mut refused, mut kept) = (Vec::new(), Vec::new(), Vec::new());
            let mut nothing = 0_usize;
            for (leaf, way) in &changes {
                match heals(place, leaf, *way).await {
                    Outcome::Healed(time) => took.push((time, format!("{leaf} ({way:?})"))),
                    Outcome::Kept(error) => kept.push(error),
                    Outcome::Refused => refused.push(format!("{leaf} ({way:?})")),
                    Outcome::Nothing => nothing += 1,
                }
            }
            took.sort();
            for (time, what) in took.iter().rev().take(5) {
                println!("{time:?} {what}");
            }
            println!("refused: {refused:#?}");
            let p99 = took[(took.len() - 1) * 99 / 100].0;
            let (most, what) = took.last().unwrap();
            let seen = format!(
                "{} changes put back, 99 % within {} ms, all within {} ms; {} can't be made, {nothing} change nothing",
                took.len(),
                p99.as_millis(),
                most.as_millis(),
                refused.len()
            );
            println!("{seen}");
            assert!(kept.is_empty(), "{} weren't put back: {kept:#?}", kept.len());
            assert!(*most <= AT_ONCE, "{what} was back after {most:?}");
            assert!(took.len() * 2 > changes.len(), "{seen}");

            for ((kind, name), before) in children.iter().zip(before) {
                assert_eq!(wanted(place, kind, name).await, before, "{kind} {name}");
                if *kind == DEPLOYMENT {
                    pause(place, name, false).await;
                }
            }
            available(place, "healed").await;
            proof.held(&seen);
        })
        .await;
    }
}
