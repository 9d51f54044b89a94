//! Resolves names that merged events left uncertain. `ln f f.bak; mv new f` looks as if there had been no `f`,
//! since the event for the link that `f` loses is merged into the one for the link that it had gained. But a file
//! that existed before had as many names as the last answer found, or one at least: when fewer are known, the
//! others are among the uncertain names.
//!
//! What stays uncertain: a file with several names from before it was watched, some of which the same thread
//! linked or deleted. A name of it that a rename took then counts as new.

use crate::{
    life::Start,
    links::{Links, RenamedName, Suspect},
    touched::names_of,
    tree::Tree,
    window::Window,
};
use std::collections::HashMap;

/// Uncertain names by the files that may have had them.
type Perhaps = HashMap<u64, Vec<RenamedName>>;

/// Resolves the uncertain names. True: a name is missing that cannot be found.
pub(crate) fn settle(tree: &Tree, window: &mut Window) -> bool {
    let mut links = std::mem::take(&mut window.links);
    let mut lost = false;
    if !links.suspects.is_empty() {
        let (was, mut perhaps) = look_through(window);
        for (inode, suspect) in std::mem::take(&mut links.suspects) {
            let known = links.several.contains_key(&inode);
            if known || links.has_doubts() || perhaps.contains_key(&inode) {
                let known = was.get(&inode).copied().unwrap_or(0);
                lost |= settle_one(tree, window, &mut links, &mut perhaps, (inode, &suspect, known));
            }
        }
    }
    window.links = links;
    lost
}

fn settle_one(
    tree: &Tree,
    window: &mut Window,
    links: &mut Links,
    perhaps: &mut Perhaps,
    (inode, suspect, known): (u64, &Suspect, u32),
) -> bool {
    let (names, more) = names_of(tree, inode);
    let is_new = |dir: &u64, name: &[u8]| window.names.get(dir).is_some_and(|names| names.contains_key(name));
    let kept = names.iter().filter(|(dir, name, _)| !is_new(dir, name)).count();
    let older = names.first().map_or(suspect.older, |(_, _, found)| window.is_older(found));
    let several = links.several.get(&inode).copied();
    let had = several.unwrap_or(u32::from(older));
    links.remember(inode, u32::try_from(names.len()).unwrap_or(u32::MAX));
    for _ in known.saturating_add(u32::try_from(kept).unwrap_or(u32::MAX))..had {
        let place = links.take_doubt(inode, suspect).or_else(|| perhaps.get_mut(&inode)?.pop());
        let life = place.and_then(|(dir, name)| window.names.get_mut(&dir)?.get_mut(&name));
        match life {
            Some(life) => life.was(inode),
            None => return several.is_some() || more,
        }
    }
    more
}

/// How many names of each file are known, and the uncertain names that may be others.
fn look_through(window: &Window) -> (HashMap<u64, u32>, Perhaps) {
    let (mut was, mut perhaps) = (HashMap::new(), Perhaps::new());
    for (dir, names) in &window.names {
        for (name, life) in names {
            if let Start::Was(inode) = life.start {
                *was.entry(inode).or_default() += 1;
            }
            if let Some(inode) = life.perhaps() {
                perhaps.entry(inode).or_default().push((*dir, name.clone()));
            }
        }
    }
    (was, perhaps)
}
