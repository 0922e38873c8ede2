//! Compiles the .proto files, without a protoc.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

const SERDE: &str = "#[derive(serde::Serialize, serde::Deserialize)]\n\
    #[serde(default, deny_unknown_fields)]";
const FILES: [&str; 2] = ["deployment.proto", "odgm.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR isn't set")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .btree_map(".")
        // Units and platforms have the same field names here and in oprc-unit: `src/unit.rs`
        // converts them by way of serde.
        .message_attribute(".deployment.unit", SERDE)
        .message_attribute(".deployment.platform", SERDE)
        .compile_fds(descriptors)?;
    Ok(())
}
