//! A cluster that is there already: CRM and the package manager run in it, and `oprc` reaches the
//! package manager through the cluster's API server.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result};
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
    Down, Up, install, keep,
    token::{line, private, secret},
};
use crate::{
    contexts::{Context, Contexts, Kube, Tunnel},
    failure::{Failure, is_missing},
    kube::{self as cluster, within},
    output::say,
    remote::Remote,
};

/// The secret with the package manager's tokens, and the one of them that is ours.
const SECRET: &str = "oprc-pm-tokens";
const TOKEN: &str = "admin";
/// The kind of classes, by group and version.
const CLASSES: (&str, &str, &str) = ("oaas.io", "v1alpha1", "ClassRuntime");
/// Kinds that people have in a namespace.
const KINDS: [(&str, &str, &str); 14] = [
    CLASSES,
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
/// As many as are looked at to find one that is somebody's.
const SOME: u32 = 20;
/// How long something may take to be gone.
const GONE: Duration = Duration::from_mins(2);

/// Brings everything up.
pub(super) async fn up(command: &Up, kube: &str) -> Result<()> {
    let client = reached(command.kubeconfig.as_ref(), kube).await?;
    let images = command.images_with(&[]);
    let first = [install::CRDS, install::RBAC];
    install::manifests(&client, &first, images).await?;
    let token = token(&client).await?;
    install::manifests(&client, &[install::CRM, install::PM], images).await?;
    install::ready(&client, "oprc-crm").await?;
    install::ready(&client, "oprc-pm").await?;
    let kube = Kube::of(command.kubeconfig.as_ref(), kube);
    let context = Context {
        token_file: Some(kept(&command.name, &token)?),
        tunnel: Some(Tunnel {
            kube: kube.clone(),
            namespace: install::NAMESPACE.to_owned(),
            service: "oprc-pm".to_owned(),
        }),
        clusters: [("default".to_owned(), kube)].into(),
        ..Context::default()
    };
    keep(&command.name, context)?;
    super::ready(&Remote::of_context(&command.name).client().await?).await
}

/// A client of a cluster that answers: one that doesn't is told before anything else goes wrong.
async fn reached(kubeconfig: Option<&PathBuf>, kube: &str) -> Result<Client> {
    let client = cluster::open(kubeconfig, Some(kube)).await?;
    within(client.apiserver_version()).await.with_context(|| format!("reaching {kube}"))?;
    Ok(client)
}

/// The file with the token, beside that of the contexts.
fn kept(context: &str, token: &str) -> Result<PathBuf> {
    let path = Contexts::path()?.with_file_name(format!("{context}.token"));
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    private(&path, &format!("{token}\n"))?;
    Ok(path)
}

/// The token of the package manager, made where there is none.
async fn token(client: &Client) -> Result<String> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), install::NAMESPACE);
    if let Some(found) = within(secrets.get_opt(SECRET)).await? {
        let token = found.data.unwrap_or_default().remove(TOKEN);
        let token = token.and_then(|token| String::from_utf8(token.0).ok());
        return token.with_context(|| format!("the secret {SECRET} has no {TOKEN:?}"));
    }
    let token = secret()?;
    let data = [
        (TOKEN.to_owned(), ByteString(token.clone().into_bytes())),
        ("tokens".to_owned(), ByteString(line(&token).into_bytes())),
    ];
    let secret = Secret {
        metadata: ObjectMeta { name: Some(SECRET.to_owned()), ..ObjectMeta::default() },
        data: Some(data.into()),
        ..Secret::default()
    };
    within(secrets.create(&PostParams::default(), &secret)).await?;
    Ok(token)
}

/// Takes everything away again; the classes, and what they run, only where that is said.
pub(super) async fn down(command: &Down, kube: &str) -> Result<()> {
    let client = reached(command.kubeconfig.as_ref(), kube).await?;
    let every = ListParams::default();
    let classes = objects(&client, CLASSES, None, &every).await?.len();
    let crm = Api::<Deployment>::namespaced(client.clone(), install::NAMESPACE);
    if command.classes && classes > 0 && within(crm.get_opt("oprc-crm")).await?.is_none() {
        let told = "classes are left, and no CRM that takes away what they run: `oprc up` first";
        return Err(Failure::Wrong(told.to_owned()).into());
    }
    if command.classes {
        // First, as the package manager would make them anew, and CRM takes away what is theirs.
        delete(&client, install::PM).await?;
        delete(&client, install::CRDS).await?;
    }
    for manifest in [install::PM, install::CRM] {
        delete(&client, manifest).await?;
    }
    let secrets: Api<Secret> = Api::namespaced(client.clone(), install::NAMESPACE);
    match within(secrets.delete(SECRET, &DeleteParams::default())).await {
        Err(error) if !is_missing(&error) => return Err(error),
        _ => {}
    }
    delete(&client, install::RBAC).await?;
    say(&format!("The package manager and CRM are out of {kube}."));
    if !command.classes {
        say(&left(classes));
    }
    Ok(())
}

/// What is said of classes that weren't to be taken away.
fn left(classes: usize) -> String {
    match classes {
        0 => "The definition of classes stays: --classes takes it away.".to_owned(),
        many => format!(
            "{many} class(es) go on running there, and nobody looks after them. \
             To take them away: `oprc up` again, then `oprc down` with --classes."
        ),
    }
}

/// Deletes what is in a manifest, and waits until it is gone.
async fn delete(client: &Client, manifest: &str) -> Result<()> {
    for document in documents(manifest, &[])?.into_iter().rev() {
        let object: DynamicObject = serde_json::from_value(document)?;
        let kind = GroupVersionKind::try_from(&object.types.clone().unwrap_or_default())?;
        if kind.kind == "Namespace" && is_used(client, &object.name_any()).await? {
            say(&format!("The namespace {} stays: others use it.", object.name_any()));
            continue;
        }
        let (resource, capabilities) = within(discovery::pinned_kind(client, &kind)).await?;
        let api: Api<DynamicObject> = match capabilities.scope {
            Scope::Cluster => Api::all_with(client.clone(), &resource),
            Scope::Namespaced => {
                let namespace = object.namespace().unwrap_or_else(|| "default".to_owned());
                Api::namespaced_with(client.clone(), &namespace, &resource)
            }
        };
        let (name, how) = (object.name_any(), DeleteParams::foreground());
        match within(api.delete(&name, &how)).await {
            Ok(_) => {
                let gone =
                    await_condition(api, &name, |left: Option<&DynamicObject>| left.is_none());
                let what = format!("{} {name} to be gone", kind.kind);
                oprc_sandbox::within(&what, GONE, gone).await?;
            }
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether something is left in a namespace when all that is ours is gone.
async fn is_used(client: &Client, namespace: &str) -> Result<bool> {
    let some = ListParams::default().limit(SOME);
    for kind in KINDS {
        let left = objects(client, kind, Some(namespace), &some).await?;
        if left.iter().any(|it| is_somebodys(kind.2, it)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether somebody made an object: not Kubernetes for each namespace, nor a controller.
fn is_somebodys(kind: &str, object: &DynamicObject) -> bool {
    let name = object.name_any();
    let given = matches!(
        (kind, name.as_str()),
        ("ConfigMap", "kube-root-ca.crt") | ("ServiceAccount", "default")
    );
    // What is owned goes with its owner, which may only just have gone.
    !given && object.owner_references().is_empty()
}

/// Objects of a kind, in a namespace or in all; none where the cluster doesn't know the kind.
async fn objects(
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
    match within(api.list(which)).await {
        Ok(found) => Ok(found.items),
        Err(error) if is_missing(&error) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn classes_that_stay_are_told() {
        assert!(left(0).contains("definition") && left(0).contains("--classes"));
        assert!(left(2).starts_with("2 class(es) go on running"), "{}", left(2));
    }

    #[test]
    fn what_every_namespace_has_is_nobodys() {
        let object = |name: &str, owners: serde_json::Value| -> DynamicObject {
            let metadata = json!({"name": name, "ownerReferences": owners});
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        let owner = json!([{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1"}]);
        assert!(!is_somebodys("ConfigMap", &object("kube-root-ca.crt", json!([]))));
        assert!(!is_somebodys("ServiceAccount", &object("default", json!([]))));
        assert!(!is_somebodys("Pod", &object("a", owner)));
        assert!(is_somebodys("ConfigMap", &object("theirs", json!([]))));
        assert!(is_somebodys("Secret", &object("default", json!([]))));
    }
}
