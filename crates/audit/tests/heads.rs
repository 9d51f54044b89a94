//! The head is not to be trusted more than the rows: deleted, edited or old, it is found; and once noted,
//! it is told for ever.

use crate::fixture::{Folder, faulty, sound};
use atoll_audit::{FaultKind, Verdict};
use atoll_store::NoteKind;
use std::fs;

#[tokio::test]
async fn a_head_that_was_touched_is_found() {
    let folder = Folder::new();
    folder.filled(3).await;
    let early = fs::read(folder.head()).unwrap();
    let trail = folder.open().await;
    trail.fill(3).await;
    trail.close().await;
    let late = fs::read(folder.head()).unwrap();
    let kind = async || faulty(folder.verify().await).kind;
    fs::remove_file(folder.head()).unwrap();
    assert_eq!(kind().await, FaultKind::HeadMissing);
    fs::write(folder.head(), &early).unwrap();
    assert_eq!(kind().await, FaultKind::HeadForged, "an old one");
    fs::write(folder.head(), b"").unwrap();
    assert_eq!(kind().await, FaultKind::HeadForged, "an empty one");
    let edited = String::from_utf8(late.clone()).unwrap().replace("\"seq\":13", "\"seq\":11");
    assert_ne!(edited.as_bytes(), late);
    fs::write(folder.head(), edited).unwrap();
    assert_eq!(kind().await, FaultKind::HeadForged, "an edited one");
    fs::write(folder.head(), &late).unwrap();
    sound(folder.verify().await);
    // A row is changed and the head is gone: the row comes first.
    fs::remove_file(folder.head()).unwrap();
    folder.tamper("UPDATE audit_rows SET output = x'00' WHERE seq = 5").await;
    assert_eq!(faulty(folder.verify().await).seq, 5);
}

#[tokio::test]
async fn going_on_does_not_hide_what_was_done() {
    let cases: [(&str, NoteKind, FaultKind); 5] = [
        ("cut off", NoteKind::HeadAhead, FaultKind::CutOff),
        ("no head", NoteKind::HeadMissing, FaultKind::HeadMissing),
        ("old head", NoteKind::HeadOld, FaultKind::HeadForged),
        ("forged head", NoteKind::HeadForged, FaultKind::HeadForged),
        ("changed end", NoteKind::HeadDiffers, FaultKind::Changed),
    ];
    for (what, note, kind) in cases {
        let folder = Folder::new();
        folder.filled(3).await;
        let early = fs::read(folder.head()).unwrap();
        let trail = folder.open().await;
        trail.fill(3).await;
        trail.close().await;
        match what {
            "cut off" => {
                let sql =
                    "DELETE FROM audit_rows WHERE seq > 11; DELETE FROM audit_operations WHERE seq > 11";
                folder.tamper(sql).await;
            }
            "no head" => fs::remove_file(folder.head()).unwrap(),
            "old head" => fs::write(folder.head(), &early).unwrap(),
            "forged head" => fs::write(folder.head(), b"x\ny\n").unwrap(),
            _ => folder.tamper("UPDATE audit_rows SET mac = zeroblob(32) WHERE seq = 13").await,
        }
        for round in 0..3 {
            let trail = folder.open().await;
            let evidence = &trail.opened.evidence;
            assert_eq!(evidence.iter().map(|e| e.kind).collect::<Vec<_>>(), [note], "{what}, start {round}");
            trail.fill(2).await;
            trail.close().await;
            let Verdict::Faulty { first, noted } = folder.verify().await else {
                panic!("{what} was forgotten")
            };
            let told = noted.iter().chain([&first]).any(|fault| fault.kind == kind);
            assert!(told, "{what}: {first:?}, {noted:?}");
        }
        // Nor does removing the rows that told of it.
        if what != "changed end" {
            let trail = folder.open().await;
            trail.ledger.cleanup(i64::MAX, None).await.unwrap();
            trail.close().await;
            let trail = folder.open().await;
            assert_eq!(trail.opened.evidence.len(), 1, "{what}");
            trail.close().await;
            assert_eq!(faulty(folder.verify().await).kind, kind, "{what} was removed");
        }
    }
}

#[tokio::test]
async fn a_lost_database_is_not_a_new_beginning() {
    let folder = Folder::new();
    folder.filled(3).await;
    fs::remove_file(folder.database()).unwrap();
    let trail = folder.open().await;
    assert_eq!(trail.opened.evidence[0].kind, NoteKind::HeadAhead);
    trail.close().await;
    let fault = faulty(folder.verify().await);
    assert_eq!((fault.kind, fault.seq), (FaultKind::CutOff, 1));
    assert!(fault.text.contains("row 7"), "{}", fault.text);
}

#[tokio::test]
async fn another_secret_proves_nothing() {
    let folder = Folder::new();
    folder.filled(3).await;
    let store = atoll_store_sqlite::SqliteStore::open_read_only(&folder.database()).await.unwrap();
    let other = atoll_audit::AuditKey::from_secret(&[6; 32]);
    let verdict = atoll_audit::verify(&store, &other, &folder.head(), None).await.unwrap();
    assert_eq!(faulty(verdict).seq, 1);
}

#[tokio::test]
async fn nothing_yet_is_sound() {
    let folder = Folder::new();
    atoll_store_sqlite::SqliteStore::open(&folder.database()).await.unwrap().close().await;
    assert_eq!(sound(folder.verify().await).last, 0);
    folder.filled(0).await;
    assert_eq!(sound(folder.verify().await).last, 1);
}

#[tokio::test]
async fn a_running_server_can_be_verified() {
    let folder = Folder::new();
    let trail = folder.open().await;
    let (ledger, store) = (trail.ledger.clone(), trail.store.clone());
    let writing = tokio::spawn(async move {
        let trail = crate::fixture::Trail { store, ledger: ledger.clone(), opened: trail.opened };
        for round in 0..20 {
            trail.fill(20).await;
            if round % 5 == 4 {
                ledger.cleanup(i64::MAX, None).await.unwrap();
            }
        }
        trail.close().await;
    });
    let mut verified = 0;
    while !writing.is_finished() {
        sound(folder.verify().await);
        verified += 1;
    }
    writing.await.unwrap();
    assert!(verified > 0);
    sound(folder.verify().await);
}
