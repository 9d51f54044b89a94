//! The trail as JSON Lines.

use crate::fixture::{Folder, done, exec};
use atoll_audit::{Capture, Export, Redactor};
use atoll_store::End;
use serde_json::{Value, json};

async fn lines(trail: &crate::fixture::Trail, from: u64, with_output: bool) -> Vec<Value> {
    let mut export = Export::new(from, with_output);
    let mut all = Vec::new();
    while let Some(text) = export.lines(&trail.store).await.unwrap() {
        assert!(text.ends_with('\n'));
        all.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
    }
    all
}

#[tokio::test]
async fn every_row_is_a_line() {
    let folder = Folder::new();
    let trail = folder.open().await;
    let operation = trail.ledger.start(exec("echo \"a\nb\"")).await.unwrap();
    let id = operation.id();
    let mut capture = Capture::new(&Redactor::new(["s3cret"]));
    capture.take(b"the s3cret");
    let end = End { stdout: Some(capture.finish()), ..done() };
    operation.end(end, vec![], vec![]).await.unwrap();
    trail.fill(300).await;
    let all = lines(&trail, 0, true).await;
    assert_eq!(all.len(), 603);
    let begin = &all[1];
    assert_eq!(begin["seq"], 2);
    assert_eq!(begin["part"], "begin");
    assert_eq!(begin["operation"], id.to_string());
    assert_eq!(begin["mac"].as_str().unwrap().len(), 64);
    let detail = json!({ "text": "echo \"a\nb\"", "length": 10 });
    assert_eq!(begin["facts"], json!({ "front": "rest", "owner": "ada", "kind": "exec", "detail": detail }));
    assert_eq!(all[2]["facts"]["outcome"], "ok");
    assert_eq!(all[2]["facts"]["stdout"]["length"], 12);
    assert!(all[2]["output"].is_string());
    assert_eq!(lines(&trail, 0, false).await[2].get("output"), None);
    assert_eq!(lines(&trail, 600, false).await.len(), 4);
    assert_eq!(lines(&trail, 604, false).await.len(), 0);
    // A row that cannot be read is told and not left out.
    folder.tamper("UPDATE audit_rows SET facts = x'ff0a' WHERE seq = 3").await;
    let damaged = lines(&trail, 3, false).await;
    assert_eq!(damaged.len(), 601);
    assert_eq!(damaged[0]["unreadable"]["facts"], "/wo=");
    trail.close().await;
}
