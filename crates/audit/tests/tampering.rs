//! Whatever is done to the database is found, and named by the first row that it touched. A trail of ten
//! operations has 21 rows: one that says that it begins, and then beginnings (even) and ends (odd).

use crate::fixture::{Folder, faulty, sound};
use atoll_audit::FaultKind::{self, Added, Changed, CutOff, Moved, Projection, Removed};

async fn after(folder: &Folder, sql: &str) -> (FaultKind, u64) {
    let copy = folder.copy();
    copy.tamper(sql).await;
    let fault = faulty(copy.verify().await);
    assert!(!fault.text.is_empty());
    (fault.kind, fault.seq)
}

#[tokio::test]
async fn every_way_to_tamper_is_found_and_named() {
    let folder = Folder::new();
    folder.filled(10).await;
    let report = sound(folder.verify().await);
    assert_eq!((report.first, report.last, report.operations, report.open), (1, 21, 10, 0));
    let swap = |one: u64, other: u64| {
        format!(
            "UPDATE audit_rows SET seq = 999 WHERE seq = {one}; UPDATE audit_rows SET seq = {one} WHERE seq = {other}; \
             UPDATE audit_rows SET seq = {other} WHERE seq = 999"
        )
    };
    let swap_contents = "CREATE TEMP TABLE t AS SELECT * FROM audit_rows WHERE seq IN (8, 12); \
         UPDATE audit_rows SET (part, operation, at, mac, facts, output) = \
         (SELECT part, operation, at, mac, facts, output FROM t WHERE t.seq = 20 - audit_rows.seq) \
         WHERE seq IN (8, 12)";
    let forged = |seq: i64| {
        format!(
            "INSERT INTO audit_rows (seq, part, operation, at, mac, facts, output) \
             SELECT {seq}, part, operation, at, mac, facts, output FROM audit_rows WHERE seq = 7"
        )
    };
    let cases: Vec<(String, FaultKind, u64)> = vec![
        // The proven bytes.
        ("UPDATE audit_rows SET facts = CAST(replace(CAST(facts AS TEXT), 'echo 3', 'echo 4') AS BLOB) WHERE seq = 8".into(), Changed, 8),
        ("UPDATE audit_rows SET facts = CAST(replace(CAST(facts AS TEXT), '\"ok\"', '\"lost\"') AS BLOB) WHERE seq > 10".into(), Changed, 11),
        ("UPDATE audit_rows SET facts = x'' WHERE seq = 5".into(), Changed, 5),
        ("UPDATE audit_rows SET output = x'00' WHERE seq = 9".into(), Changed, 9),
        ("UPDATE audit_rows SET mac = zeroblob(32) WHERE seq = 9".into(), Changed, 9),
        ("UPDATE audit_rows SET mac = x'01' WHERE seq = 9".into(), Changed, 9),
        ("UPDATE audit_rows SET mac = zeroblob(32) WHERE seq = 21".into(), Changed, 21),
        // The columns beside them.
        ("UPDATE audit_rows SET part = 'note' WHERE seq = 4".into(), Projection, 4),
        ("UPDATE audit_rows SET part = 'nonsense' WHERE seq = 1".into(), Projection, 1),
        ("UPDATE audit_rows SET operation = NULL WHERE seq = 7".into(), Projection, 7),
        ("UPDATE audit_rows SET operation = zeroblob(16) WHERE seq = 6".into(), Projection, 6),
        ("UPDATE audit_rows SET at = at - 1 WHERE seq = 6".into(), Projection, 6),
        // Rows that go.
        ("DELETE FROM audit_rows WHERE seq = 1".into(), Removed, 1),
        ("DELETE FROM audit_rows WHERE seq <= 5".into(), Removed, 1),
        ("DELETE FROM audit_rows WHERE seq = 10".into(), Removed, 10),
        ("DELETE FROM audit_rows WHERE seq IN (12, 13, 15)".into(), Removed, 12),
        ("DELETE FROM audit_rows WHERE seq = 21".into(), CutOff, 21),
        ("DELETE FROM audit_rows WHERE seq > 4".into(), CutOff, 5),
        ("DELETE FROM audit_rows".into(), CutOff, 1),
        ("DELETE FROM audit_rows; DELETE FROM audit_operations; DELETE FROM audit_text".into(), CutOff, 1),
        // Closing the gap behind a row that went.
        ("DELETE FROM audit_rows WHERE seq = 10; UPDATE audit_rows SET seq = seq - 1000 WHERE seq > 10; \
          UPDATE audit_rows SET seq = seq + 999 WHERE seq < 0".into(), Removed, 10),
        // Rows that change places.
        (swap(8, 9), Moved, 8),
        (swap(3, 20), Moved, 3),
        (swap(1, 2), Moved, 1),
        (swap(20, 21), Moved, 20),
        (swap_contents.into(), Moved, 8),
        ("UPDATE audit_rows SET seq = 500 WHERE seq = 5".into(), Moved, 5),
        // Rows that come.
        (forged(22), Added, 22),
        (forged(40), Added, 40),
        (forged(0), Added, 0),
        (forged(-3), Added, 0),
        (format!("DELETE FROM audit_rows WHERE seq = 9; {}", forged(9)), Removed, 9),
    ];
    for (sql, kind, seq) in cases {
        assert_eq!(after(&folder, &sql).await, (kind, seq), "{sql}");
    }
}

#[tokio::test]
async fn what_operations_are_found_by_is_compared_with_their_rows() {
    let folder = Folder::new();
    let trail = folder.open().await;
    trail.fill(10).await;
    let left = trail.ledger.begin(crate::fixture::exec("sleep 1")).await.unwrap();
    trail.close().await;
    assert_eq!(sound(folder.verify().await).open, 1, "{left}");
    for (set, row) in [
        ("operation = zeroblob(16)", 6),
        ("at = at + 1", 6),
        ("high = high + 1", 6),
        ("owner = 'eve'", 6),
        ("key = zeroblob(16)", 6),
        ("kind = 'file.read'", 6),
        ("sandbox = zeroblob(16)", 6),
        ("search = 'echo'", 6),
        ("end_seq = 9", 7),
        ("end_seq = NULL", 7),
        ("outcome = 'lost'", 7),
        ("outcome = NULL", 7),
        ("exit_code = 1", 7),
        ("duration_us = 0", 7),
    ] {
        let sql = format!("UPDATE audit_operations SET {set} WHERE seq = 6");
        assert_eq!(after(&folder, &sql).await, (Projection, row), "{sql}");
    }
    for (sql, row) in [
        ("DELETE FROM audit_operations WHERE seq = 8", 8),
        ("DELETE FROM audit_operations", 2),
        ("UPDATE audit_operations SET seq = 9 WHERE seq = 8", 8),
        // An end that was never written, for the one that has none.
        ("UPDATE audit_operations SET end_seq = 21, outcome = 'ok' WHERE end_seq IS NULL", 22),
        ("UPDATE audit_operations SET exit_code = 0 WHERE end_seq IS NULL", 22),
        // An operation that no row tells of.
        (
            "INSERT INTO audit_operations (seq, operation, at, high, owner, kind, search) \
             VALUES (21, zeroblob(16), 1, 1, 'eve', 'exec', '')",
            22,
        ),
    ] {
        assert_eq!(after(&folder, sql).await, (Projection, row), "{sql}");
    }
}

#[tokio::test]
async fn each_row_is_missed_and_each_byte_counts() {
    let folder = Folder::new();
    folder.filled(4).await;
    for seq in 1..=9 {
        let wanted = if seq == 9 { CutOff } else { Removed };
        assert_eq!(after(&folder, &format!("DELETE FROM audit_rows WHERE seq = {seq}")).await, (wanted, seq));
        let copied = format!(
            "UPDATE audit_rows SET mac = (SELECT mac FROM audit_rows WHERE seq = {}) WHERE seq = {seq}",
            seq % 9 + 1
        );
        assert_eq!(after(&folder, &copied).await, (Changed, seq));
        for byte in [1, 9, 20] {
            let sql = format!(
                "UPDATE audit_rows SET facts = CAST(substr(facts, 1, {byte}) || '~' || substr(facts, {byte} + 2) AS BLOB) \
                 WHERE seq = {seq}"
            );
            let (kind, at) = after(&folder, &sql).await;
            assert!(
                matches!(kind, Changed | Moved | Removed) && at == seq,
                "{kind} {at} for byte {byte} of {seq}"
            );
        }
    }
}

#[tokio::test]
async fn an_old_copy_of_the_database_is_found() {
    let folder = Folder::new();
    folder.filled(5).await;
    let old = folder.copy();
    let trail = folder.open().await;
    trail.fill(5).await;
    trail.close().await;
    std::fs::copy(old.database(), folder.database()).unwrap();
    let fault = faulty(folder.verify().await);
    assert_eq!((fault.kind, fault.seq), (CutOff, 12), "{fault:?}");
}

#[tokio::test]
async fn only_a_memory_outside_finds_an_old_copy_of_both() {
    let folder = Folder::new();
    folder.filled(5).await;
    let old = folder.copy();
    let then = sound(folder.verify().await);
    let trail = folder.open().await;
    trail.fill(5).await;
    trail.close().await;
    let now = sound(folder.verify_with(Some((then.last, then.mac))).await);
    sound(old.verify().await);
    let fault = faulty(old.verify_with(Some((now.last, now.mac))).await);
    assert_eq!((fault.kind, fault.seq), (CutOff, 12), "{fault:?}");
    // It went on from there, as another trail of the same length.
    let trail = old.open().await;
    trail.fill(5).await;
    trail.close().await;
    sound(old.verify().await);
    sound(old.verify_with(Some((then.last, then.mac))).await);
    let fault = faulty(old.verify_with(Some((now.last, now.mac))).await);
    assert_eq!((fault.kind, fault.seq), (Changed, 21), "{fault:?}");
}
