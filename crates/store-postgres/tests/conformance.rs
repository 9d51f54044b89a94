//! PostgreSQL does what every store must. That the suite notices a store that does not is tested with SQLite.

use crate::fixture::Folder;
use atoll_store::conformance::{self, Shared};
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_conforms() {
    let folder = Folder::new();
    let failed = conformance::run(async || Arc::new(folder.fresh().await) as Shared).await;
    assert_eq!(failed, vec![]);
}
