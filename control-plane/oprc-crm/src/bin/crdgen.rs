//! Writes the custom resource definitions to standard output.

use kube::CustomResourceExt as _;
use oprc_crm::crd::ClassRuntime;
use serde_json::Value;

fn main() -> anyhow::Result<()> {
    let mut definition = serde_json::to_value(ClassRuntime::crd())?;
    unwrap_descriptions(&mut definition);
    print!("{}", serde_saphyr::to_string(&definition)?);
    Ok(())
}

/// Descriptions have the line breaks of doc comments, but `kubectl explain` wraps lines itself.
fn unwrap_descriptions(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "description" => *text = text.replace('\n', " "),
                    value => unwrap_descriptions(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(unwrap_descriptions),
        _ => {}
    }
}
