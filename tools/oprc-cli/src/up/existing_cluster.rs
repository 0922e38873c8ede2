//! Installation into an existing cluster: CRM and PM run in it, and `oprc` reaches PM by port
//! forwarding.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::{
    ByteString,
    api::{apps::v1::Deployment, core::v1::Secret},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, ObjectMeta, PostParams},
    core::GroupVersionKind,
    discovery::{self, Scope},
    runtime::wait::await_condition,
};
use oprc_sandbox::documents;

use super::{
    Down, Up, install, save_context,
    token::{generate, token_file_line},
};
use crate::{
    connection::ConnectionArgs,
    contexts::{Context, Contexts, KubeconfigRef, Tunnel},
    error::{CliError, optional},
    files::write_private,
    kube::{self as cluster, with_timeout},
    output::{note, step},
};

/// Secret with the tokens of PM, and its key for the admin token.
const SECRET: &str = "oprc-pm-tokens";
const ADMIN_TOKEN: &str = "admin";
/// Group, version and kind.
const CLASS_RUNTIME: (&str, &str, &str) = ("oaas.io", "v1alpha1", "ClassRuntime");
/// Kinds that show that a namespace is in use.
const USER_KINDS: [(&str, &str, &str); 14] = [
    CLASS_RUNTIME,
    ("", "v1", "Pod"),
    ("", "v1", "Service"),
    ("", "v1", "ConfigMap"),
    ("", "v1", "Secret"),
    ("", "v1", "PersistentVolumeClaim"),
    ("", "v1", "ServiceAccount"),
    ("apps", "v1", "Deployment"),
    ("apps", "v1", "StatefulSet"),
    ("apps", "v1", "DaemonSet"),
    ("batch", "v1", "Job"),
    ("batch", "v1", "CronJob"),
    ("networking.k8s.io", "v1", "Ingress"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding"),
];
/// Objects per kind to inspect.
const SAMPLE_SIZE: u32 = 20;
const DELETION_TIMEOUT: Duration = Duration::from_mins(2);

pub(super) async fn up(command: &Up, kube: &str) -> Result<()> {
    let client = connect(command.kubeconfig.as_ref(), kube).await?;
    let images = command.images_with(&[]);
    let first = [install::CRDS, install::RBAC];
    step("Installing CRDs and RBAC", install::apply_manifests(&client, &first, images)).await?;
    let token = ensure_token(&client).await?;
    let programs = [install::CRM, install::PM];
    let manifests = install::apply_manifests(&client, &programs, images);
    step("Installing oprc-crm and oprc-pm", manifests).await?;
    for name in ["oprc-crm", "oprc-pm"] {
        let ready = install::wait_for_deployment(&client, name);
        step(&format!("Waiting for {name}"), ready).await?;
    }
    let kube = KubeconfigRef::of(command.kubeconfig.as_ref(), kube);
    let context = Context {
        token_file: Some(save_token(&command.name, &token)?),
        tunnel: Some(Tunnel {
            kube: kube.clone(),
            namespace: install::NAMESPACE.to_owned(),
            service: "oprc-pm".to_owned(),
        }),
        clusters: [("default".to_owned(), kube)].into(),
        ..Context::default()
    };
    save_context(&command.name, context)?;
    let client = ConnectionArgs::of_context(&command.name).client().await?;
    step("Connecting to oprc-pm", super::wait_for_pm(&client)).await
}

/// Fails at once if the cluster is unreachable.
async fn connect(kubeconfig: Option<&PathBuf>, kube: &str) -> Result<Client> {
    let client = cluster::open(kubeconfig, Some(kube)).await?;
    with_timeout(client.apiserver_version())
        .await
        .with_context(|| format!("connecting to cluster {kube}"))?;
    Ok(client)
}

/// Saved next to the configuration file.
fn save_token(context: &str, token: &str) -> Result<PathBuf> {
    let path = Contexts::path()?.with_file_name(format!("{context}.token"));
    write_private(&path, &format!("{token}\n"))?;
    Ok(path)
}

/// The admin token of PM, generated if there is none.
async fn ensure_token(client: &Client) -> Result<String> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), install::NAMESPACE);
    if let Some(found) = with_timeout(secrets.get_opt(SECRET)).await? {
        let token = found.data.unwrap_or_default().remove(ADMIN_TOKEN);
        let token = token.and_then(|token| String::from_utf8(token.0).ok());
        return token.with_context(|| {
            format!("Secret {SECRET} has no key {ADMIN_TOKEN:?}; delete it and run `oprc up` again")
        });
    }
    let token = generate()?;
    let data = [
        (ADMIN_TOKEN.to_owned(), ByteString(token.clone().into_bytes())),
        ("tokens".to_owned(), ByteString(token_file_line(&token).into_bytes())),
    ];
    let secret = Secret {
        metadata: ObjectMeta { name: Some(SECRET.to_owned()), ..ObjectMeta::default() },
        data: Some(data.into()),
        ..Secret::default()
    };
    with_timeout(secrets.create(&PostParams::default(), &secret)).await?;
    Ok(token)
}

/// Uninstalls everything; classes only with --classes.
pub(super) async fn down(command: &Down, kube: &str) -> Result<()> {
    let client = connect(command.kubeconfig.as_ref(), kube).await?;
    let every = ListParams::default();
    let classes = list(&client, CLASS_RUNTIME, None, &every).await?.len();
    let crm = Api::<Deployment>::namespaced(client.clone(), install::NAMESPACE);
    if command.classes && classes > 0 && with_timeout(crm.get_opt("oprc-crm")).await?.is_none() {
        bail!(CliError::InvalidInput(format!(
            "cannot delete {classes} classes because CRM is not installed; run `oprc up` first"
        )));
    }
    if command.classes {
        // PM first, as it would create classes again; then CRM deletes their workloads.
        step("Deleting oprc-pm", delete(&client, install::PM)).await?;
        step("Deleting classes and CRDs", delete(&client, install::CRDS)).await?;
    }
    for (name, manifest) in [("oprc-pm", install::PM), ("oprc-crm", install::CRM)] {
        step(&format!("Deleting {name}"), delete(&client, manifest)).await?;
    }
    let secrets: Api<Secret> = Api::namespaced(client.clone(), install::NAMESPACE);
    optional(with_timeout(secrets.delete(SECRET, &DeleteParams::default())).await)?;
    step("Deleting RBAC", delete(&client, install::RBAC)).await?;
    note(&format!("uninstalled from {kube}"));
    if !command.classes {
        note(&remaining(classes));
    }
    Ok(())
}

fn remaining(classes: usize) -> String {
    match classes {
        0 => "CRDs were kept; delete them with --classes".to_owned(),
        many => format!(
            "{many} classes keep running without a controller; to delete them, run `oprc up` again, \
             then `oprc down` with --classes"
        ),
    }
}

/// Deletes the objects of a manifest and waits until they are removed.
async fn delete(client: &Client, manifest: &str) -> Result<()> {
    for document in documents(manifest, &[])?.into_iter().rev() {
        let object: DynamicObject = serde_json::from_value(document)?;
        let kind = GroupVersionKind::try_from(&object.types.clone().unwrap_or_default())?;
        let name = object.name_any();
        if kind.kind == "Namespace" && is_in_use(client, &name).await? {
            note(&format!("namespace {name} kept because other objects use it"));
            continue;
        }
        let (resource, capabilities) = with_timeout(discovery::pinned_kind(client, &kind)).await?;
        let api: Api<DynamicObject> = match capabilities.scope {
            Scope::Cluster => Api::all_with(client.clone(), &resource),
            Scope::Namespaced => {
                let namespace = object.namespace().unwrap_or_else(|| "default".to_owned());
                Api::namespaced_with(client.clone(), &namespace, &resource)
            }
        };
        let deletion = with_timeout(api.delete(&name, &DeleteParams::foreground())).await;
        if optional(deletion)?.is_some() {
            let deleted =
                await_condition(api, &name, |left: Option<&DynamicObject>| left.is_none());
            let what = format!("deletion of {} {name}", kind.kind);
            oprc_sandbox::within(&what, DELETION_TIMEOUT, deleted).await?;
        }
    }
    Ok(())
}

/// Whether a namespace contains objects of others.
async fn is_in_use(client: &Client, namespace: &str) -> Result<bool> {
    let some = ListParams::default().limit(SAMPLE_SIZE);
    for kind in USER_KINDS {
        let left = list(client, kind, Some(namespace), &some).await?;
        if left.iter().any(|it| is_user_object(kind.2, it)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Excludes objects that Kubernetes creates in each namespace, and those with an owner.
fn is_user_object(kind: &str, object: &DynamicObject) -> bool {
    let name = object.name_any();
    let built_in = [("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")];
    // Garbage collection deletes owned objects, maybe a moment later.
    !built_in.contains(&(kind, &name)) && object.owner_references().is_empty()
}

/// Empty if the cluster doesn't have the kind.
async fn list(
    client: &Client,
    (group, version, kind): (&str, &str, &str),
    namespace: Option<&str>,
    which: &ListParams,
) -> Result<Vec<DynamicObject>> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let found = optional(with_timeout(api.list(which)).await)?;
    Ok(found.map(|it| it.items).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reports_remaining_classes() {
        assert!(remaining(0).contains("CRDs") && remaining(0).contains("--classes"));
        assert!(remaining(2).starts_with("2 classes keep running"), "{}", remaining(2));
    }

    #[test]
    fn ignores_built_in_and_owned_objects() {
        let object = |name: &str, owners: serde_json::Value| -> DynamicObject {
            let metadata = json!({"name": name, "ownerReferences": owners});
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        let owner = json!([{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1"}]);
        assert!(!is_user_object("ConfigMap", &object("kube-root-ca.crt", json!([]))));
        assert!(!is_user_object("ServiceAccount", &object("default", json!([]))));
        assert!(!is_user_object("Pod", &object("a", owner)));
        assert!(is_user_object("ConfigMap", &object("theirs", json!([]))));
        assert!(is_user_object("Secret", &object("default", json!([]))));
    }
}
