//! Location of the source, and cargo's metadata.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder with the workspace's `Cargo.toml`.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this crate lies in crates/ of the workspace").to_owned()
}

/// Output of `cargo metadata`, with or without foreign crates, by `arguments`.
///
/// # Panics
/// If cargo fails.
pub fn metadata(arguments: &[&str]) -> Value {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--format-version", "1", "--locked"]).args(arguments).current_dir(root());
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata speaks JSON")
}
