//! How many files and connections the server may have open. What a login shell allows, often 1024, is less
//! than the connections of one sandbox need, and whoever uses up the rest would end the API.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What the server needs besides connections of sandboxes, where it can have that many.
const OTHERS: u64 = 1024;

/// As many as the server may have.
pub(super) fn raise() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(%error, "the limit of open files cannot be raised");
    }
}

/// The connections of sandboxes that there is room for; none where there is no limit.
pub(super) fn for_connections() -> Option<u64> {
    getrlimit(Resource::Nofile).current.map(room)
}

/// Each takes two. What is scarce is shared with everything else by halves.
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
