//! Parses the kernel's fanotify events: one event is a mask, the thread that caused it, and up to three file
//! handles. Layouts are those of <linux/fanotify.h> and of btrfs's own handles; anything else is skipped.

/// A thread, of the sandbox or of any other process.
pub(crate) type Thread = i32;

const VERSION: u8 = 3;
/// The smallest size of an event.
pub(crate) const METADATA: usize = 24;
/// Type, length and file-system id before each handle, then its own length and type.
const INFO: usize = 20;
const BTRFS_HANDLE: i32 = 0x4d;

/// An inode of a subvolume. Btrfs never gives a number twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Inode {
    pub(crate) root: u64,
    pub(crate) number: u64,
}

/// A name in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Named<'a> {
    pub(crate) dir: Inode,
    pub(crate) name: &'a [u8],
}

/// One event, perhaps merged with later ones by the same thread on the same name.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event<'a> {
    pub(crate) mask: u64,
    pub(crate) thread: Thread,
    /// The folder and name; of a rename, the old ones.
    pub(crate) at: Option<Named<'a>>,
    /// Of a rename, the new folder and name.
    pub(crate) to: Option<Named<'a>>,
    /// The inode that the event is about.
    pub(crate) inode: Option<Inode>,
}

impl Event<'_> {
    pub(crate) fn has(&self, any: u64) -> bool {
        self.mask & any != 0
    }

    /// The subvolume of the event.
    pub(crate) fn root(&self) -> Option<u64> {
        self.at.map(|at| at.dir.root).or(self.inode.map(|inode| inode.root))
    }
}

/// The events of one read.
pub(crate) struct Events<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Events<'a> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        let length = u32::from_ne_bytes(bytes(self.0, 0)?) as usize;
        let event = self.0.get(..length).filter(|_| length >= METADATA)?;
        self.0 = self.0.get(length..)?;
        parse(event)
    }
}

fn parse(data: &[u8]) -> Option<Event<'_>> {
    if data.get(4) != Some(&VERSION) {
        return None;
    }
    let mut rest = data.get(usize::from(u16::from_ne_bytes(bytes(data, 6)?))..)?;
    let mut event = Event {
        mask: u64::from_ne_bytes(bytes(data, 8)?),
        thread: i32::from_ne_bytes(bytes(data, 20)?),
        ..Event::default()
    };
    while let Some(length) = bytes(rest, 2).map(|b| usize::from(u16::from_ne_bytes(b))) {
        let (Some(record), Some(after)) = (rest.get(..length), rest.get(length..)) else { break };
        if length == 0 {
            break;
        }
        read_record(record, &mut event);
        rest = after;
    }
    Some(dotless(event))
}

fn read_record<'a>(record: &'a [u8], event: &mut Event<'a>) {
    let Some((inode, name)) = handle(record) else { return };
    match record.first().copied() {
        Some(libc::FAN_EVENT_INFO_TYPE_FID) => event.inode = Some(inode),
        Some(libc::FAN_EVENT_INFO_TYPE_DFID_NAME | libc::FAN_EVENT_INFO_TYPE_OLD_DFID_NAME) => {
            event.at = Some(Named { dir: inode, name });
        }
        Some(libc::FAN_EVENT_INFO_TYPE_NEW_DFID_NAME) => event.to = Some(Named { dir: inode, name }),
        _ => {}
    }
}

fn handle(record: &[u8]) -> Option<(Inode, &[u8])> {
    let length = u32::from_ne_bytes(bytes(record, 12)?) as usize;
    if i32::from_ne_bytes(bytes(record, 16)?) != BTRFS_HANDLE {
        return None;
    }
    let number = u64::from_ne_bytes(bytes(record, INFO)?);
    let root = u64::from_ne_bytes(bytes(record, INFO + 8)?);
    let name = record.get(INFO.checked_add(length)?..)?;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Some((Inode { root, number }, name))
}

/// An event on a folder itself names it `.`: then the folder is the event's inode, and there is no name.
fn dotless(event: Event<'_>) -> Event<'_> {
    match event.at {
        Some(at) if at.name == b"." => Event { at: None, inode: Some(at.dir), ..event },
        _ => event,
    }
}

fn bytes<const N: usize>(data: &[u8], at: usize) -> Option<[u8; N]> {
    data.get(at..at.checked_add(N)?)?.try_into().ok()
}
