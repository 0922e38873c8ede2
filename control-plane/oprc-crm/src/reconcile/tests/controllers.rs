//! The cluster's own controllers.

use serde_json::{Value, json};

use super::cluster::{Cluster, Key, NAMESPACE};
use crate::kinds::{AUTOSCALER, CLAIM, DEPLOYMENT, JOB, KNATIVE_SERVICE, STATEFUL_SET};

/// A finalizer that nobody removes.
pub(super) const BLOCKED: &str = "test/blocked";

/// Whether the image never becomes ready.
fn is_broken(object: &Value) -> bool {
    let image = &object["spec"]["template"]["spec"]["containers"][0]["image"];
    image.as_str().is_some_and(|image| image.contains("broken"))
}

impl Cluster {
    /// Runs all controllers; returns whether anything changed.
    pub(super) fn run_controllers(&mut self) -> bool {
        let mut moved = false;
        for key in self.keys() {
            let Some(object) = self.object(&key).cloned() else { continue };
            if self.is_to_go(&key, &object) {
                self.remove(&key);
                moved = true;
            } else if key.0 == AUTOSCALER && !self.stopped.contains(&key.0) {
                moved |= self.scale(&object);
            }
        }
        for key in self.keys() {
            if self.stopped.contains(&key.0) {
                continue;
            }
            let Some(mut object) = self.object(&key).cloned() else { continue };
            if object["metadata"]["deletionTimestamp"].is_string() {
                continue;
            }
            if key.0 == STATEFUL_SET {
                moved |= self.create_claims(&object);
            }
            if let Some(status) = status(&key, &object) {
                object["status"] = status;
                moved |= self.put(&key, object);
            }
        }
        moved
    }

    /// Deleted, or its owner is.
    fn is_to_go(&self, key: &Key, object: &Value) -> bool {
        let meta = &object["metadata"];
        let blocked = meta["finalizers"].as_array().into_iter().flatten().any(|it| it == BLOCKED);
        let class = self.class_uid();
        let orphan =
            self.child(key).is_some_and(|it| it.owner.is_some() && it.owner.as_deref() != class);
        !blocked && (meta["deletionTimestamp"].is_string() || orphan)
    }

    /// Without load an autoscaler only keeps to its bounds.
    fn scale(&mut self, autoscaler: &Value) -> bool {
        let spec = &autoscaler["spec"];
        let name = spec["scaleTargetRef"]["name"].as_str().unwrap_or_default();
        let target = (DEPLOYMENT, name.to_owned());
        let replicas = self.object(&target).and_then(|it| it["spec"]["replicas"].as_i64());
        let (Some(replicas), Some(max)) = (replicas, spec["maxReplicas"].as_i64()) else {
            return false;
        };
        // Zero disables an autoscaler.
        if replicas == 0 {
            return false;
        }
        let min = spec["minReplicas"].as_i64().unwrap_or(1).min(max);
        let within = replicas.clamp(min, max);
        if within != replicas {
            self.edit(&target, "kube-controller-manager", |it| {
                it["spec"]["replicas"] = json!(within);
            });
        }
        within != replicas
    }

    fn create_claims(&mut self, set: &Value) -> bool {
        let Some(template) = set.pointer("/spec/volumeClaimTemplates/0") else { return false };
        let mut moved = false;
        for at in 0..set["spec"]["replicas"].as_i64().unwrap() {
            let prefix = template["metadata"]["name"].as_str().unwrap();
            let name = format!("{prefix}-{}-{at}", set["metadata"]["name"].as_str().unwrap());
            let key = (CLAIM, name.clone());
            if self.object(&key).is_none() {
                moved |= self.put(
                    &key,
                    json!({
                        "apiVersion": "v1", "kind": CLAIM.kind,
                        "metadata": {
                            "name": name, "namespace": NAMESPACE,
                            "labels": template["metadata"]["labels"],
                        },
                        "spec": template["spec"],
                        "status": {"phase": "Bound"},
                    }),
                );
            }
        }
        moved
    }
}

/// The status that a controller writes.
fn status(key: &Key, object: &Value) -> Option<Value> {
    let generation = &object["metadata"]["generation"];
    let replicas = &object["spec"]["replicas"];
    let broken = is_broken(object);
    if key.0 == DEPLOYMENT && broken {
        // Old pods keep running; new ones don't become ready.
        let before = object["status"]["availableReplicas"].as_i64().unwrap_or(0);
        return Some(json!({
            "observedGeneration": generation, "replicas": before + 1, "updatedReplicas": 1,
            "availableReplicas": before,
            "conditions": [{"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated"}],
        }));
    }
    if key.0 == DEPLOYMENT {
        return Some(json!({
            "observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas,
            "availableReplicas": replicas,
            "conditions": [
                {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
            ],
        }));
    }
    if key.0 == STATEFUL_SET {
        return Some(json!({
            "observedGeneration": generation, "replicas": replicas, "readyReplicas": replicas,
            "updatedReplicas": replicas, "availableReplicas": replicas,
            "currentRevision": "one", "updateRevision": "one",
        }));
    }
    if key.0 == KNATIVE_SERVICE {
        let name = &key.1;
        // Traffic stays with the latest revision that became ready.
        let mut before = object["status"]["conditions"].as_array().into_iter().flatten();
        let routed = before.any(|it| it["type"] == "RoutesReady" && it["status"] == "True");
        let condition = |of: &str, is_true: bool| json!({"type": of, "status": if is_true { "True" } else { "Unknown" }});
        return Some(json!({
            "observedGeneration": generation,
            "conditions": [
                condition("Ready", !broken), condition("RoutesReady", routed || !broken),
            ],
            "latestReadyRevisionName": format!("{name}-{:05}", generation.as_i64().unwrap_or(1)),
            "url": format!("http://{name}.{NAMESPACE}.example.com"),
            "address": {"url": format!("http://{name}.{NAMESPACE}.svc.cluster.local")},
        }));
    }
    (key.0 == JOB && !broken)
        .then(|| json!({"conditions": [{"type": "Complete", "status": "True"}]}))
}
