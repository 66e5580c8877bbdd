//! Licence texts of the crates that are linked into the program: their licences ask for the texts beside it.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

/// Beginnings of the names of files with a licence or a notice, in capitals.
const FILES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// Packages from elsewhere that the package `name` links, from the full `cargo metadata`.
///
/// # Panics
/// If the metadata is not cargo's.
pub fn linked<'a>(metadata: &'a Value, name: &str) -> Vec<&'a Value> {
    let packages = metadata["packages"].as_array().expect("cargo metadata lists packages");
    let nodes = metadata["resolve"]["nodes"].as_array().expect("cargo metadata resolves");
    let id = |value: &'a Value| value["id"].as_str().expect("all have an id");
    let first = packages.iter().find(|package| package["name"] == name).map(id);
    let (mut found, mut next) = (BTreeSet::new(), Vec::from_iter(first));
    while let Some(now) = next.pop() {
        if found.insert(now) {
            let node = nodes.iter().find(|node| id(node) == now).expect("all packages are resolved");
            next.extend(
                node["deps"].as_array().into_iter().flatten().filter(|dep| is_linked(dep)).map(package),
            );
        }
    }
    let is_foreign = |package: &&'a Value| found.contains(id(package)) && !package["source"].is_null();
    packages.iter().filter(is_foreign).collect()
}

/// True if a dependency is linked: not of tests or of a build script.
fn is_linked(dependency: &Value) -> bool {
    dependency["dep_kinds"].as_array().into_iter().flatten().any(|kind| kind["kind"].is_null())
}

fn package(dependency: &Value) -> &str {
    dependency["pkg"].as_str().expect("a dependency is a package")
}

/// The notices: the crates with their licences, then each text once, with its crates.
///
/// # Panics
/// If the folder of a crate cannot be read.
pub fn notices(packages: &[&Value]) -> String {
    let mut all = String::from("Crates in this program, and their licences:\n\n");
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        let name = format!("{} {}", text("name"), text("version"));
        writeln!(all, "{name}: {}", text("license")).expect("a string takes all");
        let folder = Path::new(text("manifest_path")).parent().expect("a manifest lies in a folder");
        for file in std::fs::read_dir(folder).expect("cargo unpacked the crate").flatten() {
            let upper = file.file_name().to_string_lossy().to_uppercase();
            if FILES.iter().any(|name| upper.starts_with(name))
                && let Ok(text) = std::fs::read_to_string(file.path())
            {
                let text = text.replace("\r\n", "\n").trim_end().to_owned();
                texts.entry(text).or_default().insert(name.clone());
            }
        }
    }
    for (text, crates) in texts {
        let crates = Vec::from_iter(crates).join(", ");
        write!(all, "\n{}\n{crates}:\n\n{text}\n", "=".repeat(78)).expect("a string takes all");
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn linked_crates_are_those_reached_without_tests_and_build_scripts() {
        let dep = |package: &str, kind: Value| json!({ "pkg": package, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [
                { "id": "a", "name": "program", "source": null }, { "id": "b", "name": "own", "source": null },
                { "id": "c", "name": "foreign", "source": "x" }, { "id": "d", "name": "test", "source": "x" },
                { "id": "e", "name": "script", "source": "x" },
            ],
            "resolve": { "nodes": [
                { "id": "a", "deps": [dep("b", Value::Null), dep("d", json!("dev")), dep("e", json!("build"))] },
                { "id": "b", "deps": [dep("c", Value::Null), dep("a", json!("dev"))] },
                { "id": "c", "deps": [] }, { "id": "d", "deps": [] }, { "id": "e", "deps": [] },
            ]},
        });
        let names = linked(&metadata, "program").into_iter().map(|package| package["name"].clone());
        assert_eq!(Vec::from_iter(names), ["foreign"]);
    }
}
