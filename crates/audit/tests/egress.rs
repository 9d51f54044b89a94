//! Decisions about what sandboxes may reach are rows like any other.

use crate::fixture::{Folder, done, exec, faulty, sound};
use atoll_audit::FaultKind::{Changed, Projection, Removed};
use atoll_store::{Audits, Egress, EgressQuery, SandboxId};

fn decision(sandbox: SandboxId, host: &str) -> Egress {
    Egress {
        sandbox,
        via: "connect".into(),
        host: host.into(),
        port: Some(443),
        address: None,
        method: None,
        path: None,
        allowed: false,
        rule: "not listed".into(),
        error: None,
        sent: 0,
        received: 0,
        duration_us: 7,
        count: 1,
    }
}

#[tokio::test]
async fn they_stand_in_the_chain_under_their_operation() {
    let folder = Folder::new();
    let trail = folder.open().await;
    let sandbox = SandboxId::random();
    let operation = trail.ledger.start(exec("curl")).await.unwrap();
    let rows = vec![
        (Some(operation.id()), 5, decision(sandbox, "a.example")),
        (None, 6, decision(sandbox, &"b".repeat(2000))),
    ];
    assert_eq!(trail.ledger.tell(rows).await, vec![Ok(()), Ok(())]);
    let id = operation.id();
    operation.end(done(), vec![], vec![]).await.unwrap();
    // A connection may end after the command that made it.
    assert_eq!(trail.ledger.tell(vec![(Some(id), 7, decision(sandbox, "a.example"))]).await, vec![Ok(())]);
    let of = EgressQuery { operation: Some(id), ..EgressQuery::default() };
    let found = trail.store.audit_egress(&of).await.unwrap();
    assert_eq!(found.iter().map(|row| (row.seq, row.at)).collect::<Vec<_>>(), [(6, 7), (3, 5)]);
    let all = EgressQuery { sandbox: Some(sandbox), ..EgressQuery::default() };
    assert_eq!(trail.store.audit_egress(&all).await.unwrap()[1].facts.host.len(), 256, "it has a bound");
    let ledger = trail.ledger.clone();
    trail.close().await;
    let late = ledger.tell(vec![(None, 8, decision(sandbox, "c.example"))]).await;
    assert!(late[0].is_err(), "nobody is told that it was written");
    let report = sound(folder.verify().await);
    assert_eq!((report.last, report.operations, report.open), (6, 1, 0));
    for (sql, kind, seq) in [
        (
            "UPDATE audit_rows SET facts = CAST(replace(CAST(facts AS TEXT), 'a.example', 'z.example') AS BLOB) WHERE seq = 3",
            Changed,
            3,
        ),
        ("UPDATE audit_rows SET operation = NULL WHERE seq = 3", Projection, 3),
        ("UPDATE audit_rows SET part = 'note' WHERE seq = 4", Projection, 4),
        ("DELETE FROM audit_rows WHERE seq = 4", Removed, 4),
    ] {
        let copy = folder.copy();
        copy.tamper(sql).await;
        let fault = faulty(copy.verify().await);
        assert_eq!((fault.kind, fault.seq), (kind, seq), "{sql}");
    }
}

#[tokio::test]
async fn a_trail_of_before_them_goes_on() {
    let folder = Folder::new();
    folder.filled(3).await;
    folder
        .tamper(
            "DROP TABLE preview_tokens; DROP TABLE console_sessions; DROP TABLE conversation_items; DROP TABLE conversation_runs; DROP TABLE conversation_checkpoints; \
             DROP TABLE conversation_messages; DROP TABLE conversations; DROP TABLE assistant_versions; DROP TABLE assistants; \
             DROP TABLE build_steps; DROP TABLE image_uses; DROP TABLE image_tags; DROP TABLE images; DROP TABLE image_builds; DROP TABLE skills; \
             ALTER TABLE sandboxes DROP COLUMN skills; \
             DROP TABLE attachments; DROP TABLE volumes; DROP TABLE audit_files; DROP INDEX audit_egress_sandbox; DROP INDEX audit_egress_host; DROP INDEX audit_egress_refused; \
             DROP INDEX audit_egress_operation; ALTER TABLE sandboxes DROP COLUMN egress; DROP TABLE tool_exports; \
             DROP TABLE tool_sessions; DROP TABLE tool_threads; DROP TABLE mcp_sessions; DROP INDEX sandboxes_lifetime; \
             ALTER TABLE sandboxes DROP COLUMN max_lifetime_seconds; ALTER TABLE sandboxes DROP COLUMN provider; \
             ALTER TABLE sandboxes DROP COLUMN idle_pause; ALTER TABLE sandboxes DROP COLUMN death; ALTER TABLE sandboxes DROP COLUMN start_due; DROP TABLE snapshots; \
             ALTER TABLE sandboxes DROP COLUMN auto_snapshot; PRAGMA user_version = 2",
        )
        .await;
    let trail = folder.open().await;
    assert_eq!(trail.opened.evidence, vec![]);
    assert_eq!(
        trail.ledger.tell(vec![(None, 5, decision(SandboxId::random(), "a.example"))]).await,
        vec![Ok(())]
    );
    trail.close().await;
    assert_eq!(sound(folder.verify().await).last, 8);
}
