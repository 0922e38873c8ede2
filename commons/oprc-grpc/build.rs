//! Compiles the .proto files, without a protoc.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

const FILES: [&str; 2] = ["deployment.proto", "odgm.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR isn't set")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .btree_map(".")
        // A unit has the same words on the wire and in the cluster: one goes into the other as it is.
        .message_attribute(".deployment.unit", "#[derive(serde::Serialize, serde::Deserialize)]")
        .message_attribute(".deployment.unit", "#[serde(default, deny_unknown_fields)]")
        .compile_fds(descriptors)?;
    Ok(())
}
