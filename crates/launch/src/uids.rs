//! Which host ids a container's ids are. Every live container of the machine has a range of its own:
//! a range is a file in a folder that all instances share, made exclusively and removed last.

use atoll_launch_proto::Layout;
use atoll_types::{ContainerId, Error, ErrorCode, Result};
use std::{fs, io, io::Write, path::PathBuf};

/// Ids in a range.
const LENGTH: u32 = 65_536;
/// Between what systemd gives to containers and its foreign range: assigned to no other program.
const FIRST: u32 = 0x7000_0000;
/// Ranges from there on.
const FIRST_SLOTS: u32 = 4094;
/// Further ranges begin above the sign bit, where no distribution assigns ids either. They come second because some programs
/// on the host print such ids as negative numbers.
const SECOND: u32 = 0x8000_0000;
/// Ranges on a machine, of both areas. The last ids of all have a meaning of their own.
const SLOTS: u32 = FIRST_SLOTS + 0x7FF0;
/// How many slots of the first area are tried before one of the second.
const TRIES: u32 = 64;

/// The host ids of one container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) base: u32,
    pub(crate) length: u32,
}

/// The range of a slot.
pub(crate) fn range(slot: u32) -> Range {
    let base = match slot.checked_sub(FIRST_SLOTS) {
        None => FIRST + slot * LENGTH,
        Some(further) => SECOND + further * LENGTH,
    };
    Range { base, length: LENGTH }
}

/// The slots to try for a container, in this order: from one of its own on, so that a start does not try every slot that
/// another container has.
fn candidates(container: ContainerId) -> impl Iterator<Item = u32> {
    let start = container.uuid().as_u128();
    let from = |first: u32, slots: u32| {
        let start = u32::try_from(start % u128::from(slots)).unwrap_or(0);
        (0..slots).map(move |n| first + (start + n) % slots)
    };
    let first = from(0, FIRST_SLOTS);
    first.clone().take(TRIES as usize).chain(from(FIRST_SLOTS, SLOTS - FIRST_SLOTS)).chain(first)
}

fn folder() -> PathBuf {
    Layout::machine().join("uids")
}

/// Takes a free slot for a container, whose folder must exist already: a slot whose container
/// has no folder is a leftover.
pub(crate) fn take(layout: &Layout, container: ContainerId) -> Result<u32> {
    let fault = |e: io::Error| Error::internal(format!("cannot reserve user ids: {e}"));
    fs::create_dir_all(folder()).map_err(fault)?;
    for slot in candidates(container) {
        match fs::File::create_new(folder().join(slot.to_string())) {
            Ok(mut file) => {
                write!(file, "{} {container}", layout.instance()).map_err(fault)?;
                return Ok(slot);
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(fault(e)),
        }
    }
    Err(Error::new(
        ErrorCode::LimitExceeded,
        format!("{SLOTS} containers live on this machine: no user ids left"),
    ))
}

/// Gives a slot back, if it is this container's.
pub(crate) fn release(layout: &Layout, slot: u32, container: ContainerId) -> io::Result<()> {
    let path = folder().join(slot.to_string());
    match fs::read_to_string(&path) {
        Ok(owner) if owner == format!("{} {container}", layout.instance()) => fs::remove_file(path),
        Ok(_) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

/// Frees slots whose container has no folder any more, of whatever instance. Returns how many.
pub(crate) fn repair() -> usize {
    let Ok(entries) = fs::read_dir(folder()) else { return 0 };
    let stale = entries.flatten().filter(|entry| {
        let owner = fs::read_to_string(entry.path()).unwrap_or_default();
        match owner.split_once(' ') {
            Some((instance, container)) if container.parse::<ContainerId>().is_ok() => {
                !instance.contains(['/', '.'])
                    && !Layout::machine().join(instance).join("c").join(container).exists()
            }
            // Cut off between making and writing; young ones may still be written.
            _ => entry
                .metadata()
                .and_then(|m| m.modified())
                .is_ok_and(|t| t.elapsed().is_ok_and(|age| age.as_secs() > 60)),
        }
    });
    stale.filter(|entry| fs::remove_file(entry.path()).is_ok()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_do_not_touch_and_stay_within_their_areas() {
        for slot in (1..SLOTS).filter(|slot| *slot != FIRST_SLOTS) {
            assert_eq!(range(slot - 1).base + LENGTH, range(slot).base);
        }
        let end = |slot: u32| range(slot).base.checked_add(LENGTH);
        assert_eq!(range(FIRST_SLOTS).base, SECOND);
        assert!(end(FIRST_SLOTS - 1).is_some_and(|end| end <= 0x7FFE_0000));
        assert!(end(SLOTS - 1).is_some_and(|end| end < u32::MAX - LENGTH));
    }

    #[test]
    fn every_slot_is_a_candidate_and_the_first_area_comes_first() {
        let container = ContainerId::random();
        let all: Vec<u32> = candidates(container).collect();
        assert!(all.iter().take(TRIES as usize).all(|slot| *slot < FIRST_SLOTS));
        let different: std::collections::BTreeSet<u32> = all.into_iter().collect();
        assert_eq!(different.into_iter().collect::<Vec<_>>(), (0..SLOTS).collect::<Vec<_>>());
    }
}
