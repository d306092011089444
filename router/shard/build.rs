//! Compiles `proto/shard.proto` to Rust without protoc.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=../../proto/shard.proto");
    let files = protox::compile(["../../proto/shard.proto"], ["../../proto"])?;
    tonic_prost_build::configure()
        .bytes(".") // packed arrays stay slices of the received frame
        .disable_comments(["."]) // the file itself is the documentation
        .compile_fds(files)?;
    Ok(())
}
