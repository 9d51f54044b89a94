//! The limit on the server's open files and connections. A login shell's, often 1024, is less than the
//! connections of one sandbox need, and a sandbox that used up the rest would take the API down.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What the server reserves besides connections of sandboxes, where the limit is high enough.
const OTHERS: u64 = 1024;

/// Raises the limit as far as the server may.
pub(super) fn raise() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(%error, "the limit of open files cannot be raised");
    }
}

/// How many connections of sandboxes fit; none where there is no limit.
pub(super) fn for_connections() -> Option<u64> {
    getrlimit(Resource::Nofile).current.map(room)
}

/// Each takes two. A low limit is divided in halves between connections and everything else.
fn room(limit: u64) -> u64 {
    (limit - OTHERS.min(limit / 2)) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_never_take_it_all() {
        assert_eq!([0, 1024, 4096, 524_288].map(room), [0, 256, 1536, 261_632]);
    }

    #[test]
    fn the_limit_is_raised_as_far_as_it_goes() {
        raise();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current, maximum);
        assert_eq!(for_connections(), maximum.map(room));
    }
}
