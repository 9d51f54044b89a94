//! Ceilings of the machine as a whole that sandboxes would reach together before any reaches its own: then
//! neighbours and the server would get nothing. What they count is bounded for each sandbox by its memory
//! and its processes, so they can be high; they are raised and never lowered.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{fs, io};

/// Below /proc/sys. The first two are what systemd sets.
const CEILINGS: [(&str, u64); 3] =
    [("fs/file-max", i64::MAX as u64), ("kernel/pid_max", 4_194_304), ("kernel/pty/max", 65_536)];

/// Raises them. A machine that does not allow it keeps its own.
pub(crate) fn raise() {
    raise_core_limit();
    for (name, wanted) in CEILINGS {
        if let Err(error) = raise_one(&format!("/proc/sys/{name}"), wanted) {
            tracing::warn!(name, %error, "a ceiling of the machine cannot be raised");
        }
    }
}

/// PID 1 sets a core limit of one byte, which it cannot where the launcher was started with a hard limit of 0, as
/// sudo may do. Only a launcher with CAP_SYS_RESOURCE can raise it; without it PID 1 keeps 0.
fn raise_core_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Core);
    if maximum == Some(0) && setrlimit(Resource::Core, Rlimit { current, maximum: Some(1) }).is_err() {
        tracing::warn!("the limit of core files stays 0: a piped core_pattern sees the crashes of sandboxes");
    }
}

fn raise_one(path: &str, wanted: u64) -> io::Result<()> {
    match fs::read_to_string(path)?.trim().parse::<u64>() {
        Ok(present) if present >= wanted => Ok(()),
        _ => fs::write(path, wanted.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ceiling_is_raised_and_never_lowered() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        for (present, expected) in [("32768\n", "100000"), ("100000\n", "100000\n"), ("200000\n", "200000\n")]
        {
            fs::write(path, present).unwrap();
            raise_one(path, 100_000).unwrap();
            assert_eq!(fs::read_to_string(path).unwrap(), expected);
        }
        assert!(raise_one("/nonexistent", 1).is_err());
    }
}
