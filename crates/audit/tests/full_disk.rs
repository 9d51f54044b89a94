//! On a full disk nothing is done that could not be written down, and nothing is half-written; what ended
//! meanwhile is written when there is space again. The disk is a small tmpfs in a mount namespace of another
//! process.

use crate::fixture::{Folder, again, done, exec, key};
use atoll_audit::{Ledger, Verdict, verify};
use atoll_store::{Audits, Begin, Detail, OperationQuery};
use atoll_store_sqlite::SqliteStore;
use atoll_types::ErrorCode;
use std::{fs, path::PathBuf, process::Command, sync::Arc};

const OTHER: &str = "ATOLL_AUDIT_TEST_FULL_DISK";

/// The process on the small disk; nothing when run by itself.
#[tokio::test]
async fn the_other_process() {
    let Some(disk) = std::env::var_os(OTHER).map(PathBuf::from) else { return };
    fs::write(disk.join("ballast"), vec![0; 800_000]).unwrap();
    let (file, head) = (disk.join("atoll.db"), disk.join("audit.head"));
    let store = SqliteStore::open(&file).await.unwrap();
    let (ledger, _) = Ledger::open(Arc::new(store.clone()), key(), &head).await.unwrap();
    let mut begun = Vec::new();
    let refused = loop {
        let detail = Detail::new(&format!("{} {}", begun.len(), "x".repeat(4000)));
        match ledger.start(Begin { detail, ..exec("") }).await {
            Ok(operation) => begun.push(operation),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.code, ErrorCode::Unavailable, "{refused}");
    assert!(begun.len() > 5);
    let count = begun.len() as u64;
    let ids: Vec<_> = begun.iter().map(atoll_audit::OperationGuard::id).collect();
    // Fills the rest, so that not even an end fits.
    fs::write(disk.join("rest"), vec![0; 10_000_000]).unwrap_err();
    let mut failed = 0;
    for operation in begun {
        failed += u64::from(operation.end(done(), vec![], vec![]).await.is_err());
    }
    assert!(failed > 0);
    let Verdict::Sound(report) = verify(&store, &key(), &head, None).await.unwrap() else { panic!() };
    assert_eq!(report.operations, count, "what was refused left nothing");
    fs::remove_file(disk.join("ballast")).unwrap();
    fs::remove_file(disk.join("rest")).unwrap();
    // What could not be written is, with the next that comes.
    ledger.begin(exec("ls")).await.unwrap();
    for id in ids {
        assert!(store.audit_operation(id).await.unwrap().unwrap().end.is_some());
    }
    ledger.close().await;
    let Verdict::Sound(report) = verify(&store, &key(), &head, None).await.unwrap() else { panic!() };
    assert_eq!((report.operations, report.open), (count + 1, 1));
    assert_eq!(store.audit_operations(&OperationQuery::default()).await.unwrap()[0].begin.detail.text, "ls");
    store.check().await.unwrap();
    println!("the disk was full after {count}");
}

#[test]
fn a_full_disk_refuses_and_forgets_nothing() {
    let folder = Folder::new();
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let child = again("full_disk::the_other_process", OTHER, &disk);
    let script =
        format!("mount -t tmpfs -o size=4m none '{}' || exit 99; exec \"$0\" \"$@\"", disk.display());
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", &script])
        .arg(child.get_program())
        .args(child.get_args())
        .env(OTHER, &disk)
        .output()
        .unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(99) || said.contains("unshare failed") {
        eprintln!("left out: no mount namespace here: {said}");
        return;
    }
    assert!(output.status.success() && said.contains("the disk was full"), "{said}");
}
