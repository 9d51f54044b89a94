//! The folder of the state that this program keeps for its user.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The user's state folder for Atoll, `$XDG_STATE_HOME/atoll` or `~/.local/state/atoll`; none where it would
/// be in another user's home, as after `sudo` with the caller's variables: files that root makes there would
/// be root's.
#[must_use]
pub fn state_dir() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let state =
        variable("XDG_STATE_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/state")))?;
    is_own(&state, rustix::process::geteuid().as_raw()).then(|| state.join("atoll"))
}

/// Whether files below a path become this user's own. An ordinary user cannot make any elsewhere, so only
/// root has to check the owner of the nearest folder.
fn is_own(path: &Path, uid: u32) -> bool {
    let owner = path.ancestors().find_map(|folder| Some(std::fs::metadata(folder).ok()?.uid()));
    uid != 0 || owner == Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_makes_nothing_in_the_home_of_another() {
        let home = tempfile::tempdir().unwrap();
        let state = home.path().join("no/such/folder");
        let owner = std::fs::metadata(home.path()).unwrap().uid();
        assert!(is_own(&state, 4242), "an ordinary user makes what it may");
        assert_eq!(is_own(&state, 0), owner == 0);
        if owner == 0 {
            std::os::unix::fs::chown(home.path(), Some(4242), None).unwrap();
            assert!(!is_own(&state, 0));
        }
    }
}
