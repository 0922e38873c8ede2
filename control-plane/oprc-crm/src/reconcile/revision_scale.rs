//! The minimum scale of a Knative revision.
//!
//! Another minimum in the template of a Knative Service would lead to a new revision, which replaces all
//! pods. Knative also takes the minimum from the annotation of a revision, which can be changed. The
//! Service has an annotation of what was written to which revision.

use serde_json::Value;

pub(crate) use super::shapes::knative::MIN_SCALE;
use super::{
    manifest::add_spec_hash,
    observe::{Child, ObservedState},
    render::DesiredObject,
};

/// Annotation of a Knative Service: the revision whose minimum scale was changed, and the minimum.
const REVISION_SCALE: &str = "oaas.io/revision-min-scale";

/// A minimum scale that a revision has to get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevisionScale {
    pub revision: String,
    pub min_scale: String,
}

fn annotations<'a>(
    manifest: &'a mut Value,
    of: &str,
) -> Option<&'a mut serde_json::Map<String, Value>> {
    manifest.pointer_mut(of)?.as_object_mut()
}

const OF_SERVICE: &str = "/metadata/annotations";
const OF_TEMPLATE: &str = "/spec/template/metadata/annotations";

/// Leaves the minimum in the template of a Knative Service as it is, unless the template changes anyway,
/// or enforcement has nothing to do with it. Returns what has to be written to the revision that serves.
pub(super) fn leave_revision(
    object: &mut DesiredObject,
    live: &Child,
    is_raised: bool,
) -> Option<RevisionScale> {
    let ObservedState::Knative(state) = &live.state else { return None };
    let mut fields = live.owned_fields()?;
    let stored = annotations(&mut fields, OF_SERVICE)?.remove(REVISION_SCALE);
    if !is_raised && stored.is_none() {
        return None;
    }
    let in_template = annotations(&mut fields, OF_TEMPLATE)?.remove(MIN_SCALE)?;
    let wanted = annotations(&mut object.object, OF_TEMPLATE)?.get(MIN_SCALE)?.clone();
    let mut unchanged = object.clone();
    annotations(&mut unchanged.object, OF_TEMPLATE)?
        .insert(MIN_SCALE.to_owned(), in_template.clone());
    add_spec_hash(&mut unchanged);
    if let Some(stored) = &stored {
        annotations(&mut unchanged.object, OF_SERVICE)?
            .insert(REVISION_SCALE.to_owned(), stored.clone());
    }
    if !live.is_in_sync_with(&unchanged.object) {
        return None;
    }
    *object = unchanged;
    let (revision, min_scale) = (state.revision.clone()?, wanted.as_str()?.to_owned());
    let of_revision = format!("{revision}=");
    let stored = stored.as_ref().and_then(Value::as_str);
    let current = stored.and_then(|it| it.strip_prefix(&of_revision)).or(in_template.as_str());
    if current == Some(&min_scale) {
        return None;
    }
    annotations(&mut object.object, OF_SERVICE)?
        .insert(REVISION_SCALE.to_owned(), format!("{of_revision}{min_scale}").into());
    Some(RevisionScale { revision, min_scale })
}
