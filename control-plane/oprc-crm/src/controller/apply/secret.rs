//! Writes the Secret with the certificate of a data grid. It is read only here, and never cached.

use std::time::Instant;

use k8s_openapi::{ByteString, api::core::v1::Secret, jiff::Timestamp};
use kube::{
    Api,
    api::{Patch, PatchParams},
    core::DynamicObject,
};
use serde_json::{Value, json};

use super::{
    super::certificate::{Issued, Pair, issue},
    Applier, Error, bounded, is_owned_by, set_uid,
};
use crate::{
    kinds::SECRET,
    reason::{Failure, Reason},
    reconcile::{
        ObservedClass,
        diff::{Apply, with_renewal},
        observe::{Child, MANAGER},
        render::DNS_NAME,
    },
};

const CA_KEY: &str = "ca.key";

impl Applier {
    /// Issues a certificate and writes it, with the authority that the Secret has already.
    pub(super) async fn issue_certificate(
        &self,
        class: &ObservedClass,
        apply: &Apply,
        end: Instant,
    ) -> Result<(), Error> {
        let desired = &apply.desired;
        let what = format!("{} {}", desired.kind, desired.name);
        let failure =
            |reason, message: String| Failure { reason, message: format!("{what}: {message}") };
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &class.namespace);
        let live = bounded(end, secrets.get_opt(&desired.name)).await;
        let live = live.map_err(|error| error.classify(&what))?;
        if live.as_ref().is_some_and(|it| !is_owned_by(&it.metadata, class)) {
            let message = "belongs to another owner".to_owned();
            return Err(Error::Permanent(failure(Reason::NameConflict, message)));
        }
        let name = desired.object.pointer("/metadata/annotations");
        let name = name.and_then(|all| all.get(DNS_NAME)?.as_str()).unwrap_or_default();
        let issued = issue(live.as_ref().and_then(authority), name, Timestamp::now())
            .map_err(|error| Error::Permanent(failure(Reason::Rejected, error.to_string())))?;
        let manifest = with_renewal(&desired.object, issued.renew_after);
        let mut object = manifest.clone();
        if let Some(fields) = object.as_object_mut() {
            fields.insert("data".to_owned(), data(issued));
        }
        set_uid(&mut object, apply.uid.as_ref());
        let mut params = PatchParams::apply(MANAGER);
        params.force = apply.uid.is_some();
        let api = self.api(&SECRET, &class.namespace);
        let written = bounded(end, api.patch(&desired.name, &params, &Patch::Apply(&object))).await;
        let written = written.map_err(|error| error.classify(&what))?;
        let metadata = DynamicObject { data: Value::Null, ..written };
        self.cache.put_child(Child::of(&SECRET, &metadata).with_applied(&manifest));
        tracing::info!(secret = desired.name, "certificate issued");
        Ok(())
    }
}

fn authority(secret: &Secret) -> Option<Pair> {
    let data = secret.data.as_ref()?;
    let text = |name| data.get(name).and_then(|it| String::from_utf8(it.0.clone()).ok());
    Some(Pair { certificate: text("ca.crt")?, key: text(CA_KEY)? })
}

fn data(issued: Issued) -> Value {
    let all = [
        ("ca.crt", issued.authority.certificate),
        (CA_KEY, issued.authority.key),
        ("tls.crt", issued.node.certificate),
        ("tls.key", issued.node.key),
    ];
    all.into_iter().map(|(name, text)| (name.to_owned(), json!(ByteString(text.into())))).collect()
}
