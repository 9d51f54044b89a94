//! Names of trees. A tree is one directory with a disk limit; its id is the only thing a caller chooses.

use atoll_types::{ContainerId, ImageId, Snapshot, VolumeId};

/// Where snapshots are, below the driver's root.
pub(crate) const SNAPSHOTS: &str = "snapshots";

/// Where images are that were sealed. The name of each is its id.
pub(crate) const IMAGES: &str = "images";

/// The folder of a volume that containers attach, and of an image, in which its files lie.
pub const DATA: &str = "data";

/// Where trees are while they are being made.
pub(crate) const STAGING: &str = "new";
/// Where trees are that are about to be freed.
pub(crate) const TRASH: &str = "trash";
/// Where it is written down which volumes are being made what they were in place.
pub(crate) const ROLLBACKS: &str = "rollbacks";
/// Every folder of a driver's root.
pub(crate) const ROOT_FOLDERS: [&str; 9] =
    ["volumes", "scratch", "spools", "temporary", SNAPSHOTS, ROLLBACKS, IMAGES, STAGING, TRASH];
/// Folders nested deeper than this are not walked, compared or copied: each level has a descriptor open or two.
pub(crate) const DEEPEST: usize = 200;

/// The file name of a snapshot, which is its whole record: it appears and goes with the snapshot.
pub(crate) fn snapshot_name(snapshot: &Snapshot) -> String {
    let Snapshot { id, volume, created_unix_ms, size_bytes } = snapshot;
    format!("{volume}.{id}.{created_unix_ms}.{size_bytes}")
}

/// The snapshot with this file name, if the name is one's.
fn snapshot_named(name: &str) -> Option<Snapshot> {
    let mut parts = name.split('.');
    let snapshot = Snapshot {
        volume: parts.next()?.parse().ok()?,
        id: parts.next()?.parse().ok()?,
        created_unix_ms: parts.next()?.parse().ok()?,
        size_bytes: parts.next()?.parse().ok()?,
    };
    (snapshot_name(&snapshot) == name).then_some(snapshot)
}

/// The snapshots with these file names: of one volume, whose names begin alike, or of all.
pub(crate) fn snapshots_named(names: &[String], of: Option<VolumeId>) -> Vec<Snapshot> {
    let prefix = of.map(|volume| format!("{volume}.")).unwrap_or_default();
    names.iter().filter(|name| name.starts_with(&prefix)).filter_map(|name| snapshot_named(name)).collect()
}

/// Its place below the driver's root.
pub(crate) fn snapshot_place(snapshot: &Snapshot) -> String {
    format!("{SNAPSHOTS}/{}", snapshot_name(snapshot))
}

/// The place of an image below the driver's root.
pub(crate) fn image_place(id: ImageId) -> String {
    format!("{IMAGES}/{id}")
}

/// What a fork is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin {
    Volume(VolumeId),
    Snapshot(Snapshot),
    Image(ImageId),
}

/// One directory with a disk limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tree {
    /// What survives stop and restart.
    Volume(VolumeId),
    /// A volume that is thrown away with its container.
    Scratch(ContainerId),
    /// The output of a container's commands.
    Spool(ContainerId),
    /// A container's /tmp. It counts against the limit of the tree that it was made beside.
    Temporary(ContainerId),
}

/// The four sorts of trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TreeKind {
    Volume,
    Scratch,
    Spool,
    Temporary,
}

impl TreeKind {
    /// Every sort.
    pub const ALL: [TreeKind; 4] =
        [TreeKind::Volume, TreeKind::Scratch, TreeKind::Spool, TreeKind::Temporary];

    pub(crate) fn folder(self) -> &'static str {
        match self {
            TreeKind::Volume => "volumes",
            TreeKind::Scratch => "scratch",
            TreeKind::Spool => "spools",
            TreeKind::Temporary => "temporary",
        }
    }

    /// The tree with this file name, if the name is a tree's.
    pub(crate) fn tree(self, name: &str) -> Option<Tree> {
        match self {
            TreeKind::Volume => name.parse().ok().map(Tree::Volume),
            TreeKind::Scratch => name.parse().ok().map(Tree::Scratch),
            TreeKind::Spool => name.parse().ok().map(Tree::Spool),
            TreeKind::Temporary => name.parse().ok().map(Tree::Temporary),
        }
    }
}

impl Tree {
    /// Its sort.
    #[must_use]
    pub fn kind(self) -> TreeKind {
        match self {
            Tree::Volume(_) => TreeKind::Volume,
            Tree::Scratch(_) => TreeKind::Scratch,
            Tree::Spool(_) => TreeKind::Spool,
            Tree::Temporary(_) => TreeKind::Temporary,
        }
    }

    pub(crate) fn name(self) -> String {
        match self {
            Tree::Volume(id) => id.to_string(),
            Tree::Scratch(id) | Tree::Spool(id) | Tree::Temporary(id) => id.to_string(),
        }
    }

    /// Its place below the driver's root.
    pub(crate) fn relative(self) -> String {
        format!("{}/{}", self.kind().folder(), self.name())
    }
}
