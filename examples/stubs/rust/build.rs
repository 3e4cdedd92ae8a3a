//! Generates code from the image: messages and gRPC with tonic, and their JSON form with pbjson. No protoc, no network.

use prost::Message;
use prost_types::FileDescriptorSet;

const IMAGE: &str = "dragoman.binpb";
const PACKAGE: &str = ".lf.a2a.v1"; // A2A 1.0; `.a2a.v1` is 0.3

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed={IMAGE}");
    let image = std::fs::read(IMAGE)?;
    let mut files = FileDescriptorSet::decode(&image[..])?;
    files.file.retain(|file| [&PACKAGE[1..], "google.protobuf"].contains(&file.package()));
    tonic_prost_build::configure()
        .build_server(false)
        .compile_well_known_types(true)
        .extern_path(".google.protobuf", "::pbjson_types")
        .compile_fds(files)?;
    pbjson_build::Builder::new().register_descriptors(&image)?.build(&[PACKAGE])?;
    Ok(())
}
