//! What is too old goes, and the rest can be verified as before.

use crate::fixture::{Folder, done, exec, faulty, sound};
use atoll_audit::FaultKind;
use atoll_store::{Audits, Events, OperationQuery, Part};
use atoll_types::ErrorCode;

#[tokio::test]
async fn old_rows_go_and_the_rest_is_verified_from_there() {
    let folder = Folder::new();
    let trail = folder.open().await;
    trail.fill(5).await;
    let first = sound(folder.verify().await);
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    let marks = trail.store.last_audit_row().await.unwrap().unwrap();
    let before = marks.at + 1;
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    trail.fill(5).await;
    let by = trail.ledger.begin(exec("audit cleanup")).await.unwrap();
    let cleaned = trail.ledger.cleanup(before, Some(by)).await.unwrap();
    assert_eq!((cleaned.rows, cleaned.first, cleaned.held_by), (11, 12, None));
    trail.ledger.end(by, done(), vec![], vec![]).await.unwrap();
    let report = sound(folder.verify().await);
    assert_eq!((report.first, report.last, report.operations), (12, 24, 6));
    let left = trail.store.audit_operations(&OperationQuery::default()).await.unwrap();
    assert_eq!(left.len(), 6);
    let text = OperationQuery { text: Some("echo 0".into()), ..OperationQuery::default() };
    assert_eq!(trail.store.audit_operations(&text).await.unwrap().len(), 1);
    // What was noted before can be compared as long as it is there, or was the last to go.
    sound(folder.verify_with(Some((11, first.mac))).await);
    let fault = faulty(folder.verify_with(Some((11, atoll_store::Mac([0; 32])))).await);
    assert_eq!((fault.kind, fault.seq), (FaultKind::Changed, 11));
    let unsure = folder.verify_with(Some((3, first.mac))).await;
    assert!(matches!(unsure, atoll_audit::Verdict::Unsure(_)), "{unsure:?}");
    // And again, which removes the first checkpoint too.
    let cleaned = trail.ledger.cleanup(i64::MAX, None).await.unwrap();
    assert_eq!((cleaned.rows, cleaned.first), (12, 24));
    assert_eq!(trail.store.audit_marks(Part::Checkpoint, 9).await.unwrap().len(), 1);
    trail.fill(2).await;
    trail.close().await;
    sound(folder.verify().await);
    let trail = folder.open().await;
    trail.fill(1).await;
    assert_eq!(trail.ledger.cleanup(0, None).await.unwrap().rows, 0);
    trail.close().await;
    sound(folder.verify().await);
}

#[tokio::test]
async fn many_rows_go_while_others_are_written() {
    let folder = Folder::new();
    let trail = folder.open().await;
    let ids: Vec<_> = {
        let mut ids = Vec::new();
        for _ in 0..3000 {
            ids.push(trail.ledger.start(exec("x")));
        }
        let mut begun = Vec::new();
        let tasks: Vec<_> = ids.into_iter().map(|start| async { start.await.unwrap().leave() }).collect();
        for task in tasks {
            begun.push(task.await);
        }
        begun
    };
    let ends: Vec<_> = ids.iter().map(|id| trail.ledger.end(*id, done(), vec![], vec![])).collect();
    for end in ends {
        end.await.unwrap();
    }
    let (cleaned, ()) = tokio::join!(trail.ledger.cleanup(i64::MAX, None), trail.fill(50));
    let cleaned = cleaned.unwrap();
    assert!(cleaned.rows >= 6000, "{cleaned:?}");
    trail.close().await;
    sound(folder.verify().await);
}

#[tokio::test]
async fn what_has_not_ended_stays_and_is_named() {
    let folder = Folder::new();
    let trail = folder.open().await;
    trail.fill(2).await;
    let open = trail.ledger.begin(exec("sleep 9")).await.unwrap();
    trail.fill(2).await;
    let cleaned = trail.ledger.cleanup(i64::MAX, None).await.unwrap();
    assert_eq!((cleaned.rows, cleaned.first, cleaned.held_by), (5, 6, Some(open)));
    trail.ledger.end(open, done(), vec![], vec![]).await.unwrap();
    let cleaned = trail.ledger.cleanup(i64::MAX, None).await.unwrap();
    assert_eq!(cleaned.held_by, None);
    trail.close().await;
    sound(folder.verify().await);
}

#[tokio::test]
async fn rows_that_were_touched_are_not_removed() {
    let folder = Folder::new();
    folder.filled(5).await;
    folder.tamper("UPDATE audit_rows SET output = x'00' WHERE seq = 4").await;
    let trail = folder.open().await;
    let refused = trail.ledger.cleanup(i64::MAX, None).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict);
    assert!(refused.message.contains("row 4"), "{refused}");
    trail.close().await;
    assert_eq!(faulty(folder.verify().await).seq, 4);
}

#[tokio::test]
async fn tampering_with_checkpoints_is_found() {
    let folder = Folder::new();
    let trail = folder.open().await;
    trail.fill(5).await;
    trail.ledger.cleanup(i64::MAX, None).await.unwrap();
    trail.fill(5).await;
    trail.close().await;
    // Rows 11 (the last end) and 12 (the checkpoint), and then ten more.
    let report = sound(folder.verify().await);
    assert_eq!((report.first, report.last), (11, 22));
    for (sql, kind, seq) in [
        ("DELETE FROM audit_rows WHERE seq = 11", FaultKind::Removed, 11),
        ("DELETE FROM audit_rows WHERE seq = 22", FaultKind::CutOff, 22),
        ("DELETE FROM audit_rows WHERE seq >= 12", FaultKind::CutOff, 12),
        (
            "UPDATE audit_rows SET facts = CAST(replace(CAST(facts AS TEXT), '\"removed_to\":10', '\"removed_to\":11') AS BLOB)",
            FaultKind::Changed,
            12,
        ),
        ("UPDATE audit_rows SET at = 0 WHERE seq = 12", FaultKind::Projection, 12),
        ("UPDATE audit_rows SET output = x'00' WHERE seq = 15", FaultKind::Changed, 15),
    ] {
        let copy = folder.copy();
        copy.tamper(sql).await;
        let fault = faulty(copy.verify().await);
        assert_eq!((fault.kind, fault.seq), (kind, seq), "{sql}: {fault:?}");
    }
    // A checkpoint that covers rows that somebody removed.
    let copy = folder.copy();
    copy.tamper(
        "INSERT INTO audit_rows (seq, part, operation, at, mac, facts, output) SELECT 23, part, operation, at, mac, \
         CAST(replace(replace(CAST(facts AS TEXT), '\"removed_to\":10', '\"removed_to\":16'), '\"seq\":12', '\"seq\":23') \
         AS BLOB), output FROM audit_rows WHERE seq = 12; \
         DELETE FROM audit_rows WHERE seq <= 16; DELETE FROM audit_operations WHERE seq <= 16",
    )
    .await;
    assert_eq!(faulty(copy.verify().await).seq, 23);
    assert!(folder.open().await.store.append_events(vec![]).await.is_ok());
}
