//! A cluster that is there already: CRM and the package manager run in it, and `oprc` reaches the
//! package manager through the cluster's API server.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result};
use k8s_openapi::{
    ByteString,
    api::{
        apps::v1::{Deployment, StatefulSet},
        core::v1::{Secret, Service},
    },
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, ObjectMeta, PostParams},
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
    failure::is_missing,
    kube::{self as cluster, within},
    output::say,
    remote::Remote,
};

/// The secret with the package manager's tokens, and the one of them that is ours.
const SECRET: &str = "oprc-pm-tokens";
const TOKEN: &str = "admin";
/// How long something may take to be gone.
const GONE: Duration = Duration::from_mins(2);

/// Brings everything up.
pub(super) async fn up(command: &Up, kube: &str) -> Result<()> {
    let client = cluster::open(command.kubeconfig.as_ref(), Some(kube)).await?;
    let images = install::Images { registry: &command.registry, tag: &command.tag };
    let first = [install::CRDS, install::RBAC];
    install::manifests(&client, &first, images).await?;
    let token = token(&client).await?;
    install::manifests(&client, &[install::CRM, install::PM], images).await?;
    install::ready(&client, "oprc-crm").await?;
    install::ready(&client, "oprc-pm").await?;
    let kube = Kube { kubeconfig: command.kubeconfig.clone(), context: Some(kube.to_owned()) };
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
    let client = cluster::open(command.kubeconfig.as_ref(), Some(kube)).await?;
    if command.classes {
        // First, as the package manager would make them anew, and CRM takes away what is theirs.
        delete(&client, install::PM).await?;
        delete(&client, install::CRDS).await?;
    }
    for manifest in [install::PM, install::CRM, install::RBAC] {
        delete(&client, manifest).await?;
    }
    say(&format!("The package manager and CRM are out of {kube}."));
    Ok(())
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

/// Whether something is left in a namespace that isn't ours.
async fn is_used(client: &Client, namespace: &str) -> Result<bool> {
    let few = ListParams::default().limit(1);
    let (deployments, sets, services): (Api<Deployment>, Api<StatefulSet>, Api<Service>) = (
        Api::namespaced(client.clone(), namespace),
        Api::namespaced(client.clone(), namespace),
        Api::namespaced(client.clone(), namespace),
    );
    Ok(!within(deployments.list(&few)).await?.items.is_empty()
        || !within(sets.list(&few)).await?.items.is_empty()
        || !within(services.list(&few)).await?.items.is_empty())
}
