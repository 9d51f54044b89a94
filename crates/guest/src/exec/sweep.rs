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
    let mut rounds = 0;
    while rounds < ROUNDS {
        // Taken anew each round: commands may have started while we slept, and their shims are safe.
        let spared = execs.shims_except(lost);
        let killed = Tree::new().and_then(|mut tree| {
            let _ = tree.signal_below(me, &spared, libc::SIGSTOP);
            tree.signal_below(me, &spared, libc::SIGKILL)
        });
        match killed {
            Ok(0) => return,
            Ok(_) => rounds += 1,
            // Without memory or a descriptor to look with, nothing is known to be dead.
            Err(_) => {}
        }
        tokio::time::sleep(ROUND).await;
    }
}
