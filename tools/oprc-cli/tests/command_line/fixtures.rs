//! Responses with a value in every field.

use serde_json::{Value, json};

use crate::fake_pm::Responses;

pub(crate) fn all() -> Responses {
    let list = |items: Value| json!({"items": items});
    let deployment = deployment(&status());
    let mut plan = plan();
    plan["units"][0]["spec"]["resource_allocation"]["replication_factor"] = json!(3);
    let events = "id: 02\ndata: {\"at\":\"2026-11-16T12:00:00Z\",\"type\":\"deployment.condition\",\
                  \"subject\":\"counter\",\"condition\":\"RUNNING\",\"message\":\"all units are available\",\
                  \"correlationId\":\"c1\"}\n\n";
    [
        ("GET /health/live", json!({})),
        ("GET /health/ready", json!({})),
        ("GET /api/v1/packages", list(json!([package()]))),
        (
            "POST /api/v1/packages",
            json!([
                {"name": "counter", "version": "0.1.0", "unchanged": true}
            ]),
        ),
        ("POST /api/v1/validate", json!({})),
        ("GET /api/v1/packages/counter", package()),
        ("GET /api/v1/packages/counter/versions/0.1.0", version()),
        ("GET /api/v1/classes", list(json!([class()]))),
        ("GET /api/v1/functions", list(json!([function()]))),
        ("POST /api/v1/plan", plan),
        ("GET /api/v1/deployments", list(json!([deployment]))),
        ("GET /api/v1/deployments/counter", deployment.clone()),
        ("PUT /api/v1/deployments/counter", deployment.clone()),
        ("POST /api/v1/deployments/counter/rollback", deployment.clone()),
        ("GET /api/v1/deployments/counter/status", status()),
        ("GET /api/v1/deployments/counter/grid", list(json!([grid()]))),
        (
            "GET /api/v1/deployments/counter/history",
            list(json!([{
                "revision": "01", "at": "2026-11-16T11:00:00Z", "by": "ann", "cause": "created",
                "version": "0.1.0", "deployment": deployment["deployment"], "outcome": "RUNNING",
            }])),
        ),
        ("GET /api/v1/clusters", list(json!([cluster()]))),
        ("GET /api/v1/clusters/east", cluster()),
        (
            "GET /api/v1/orphans",
            list(json!([{
                "id": "lost.Counter..east", "cluster": "east", "packageName": "counter",
                "packageVersion": "0.1.0", "environment": "dev", "status": "ACTIVE",
                "ownership": "orphan", "deployment": "lost", "unit": status()["units"][0],
                "details": {"generation": 3},
            }])),
        ),
        ("GET /api/v1/class-runtimes", list(json!([class_runtime()]))),
        ("GET /api/v1/class-runtimes/counter.Counter..east", class_runtime()),
        ("GET /api/v1/events", json!(events)),
    ]
    .map(|(request, response)| (request.to_owned(), response))
    .into()
}

fn package() -> Value {
    json!({
        "name": "counter", "latest": "0.1.0", "description": "Counters.", "tags": ["example"],
        "labels": {"team": "geometry"}, "classes": ["Counter"],
        "versions": [{
            "version": "0.1.0", "publishedAt": "2026-11-16T10:00:00Z", "deprecated": "use another"
        }],
    })
}

fn version() -> Value {
    json!({
        "digest": "sha256:00", "publishedAt": "2026-11-16T10:00:00Z", "publishedBy": "ann",
        "deprecated": "use another", "resolved": {"base": "1.2.3"},
        "package": {
            "name": "counter", "version": "0.1.0",
            "metadata": {"description": "Counters.", "tags": ["example"]},
            "functions": [{
                "key": "increment",
                "provision": {"deployment": {"image": "example.org/fn:1", "minScale": 1}},
                "config": {"timeout": 2000, "env": {"STEP": "1"}},
            }],
            "classes": [{
                "key": "Counter",
                "stateSpec": {"keySpecs": [{"name": "value", "type": "INTEGER"}]},
                "functions": [{"name": "increment", "function": "increment", "access": "PUBLIC"}],
            }],
            "deployments": [{"key": "counter", "class": "Counter", "partitionCount": 4}],
        },
    })
}

fn class() -> Value {
    json!({
        "package": "counter", "version": "0.1.0", "key": "Counter", "name": "A counter",
        "description": "Counts.", "lineage": ["counter.Counter", "base.Thing"], "stateful": true,
        "disabled": true, "keySpecs": [{"name": "value", "type": "INTEGER", "optional": true}],
        "refSpec": [{"name": "next", "class": "counter.Counter", "access": "PUBLIC"}],
        "functions": [{
            "name": "increment", "function": "increment", "access": "PUBLIC", "defaultRoute": true
        }],
    })
}

fn function() -> Value {
    json!({
        "package": "counter", "version": "0.1.0", "key": "increment", "name": "Increment",
        "type": "TASK", "description": "Adds.", "image": "example.org/fn:1",
        "outputCls": "counter.Counter",
        "macro": {"steps": [{"function": "add", "as": "sum", "args": {"by": "1"}}], "output": "sum"},
        "variableDescriptions": [{"name": "STEP", "description": "Increment per call."}],
        "state": "ACTIVE", "classes": ["Counter"],
        "status": status()["units"][0]["functions"],
    })
}

fn plan() -> Value {
    json!({
        "deployment": "counter", "package": "counter", "version": "0.1.0",
        "units": [{
            "id": "counter.Counter..east", "cluster": "east", "environment": "dev",
            "namespace": "oaas-dev", "class": "Counter", "spec": {"resource_allocation": {"replication_factor": 2}},
            "reasons": [{"field": "replicas", "value": "2", "because": "availability requires 2"}],
        }],
        "reasons": [{"field": "clusters", "value": "east", "because": "the only one"}],
        "warnings": ["east is full"],
    })
}

fn deployment(status: &Value) -> Value {
    json!({
        "deployment": {
            "key": "counter", "package": "counter", "version": "0.1.0", "class": "Counter",
            "partitionCount": 4,
        },
        "revision": "02", "createdAt": "2026-11-16T11:00:00Z",
        "updatedAt": "2026-11-16T11:30:00Z", "updatedBy": "ann", "plan": plan(), "status": status,
    })
}

fn status() -> Value {
    json!({
        "condition": "RUNNING", "message": "all units are available", "revision": "02",
        "since": "2026-11-16T11:30:00Z", "available": 1, "unitsTotal": 1,
        "units": [{
            "id": "counter.Counter..east", "cluster": "east", "environment": "dev",
            "namespace": "oaas-dev", "class": "Counter", "condition": "RUNNING",
            "phase": "Available", "reason": "Ready", "message": "all functions respond",
            "template": "k8s_deployment", "current": true, "contact": "STALE",
            "since": "2026-11-16T11:31:00Z",
            "functions": [{
                "key": "increment", "unit": "counter.Counter..east", "cluster": "east",
                "condition": "RUNNING", "invocationUrl": "http://east.example/increment",
                "clusterUrl": "http://increment.oaas-dev.svc", "errorMsg": "slow",
                "odgmConnectionStatus": "Connected",
            }],
            "odgm": {
                "service": "http://odgm.oaas-dev.svc", "ready": true, "replicas": 2,
                "collections": ["counter.Counter"],
            },
        }],
    })
}

fn grid() -> Value {
    let node = |at: u32, status: &str| {
        json!({
            "id": format!("crm-dev-counter00{at}"), "address": format!("http://odgm-{at}:8081"),
            "status": status, "lastHeartbeat": "2026-11-16T12:00:00Z",
        })
    };
    json!({
        "id": "counter.Counter..east", "cluster": "east", "environment": "dev",
        "class": "Counter", "service": "http://odgm.oaas-dev.svc", "ready": true, "replicas": 2,
        "nodes": [node(0, "active"), node(1, "unreachable")], "leader": "crm-dev-counter000",
        "activeShards": 3, "totalShards": 4,
        "collections": [
            {"name": "counter.Counter", "partitions": 4, "activePartitions": 3, "objects": 7},
        ],
        "storeBytes": 1_887_436_800, "storeQuotaBytes": 2_147_483_648_u64, "lowOnSpace": true,
    })
}

fn class_runtime() -> Value {
    let at = "2026-11-16T12:00:00Z";
    let mut unit = status()["units"][0].clone();
    let recommendation = json!({
        "component": "increment", "dimension": "replicas", "target": 5.0, "basis": "p95 of 300 ms",
        "confidence": 0.9, "generation": 3, "min": 1.0, "max": 50.0, "since": at,
        "stopped": "more replicas have no effect",
    });
    unit["nfrObserved"] =
        json!({"measured": true, "reason": "Measured", "message": "all functions", "since": at});
    let memory = json!({
        "component": "increment", "dimension": "memory", "target": 134_217_728.0,
        "limit": 268_435_456.0, "since": at,
    });
    unit["nfrRecommendations"] = json!([recommendation, memory]);
    unit["oomKills"] =
        json!([{"function": "increment", "at": at, "count": 2, "limit": 134_217_728.0}]);
    unit["lastAppliedRecommendations"] = json!([recommendation]);
    unit["lastAppliedAt"] = json!(at);
    unit["nfrHistory"] = json!([{
        "at": at, "component": "increment", "dimension": "replicas", "from": 2.0, "to": 3.0,
        "basis": "p95 of 250 ms",
    }]);
    unit["functions"][0]["nfrCompliance"] = json!({
        "throughputActual": 41.5, "latencyP50": 80.0, "latencyP95": 300.0, "latencyP99": 400.0,
        "availabilityActual": 0.9995, "cpuCores": 1.25, "memoryBytes": 134_217_728.0,
        "instances": 3, "observedAt": at,
        "requirements": [{
            "requirement": "latency", "state": "violated", "since": at, "required": 200.0,
            "observed": 300.0, "reason": "NoData", "errorBudget": 0.5,
        }],
        "decisions": [{
            "dimension": "replicas", "mode": "enforce", "current": 3.0, "target": 5.0,
            "basis": "p95 of 300 ms", "waitsFor": "the cooldown of 120 s", "nextChangeAt": at,
        }],
        "samples": {
            "start": at, "stepSeconds": 15.0, "throughput": [10.0, null, 41.5],
            "latencyP95": [100.0, null, 300.0],
        },
    });
    json!({
        "id": "counter.Counter..east", "cluster": "east", "packageName": "counter",
        "packageVersion": "0.1.0", "environment": "dev", "status": "ACTIVE",
        "ownership": "managed", "deployment": "counter", "unit": unit,
        "details": {"generation": 3},
    })
}

fn cluster() -> Value {
    json!({
        "name": "east", "url": "http://crm.east", "default": true, "health": "HEALTHY",
        "message": "all units are available", "lastSeen": "2026-11-16T11:59:00Z", "nodes": 3, "readyNodes": 3,
        "availability": 0.99, "capabilities": {"knative": true, "odgm": true, "hpa": false},
        "capacity": {"cpu": "4"}, "templates": ["k8s_deployment"], "profile": "full", "units": 1,
    })
}
