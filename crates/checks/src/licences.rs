//! Allowed licences of all linked crates: compatible with Apache-2.0.

use serde_json::Value;

const ALLOWED: &[&str] = &[
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "MIT",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "CC0-1.0",
    "Unlicense",
    "BSL-1.0",
];

/// Crates without an allowed licence, from the full `cargo metadata`: a sentence for each.
pub fn licensing(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().expect("cargo metadata lists packages");
    let text = |package: &Value, key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let wrong = packages.iter().filter(|package| !is_allowed(&text(package, "license")));
    wrong
        .map(|package| {
            let (name, licence) = (text(package, "name"), text(package, "license"));
            format!("{name} stands under '{licence}': use another crate, or add the licence to crates/checks/src/licences.rs")
        })
        .collect()
}

/// True if an SPDX expression offers a choice with only allowed parts. Brackets are ignored; at worst this
/// refuses an allowed expression.
fn is_allowed(expression: &str) -> bool {
    let flat = expression.replace(['(', ')'], "").replace('/', " OR ");
    let allowed = |licence: &str| ALLOWED.contains(&licence.trim());
    if expression.contains('(') {
        return flat.split(" AND ").all(|part| part.split(" OR ").any(allowed));
    }
    flat.split(" OR ").any(|choice| choice.split(" AND ").all(allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_choices_and_conjunctions_are_evaluated() {
        assert!(
            is_allowed("MIT OR Apache-2.0") && is_allowed("MIT/Apache-2.0") && is_allowed("MIT OR GPL-3.0")
        );
        assert!(is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(!is_allowed("GPL-3.0-only") && !is_allowed("MIT AND GPL-3.0-only") && !is_allowed(""));
        assert!(!is_allowed("(MIT OR Apache-2.0) AND GPL-2.0-only"));
    }
}
