//! Hashes the sources that the result of a simulation depends on, so that kept results of other sources are
//! not used (`src/study/kept.rs`).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// The crates that a simulation passes through.
const CRATES: [&str; 11] =
    ["base", "format", "policy", "model", "workload", "trace", "runtime", "engine", "emulated", "sim", "lab"];

/// What no simulation passes through: declarations are part of the key by themselves, and what comes after
/// the simulations changes no result.
const LEFT_OUT: [&str; 7] = [
    "lab/src/advice",
    "lab/src/corpus",
    "lab/src/estimate.rs",
    "lab/src/experiments",
    "lab/src/judge",
    "lab/src/judge.rs",
    "lab/src/report",
];

fn main() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for name in CRATES {
        collect(&crates.join(name).join("src"), &mut files);
    }
    // The versions of other people's crates.
    files.push(crates.join("../Cargo.lock"));
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in &files {
        let name = file.strip_prefix(&crates).expect("all files are below the crates' folder");
        if LEFT_OUT.iter().any(|left_out| name.starts_with(left_out)) {
            continue;
        }
        let bytes =
            std::fs::read(file).unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()));
        (name, bytes).hash(&mut hasher);
        println!("cargo::rerun-if-changed={}", file.display());
    }
    for name in CRATES {
        println!("cargo::rerun-if-changed={}", crates.join(name).join("src").display());
    }
    println!("cargo::rustc-env=BRAID_LAB_SOURCES={:016x}", hasher.finish());
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("cannot read {}: {error}", folder.display()));
    for path in entries.map(|entry| entry.expect("a folder can be read to its end").path()) {
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}
