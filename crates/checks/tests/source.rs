//! The checks, applied to this source.

use braid_checks::{
    documents, language, layering, licensing, metadata, names, parameters, rooms, root, style, verbs,
};

fn expect_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn crates_import_only_from_lower_layers() {
    expect_none(&layering(&metadata(&["--no-deps"])));
}

#[test]
fn rooms_import_only_from_lower_rooms() {
    expect_none(&rooms(&root()));
}

#[test]
fn all_linked_crates_have_allowed_licences() {
    // What other platforms would link is not even downloaded here.
    expect_none(&licensing(&metadata(&["--filter-platform", "host-tuple"])));
}

#[test]
fn files_follow_the_style() {
    expect_none(&style(&root()));
}

#[test]
fn each_type_has_a_name_of_its_own_in_its_crate() {
    expect_none(&names(&root()));
}

#[test]
fn each_verb_of_the_owners_has_a_name_of_its_own() {
    expect_none(&verbs(&root()));
}

#[test]
fn functions_have_no_tuple_parameters() {
    expect_none(&parameters(&root()));
}

#[test]
fn documents_are_short_and_links_resolve() {
    expect_none(&documents(&root()));
}

#[test]
fn comments_use_terms_and_fit_a_page() {
    expect_none(&language(&root()));
}
