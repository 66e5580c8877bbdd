//! Allowed imports between crates. A crate imports only from lower layers, so the engine never learns of a
//! door or of the real kernel, and can run in virtual time. Dependencies of tests are free: a test may
//! combine the layers.

use serde_json::Value;

/// Layer of a crate, and its allowed imports.
struct Crate {
    name: &'static str,
    layer: u8,
    imports: &'static [&'static str],
    /// Permission to meet the kernel, through crates that make system calls.
    kernel: Kernel,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kernel {
    Met,
    NotMet,
}
use Kernel::{Met, NotMet};

const fn of(layer: u8, name: &'static str, kernel: Kernel, imports: &'static [&'static str]) -> Crate {
    Crate { name, layer, imports, kernel }
}

/// The layers, from the ground up. Add a line for each new crate.
const CRATES: &[Crate] = &[
    of(0, "base", NotMet, &[]),
    of(1, "format", NotMet, &["base"]),
    of(1, "policy", NotMet, &["base"]),
    of(1, "model", NotMet, &["base"]),
    of(1, "workload", NotMet, &["base"]),
    of(1, "runtime", NotMet, &["base"]),
    of(1, "trace", NotMet, &["base"]),
    of(2, "engine", NotMet, &["base", "format", "policy", "runtime"]),
    of(2, "emulated", NotMet, &["base", "model", "runtime"]),
    of(3, "uring", Met, &["base", "runtime"]),
    of(3, "sim", NotMet, &["base", "format", "policy", "model", "runtime", "engine", "emulated"]),
    of(
        4,
        "lab",
        NotMet,
        &["base", "format", "policy", "model", "workload", "trace", "runtime", "engine", "emulated", "sim"],
    ),
    of(4, "nbd", NotMet, &["base", "runtime", "uring", "engine"]),
    of(4, "rbd", Met, &["base", "runtime", "uring"]),
    of(4, "fuse", Met, &["base", "runtime", "uring", "engine"]),
    of(4, "vhost", Met, &["base", "runtime", "uring", "engine"]),
    of(4, "ublk", Met, &["base", "runtime", "uring", "engine"]),
    of(
        5,
        "control",
        Met,
        &[
            "base", "format", "policy", "model", "trace", "runtime", "engine", "emulated", "uring", "sim",
            "nbd", "rbd", "fuse", "ublk", "vhost", "lab",
        ],
    ),
    of(6, "web", Met, &["base", "control"]),
    of(7, "cli", Met, &["base", "control", "lab", "trace", "web"]),
    // `runtime` for its feature, which its tests share with other tests (python/Cargo.toml).
    of(6, "python", NotMet, &["base", "lab", "policy", "runtime", "trace"]),
];

/// Crates beside the layers: no crate of the product imports these, and their own imports are free.
const BESIDE: &[&str] = &["bench", "checks", "fuzz"];

/// Foreign crates that make system calls, keep time or start threads.
const KERNEL: &[&str] = &[
    "rustix",
    "libc",
    "nix",
    "io-uring",
    "tokio",
    "mio",
    "async-io",
    "fuser",
    "vhost",
    "vm-memory",
    "seccompiler",
];

/// Importers and foreign crates that are imported for a feature alone, which tests share (python/Cargo.toml).
const FOR_FEATURES: &[(&str, &str)] = &[("python", "libc")];

/// Contradictions between the table and the crate graph of `cargo metadata --no-deps`: a sentence for each
/// edge.
pub fn layering(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().expect("cargo metadata lists packages");
    packages.iter().flat_map(|package| check(&short_name(package), &imports(package))).collect()
}

fn check(importer: &str, imports: &[String]) -> Vec<String> {
    if BESIDE.contains(&importer) {
        return Vec::new();
    }
    let Some(known) = CRATES.iter().find(|c| c.name == importer) else {
        return vec![format!(
            "crate {importer} is in no layer: add a line for it to CRATES in crates/checks/src/layers.rs"
        )];
    };
    imports.iter().filter_map(|import| contradiction(known, import)).collect()
}

fn contradiction(importer: &Crate, import: &str) -> Option<String> {
    let Crate { name, layer, imports, kernel } = importer;
    if let Some(own) = import.strip_prefix("braid-") {
        if imports.contains(&own) {
            return None;
        }
        let of = CRATES
            .iter()
            .find(|c| c.name == own)
            .map_or("no layer".to_owned(), |c| format!("layer {}", c.layer));
        return Some(format!(
            "{name} (layer {layer}) imports {own} ({of}), which crates/checks/src/layers.rs does not allow: it may import {}",
            if imports.is_empty() { "nothing".to_owned() } else { imports.join(", ") }
        ));
    }
    if *name == "base" {
        return Some(format!("base imports {import}: it may import nothing"));
    }
    let meets_kernel = KERNEL.contains(&import) && !FOR_FEATURES.contains(&(*name, import));
    (*kernel == NotMet && meets_kernel).then(|| {
        format!("{name} (layer {layer}) imports {import}, which meets the kernel: {name} must run in virtual time too")
    })
}

/// Name of a package in the table: its folder, because the package of `crates/cli` is called `braid`.
fn short_name(package: &Value) -> String {
    let manifest = package["manifest_path"].as_str().expect("a package has a manifest");
    let folder = std::path::Path::new(manifest).parent().and_then(|folder| folder.file_name());
    folder.expect("a manifest lies in a folder").to_string_lossy().into_owned()
}

/// Imports of a package, without the imports of its tests.
fn imports(package: &Value) -> Vec<String> {
    let dependencies = package["dependencies"].as_array().expect("a package lists its dependencies");
    let of_code = dependencies.iter().filter(|dependency| dependency["kind"] != "dev");
    of_code.filter_map(|dependency| dependency["name"].as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentences(importer: &str, import: &str) -> Vec<String> {
        check(importer, &[import.to_owned()])
    }

    #[test]
    fn an_edge_upwards_or_sideways_is_named() {
        assert!(sentences("engine", "braid-nbd")[0].contains("nbd (layer 4)"));
        assert!(sentences("policy", "braid-format")[0].contains("format (layer 1)"));
        assert!(sentences("cli", "braid-engine")[0].contains("base, control"));
        assert!(sentences("engine", "braid-fuzz")[0].contains("fuzz"));
    }

    #[test]
    fn an_edge_downwards_is_free() {
        assert!(
            sentences("engine", "braid-format").is_empty() && sentences("engine", "hashbrown").is_empty()
        );
    }

    #[test]
    fn external_import_is_reported_unless_table_allows() {
        assert!(sentences("engine", "rustix")[0].contains("rustix"));
        assert!(sentences("uring", "rustix").is_empty());
        assert!(sentences("python", "libc").is_empty() && !sentences("lab", "libc").is_empty());
        assert!(sentences("base", "slab")[0].contains("nothing"));
    }

    #[test]
    fn a_crate_without_a_layer_is_noticed() {
        assert!(sentences("helpers", "braid-base")[0].contains("helpers"));
    }

    #[test]
    fn the_table_itself_points_downwards() {
        let layer =
            |name: &str| CRATES.iter().find(|c| c.name == name).expect("an import is in the table").layer;
        for importer in CRATES {
            for import in importer.imports {
                assert!(layer(import) < importer.layer, "{} imports {import}", importer.name);
            }
        }
    }
}
