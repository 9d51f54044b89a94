//! Kills processes that have no shim. Every child of PID 1 is a shim, so after a shim was killed, all processes
//! below PID 1 and below no living shim were its.

use super::{registry::Execs, tree::Tree};
use atoll_types::ExecId;
use std::time::Duration;

/// Rounds before giving up on processes that do not die, as in uninterruptible sleep.
const ROUNDS: usize = 500;
const ROUND: Duration = Duration::from_millis(10);

/// Kills until nothing of a lost command is found.
pub(crate) async fn sweep(execs: &Execs, lost: ExecId) {
    let me = std::process::id() as i32;
    for _ in 0..ROUNDS {
        // Taken anew each round: commands may have started while we slept, and their shims are safe.
        let spared = execs.shims_except(lost);
        let Ok(mut tree) = Tree::new() else { return };
        let _ = tree.signal_below(me, &spared, libc::SIGSTOP);
        if !matches!(tree.signal_below(me, &spared, libc::SIGKILL), Ok(1..)) {
            return;
        }
        drop(tree);
        tokio::time::sleep(ROUND).await;
    }
}
