//! A full disk is said, undoes what did not fit, and is over when there is space again. The disk is a
//! small tmpfs in a mount namespace of another process.

use crate::fixture::{Folder, again};
use atoll_store::{ListQuery, NewSandbox, Outage, Sandboxes, Sealed, StoreError, conformance::sandbox};
use atoll_store_sqlite::SqliteStore;
use std::{fs, path::PathBuf, process::Command};

const OTHER: &str = "ATOLL_STORE_TEST_FULL_DISK";

fn large() -> NewSandbox {
    NewSandbox { environment: Sealed(vec![7; 40_000]), ..sandbox() }
}

async fn fill_up(store: &SqliteStore) -> (u64, StoreError) {
    for made in 0.. {
        if let Err(error) = store.insert_sandbox(large()).await {
            return (made, error);
        }
    }
    unreachable!()
}

/// The process on the small disk; nothing when run by itself.
#[tokio::test]
async fn the_other_process() {
    let Some(disk) = std::env::var_os(OTHER).map(PathBuf::from) else { return };
    fs::write(disk.join("ballast"), vec![0; 600_000]).unwrap();
    let store = SqliteStore::open(&disk.join("atoll.db")).await.unwrap();
    let (made, error) = fill_up(&store).await;
    assert!(matches!(error, StoreError::Unavailable(Outage::DiskFull, _)), "{error:?}");
    assert!(made > 5);
    let count = async || store.list_sandboxes(&ListQuery::default()).await.unwrap().total;
    assert_eq!(count().await, made, "what did not fit is not there");
    fs::remove_file(disk.join("ballast")).unwrap();
    store.insert_sandbox(large()).await.unwrap();
    assert_eq!(count().await, made + 1);
    store.check().await.unwrap();
    println!("the disk was full after {made}");
}

#[test]
fn a_full_disk_is_said_and_survived() {
    let folder = Folder::new();
    let disk = folder.file().with_extension("disk");
    fs::create_dir(&disk).unwrap();
    let child = again("full_disk::the_other_process", OTHER, &disk);
    let script =
        format!("mount -t tmpfs -o size=3m none '{}' || exit 99; exec \"$0\" \"$@\"", disk.display());
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
