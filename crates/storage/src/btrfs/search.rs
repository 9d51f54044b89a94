//! Reads btrfs trees: groups with their use and limits, and which group or subvolume is nested in which. Uses are
//! as of the last commit; limits and relations are as of now.

use super::ioctl::Search;
use rustix::io::{Errno, Result};
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::AsFd;

const ROOT_TREE: u64 = 1;
const CHUNK_TREE: u64 = 3;
const QUOTA_TREE: u64 = 8;
const ORPHANS: u64 = -5_i64 as u64;
const ORPHAN_ITEM: u32 = 48;
const ROOT_ITEM: u32 = 132;
const ROOT_REF: u32 = 156;
const CHUNK_ITEM: u32 = 228;
const CHUNKS: u64 = 256;
const CHUNK_IS_DATA: u64 = 1;
const GROUP_INFO: u32 = 242;
const GROUP_LIMIT: u32 = 244;
const GROUP_RELATION: u32 = 246;

/// What a group uses and may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) used: u64,
    pub(super) limit: Option<u64>,
}

/// Every group by its id.
pub(super) fn groups(any: impl AsFd) -> Result<BTreeMap<u64, Group>> {
    let mut groups = BTreeMap::new();
    search(any, Search::new(QUOTA_TREE, 0, (GROUP_INFO, GROUP_LIMIT)), |item| collect(&mut groups, item))?;
    Ok(groups)
}

/// One group.
pub(super) fn group(any: impl AsFd, id: u64) -> Result<Option<Group>> {
    let mut groups = BTreeMap::new();
    for kind in [GROUP_INFO, GROUP_LIMIT] {
        let mut one = Search::new(QUOTA_TREE, 0, (kind, kind));
        (one.min_offset, one.max_offset) = (id, id);
        search(&any, one, |item| collect(&mut groups, item))?;
    }
    Ok(groups.remove(&id))
}

/// The groups inside a group.
pub(super) fn members(any: impl AsFd, group: u64) -> Result<Vec<u64>> {
    let mut members = Vec::new();
    search(any, Search::new(QUOTA_TREE, group, (GROUP_RELATION, GROUP_RELATION)), |item| {
        // A relation is stored on both sides; a member is of a lower level.
        if item.offset < group {
            members.push(item.offset);
        }
    })?;
    Ok(members)
}

/// The groups that a group is in.
pub(super) fn parents(any: impl AsFd, group: u64) -> Result<Vec<u64>> {
    let mut parents = Vec::new();
    search(any, Search::new(QUOTA_TREE, group, (GROUP_RELATION, GROUP_RELATION)), |item| {
        if item.offset > group {
            parents.push(item.offset);
        }
    })?;
    Ok(parents)
}

/// A part of the device that is in use.
pub(super) struct Chunk {
    pub(super) place: Range<u64>,
    /// Whether it holds nothing but files' content.
    pub(super) data: bool,
}

/// What of the device is in use. There is one device, and one copy of everything on it.
pub(super) fn chunks(any: impl AsFd) -> Result<Vec<Chunk>> {
    let mut chunks = Vec::new();
    search(any, Search::new(CHUNK_TREE, CHUNKS, (CHUNK_ITEM, CHUNK_ITEM)), |item| {
        // A chunk: its length, owner, stripe length and type, 16 bytes of sizes; then a device's id and the place.
        let (length, kind, at) = (word(item.data, 0), word(item.data, 24), word(item.data, 56));
        if let (Some(length), Some(kind), Some(at)) = (length, kind, at) {
            let data = kind & 7 == CHUNK_IS_DATA;
            chunks.push(Chunk { place: at..at.saturating_add(length), data });
        }
    })?;
    Ok(chunks)
}

/// The subvolumes directly inside a subvolume.
pub(super) fn nested(any: impl AsFd, subvolume: u64) -> Result<Vec<u64>> {
    let mut nested = Vec::new();
    search(any, Search::new(ROOT_TREE, subvolume, (ROOT_REF, ROOT_REF)), |item| nested.push(item.offset))?;
    Ok(nested)
}

/// Whether a subvolume is there, or being freed.
pub(super) fn exists(any: impl AsFd, subvolume: u64) -> Result<bool> {
    let mut found = false;
    search(any, Search::new(ROOT_TREE, subvolume, (ROOT_ITEM, ROOT_ITEM)), |_| found = true)?;
    Ok(found)
}

/// Whether removed subvolumes are still being freed.
pub(super) fn freeing(any: impl AsFd) -> Result<bool> {
    let mut found = false;
    search(any, Search::new(ROOT_TREE, ORPHANS, (ORPHAN_ITEM, ORPHAN_ITEM)), |_| found = true)?;
    Ok(found)
}

struct Item<'a> {
    object: u64,
    kind: u32,
    offset: u64,
    data: &'a [u8],
}

fn collect(groups: &mut BTreeMap<u64, Group>, item: &Item<'_>) {
    match item.kind {
        GROUP_INFO => groups.entry(item.offset).or_default().used = word(item.data, 8).unwrap_or(0),
        GROUP_LIMIT => {
            let limited = word(item.data, 0).is_some_and(|flags| flags & 1 != 0);
            groups.entry(item.offset).or_default().limit = word(item.data, 8).filter(|_| limited);
        }
        _ => {}
    }
}

fn word(data: &[u8], at: usize) -> Option<u64> {
    data.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

/// Item headers are in the machine's own byte order, item data is little-endian.
fn header(buffer: &[u8]) -> Option<Item<'_>> {
    let wide = |at: usize| buffer.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
    let half = |at: usize| buffer.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let data = buffer.get(32..32 + usize::try_from(half(28)?).ok()?)?;
    Some(Item { object: wide(8)?, offset: wide(16)?, kind: half(24)?, data })
}

fn search(any: impl AsFd, mut page: Box<Search>, mut each: impl FnMut(&Item<'_>)) -> Result<()> {
    loop {
        match page.run(&any) {
            // No quota tree: no groups.
            Err(Errno::NOENT) => return Ok(()),
            done => done?,
        }
        if page.items == 0 {
            return Ok(());
        }
        let (mut at, mut next) = (0, None);
        for _ in 0..page.items {
            let item = page.buffer.get(at..).and_then(header).ok_or(Errno::IO)?;
            each(&item);
            at += 32 + item.data.len();
            next = Some((item.object, item.kind, item.offset));
        }
        let Some((object, kind, offset)) = next else { return Ok(()) };
        let Some(after) = offset.checked_add(1) else { return Ok(()) };
        (page.min_object, page.min_type, page.min_offset) = (object, kind, after);
    }
}
