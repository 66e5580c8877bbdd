//! The checks, applied to this source.

use braid_checks::{documents, layering, licensing, metadata, root, style};

fn expect_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn crates_import_only_from_lower_layers() {
    expect_none(&layering(&metadata(&["--no-deps"])));
}

#[test]
fn everything_linked_stands_under_an_allowed_licence() {
    // What other platforms would link is not even downloaded here.
    expect_none(&licensing(&metadata(&["--filter-platform", "host-tuple"])));
}

#[test]
fn files_follow_the_style() {
    expect_none(&style(&root()));
}

#[test]
fn documents_are_short_and_their_links_lead_somewhere() {
    expect_none(&documents(&root()));
}
