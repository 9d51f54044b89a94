//! Which operations a piece of work causes, for libraries that link what they did to the audit trail.

use atoll_store::OperationId;
use std::sync::{Arc, Mutex, PoisonError};

/// The most operations that are remembered of one piece of work.
const MOST: usize = 64;

tokio::task_local! {
    static CAUSED: Arc<Mutex<Vec<OperationId>>>;
}

/// Does work, and tells the operations that it began in the audit trail, in their order. What it leaves to tasks of its own is not
/// among them.
pub async fn caused_by<T>(work: impl Future<Output = T>) -> (T, Vec<OperationId>) {
    let caused = Arc::new(Mutex::new(Vec::new()));
    let done = CAUSED.scope(Arc::clone(&caused), work).await;
    let caused = std::mem::take(&mut *caused.lock().unwrap_or_else(PoisonError::into_inner));
    (done, caused)
}

/// An operation has its first row.
pub(crate) fn note(operation: OperationId) {
    let noted = CAUSED.try_with(|caused| {
        let mut caused = caused.lock().unwrap_or_else(PoisonError::into_inner);
        if caused.len() < MOST {
            caused.push(operation);
        }
    });
    // Most work is done for callers who do not ask.
    let _ = noted;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn operations_belong_to_the_work_that_began_them() {
        let ids: Vec<_> = (0..3).map(|_| OperationId::random()).collect();
        note(ids[2]);
        let work = |id: OperationId| async move {
            tokio::task::yield_now().await;
            note(id);
        };
        let (((), first), ((), second)) =
            futures_util::join!(caused_by(work(ids[0])), caused_by(work(ids[1])));
        assert_eq!((first, second), (vec![ids[0]], vec![ids[1]]));
        let ((), many) = caused_by(async { (0..2 * MOST).for_each(|_| note(ids[0])) }).await;
        assert_eq!(many.len(), MOST);
    }
}
