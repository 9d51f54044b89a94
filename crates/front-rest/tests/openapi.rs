//! The committed description of the API is the one that the code has. `ATOLL_BLESS=1` writes it anew.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::{fs, path::Path};

#[test]
fn the_committed_document_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let fresh = atoll_front_rest::openapi() + "\n";
    if std::env::var_os("ATOLL_BLESS").is_some() {
        fs::write(&path, &fresh).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == fresh, "docs/openapi.json is stale: run ATOLL_BLESS=1 cargo test -p atoll-front-rest");
}

#[test]
fn a_reader_begins_with_sandboxes() {
    let document: serde_json::Value = serde_json::from_str(&atoll_front_rest::openapi()).unwrap();
    assert_eq!(document["tags"][0]["name"], "sandboxes");
}

#[test]
fn the_error_table_is_as_it_was() {
    let lines: Vec<String> =
        atoll_http::ERROR_TABLE.iter().map(|(code, status)| format!("{status} {code}")).collect();
    insta::assert_snapshot!(lines.join("\n"));
}
