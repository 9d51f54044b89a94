//! A rename over a file with several names. The kernel reports the victim's lost link at no name, and
//! merges it into an earlier report of the same thread on the same file: `ln f f.bak; mv new f` looks as
//! if there had been no `f`. But a file that was there before must have had a name then; when all names
//! that it is known to have had are new, the rename took its old one.
//!
//! What stays in doubt: a victim that had two names or more when the window opened, and whose other
//! names were linked or deleted by the same thread. Its place is then said to be created, not modified.

use crate::{life::Start, touched::names_of, tree::Tree, window::Window};

/// Settles the renames in doubt.
pub(crate) fn settle(tree: &Tree, window: &mut Window) {
    for (thread, dir, name) in std::mem::take(&mut window.doubtful) {
        let mine = window.linked.iter().filter(|(_, linker)| **linker == thread);
        let victim = mine.map(|(inode, _)| *inode).find(|inode| lost_its_name(tree, window, *inode));
        let life = window.names.get_mut(&dir).and_then(|names| names.get_mut(&name));
        if let (Some(victim), Some(life)) = (victim, life)
            && life.start != Start::Unsure(victim)
        {
            life.replaced(victim);
            window.linked.remove(&victim);
        }
    }
}

/// Whether a file is older than the window and all the names that it has are not.
fn lost_its_name(tree: &Tree, window: &Window, inode: u64) -> bool {
    let turned = |dir: &u64, name: &[u8]| window.names.get(dir).is_some_and(|names| names.contains_key(name));
    let (names, more) = names_of(tree, inode);
    let lives = || window.names.values().flat_map(|names| names.values());
    !more
        && names.iter().all(|(dir, name, found)| turned(dir, name) && found.born < window.opened)
        && lives().all(|life| life.start != Start::Was(inode))
}
