//! What the changes of files are found by.

use crate::fixture::{Folder, done, exec, faulty, sound};
use atoll_audit::FaultKind::Projection;
use atoll_store::{Audits, Begin, End, FileChanged, FileHistoryQuery, SandboxId};
use atoll_types::files::FileAction;

/// Rows 2 and 3 name a file, 4 and 5 change more than they name.
async fn filled(folder: &Folder, sandbox: SandboxId) {
    let trail = folder.open().await;
    for (line, count) in [("touch a", 1), ("npm install", 700)] {
        let begin = Begin { sandbox: Some(sandbox), ..exec(line) };
        let files = vec![FileChanged { path: "a".into(), action: FileAction::Created, size: Some(0) }];
        let files = if count == 1 { files } else { Vec::new() };
        let operation = trail.ledger.start(begin).await.unwrap();
        operation.end(End { files, files_count: count, ..done() }, vec![], vec![]).await.unwrap();
    }
    trail.close().await;
}

async fn history(folder: &Folder, sandbox: SandboxId) -> Vec<u64> {
    let trail = folder.open().await;
    let query = FileHistoryQuery { sandbox, path: "a".into(), before: None, limit: 9 };
    let found = trail.store.audit_file_history(&query).await.unwrap();
    trail.close().await;
    found.iter().map(|operation| operation.seq).collect()
}

#[tokio::test]
async fn what_files_are_found_by_is_compared_with_the_rows() {
    let (folder, sandbox) = (Folder::new(), SandboxId::random());
    filled(&folder, sandbox).await;
    sound(folder.verify().await);
    for (sql, row) in [
        ("DELETE FROM audit_files WHERE path = 'a'", 3),
        ("DELETE FROM audit_files WHERE path = ''", 5),
        ("UPDATE audit_files SET path = 'b' WHERE path = 'a'", 3),
        ("UPDATE audit_files SET sandbox = zeroblob(16) WHERE path = ''", 5),
        ("UPDATE audit_files SET end_seq = 9", 3),
        ("INSERT INTO audit_files SELECT operation, end_seq, sandbox, 'c' FROM audit_files", 3),
    ] {
        let copy = folder.copy();
        copy.tamper(sql).await;
        let fault = faulty(copy.verify().await);
        assert_eq!((fault.kind, fault.seq), (Projection, row), "{sql}");
    }
}

#[tokio::test]
async fn a_trail_of_before_them_is_entered() {
    let (folder, sandbox) = (Folder::new(), SandboxId::random());
    filled(&folder, sandbox).await;
    assert_eq!(history(&folder, sandbox).await, [4, 2]);
    let older = "DROP TABLE preview_tokens; DROP TABLE console_sessions; DROP TABLE conversation_items; DROP TABLE conversation_runs; DROP TABLE conversation_checkpoints; \
                 DROP TABLE conversation_messages; DROP TABLE conversations; DROP TABLE assistant_versions; DROP TABLE assistants; \
                 ALTER TABLE snapshots DROP COLUMN skills; DROP TABLE build_steps; DROP TABLE image_uses; DROP TABLE image_tags; DROP TABLE images; DROP TABLE image_builds; \
                 DROP TABLE skills; ALTER TABLE sandboxes DROP COLUMN skills; ALTER TABLE sandboxes DROP COLUMN start_due; ALTER TABLE sandboxes DROP COLUMN death; ALTER TABLE snapshots DROP COLUMN kernels; \
                 DROP TABLE attachments; DROP TABLE volumes; DROP TABLE audit_files; PRAGMA user_version = 10";
    folder.tamper(older).await;
    assert_eq!(history(&folder, sandbox).await, [4, 2]);
    sound(folder.verify().await);
}
