//! Writes the custom resource definitions to standard output.

use kube::CustomResourceExt as _;
use oprc_crm::crd::ClassRuntime;

fn main() -> anyhow::Result<()> {
    print!("{}", serde_saphyr::to_string(&ClassRuntime::crd())?);
    Ok(())
}
