//! Trees and layers for the tests of images.

use atoll_guest_tools::{
    AppliedLayer,
    image::{LayerOptions, apply_layer},
};
use atoll_types::Error;
use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::Read,
    os::{
        fd::OwnedFd,
        unix::{
            ffi::OsStrExt,
            fs::{FileTypeExt, MetadataExt},
        },
    },
    path::Path,
    process::Command,
};
use tar::{EntryType, Header};

/// All that an image's file can have. Files with several names have the first of them in `same`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) mode: u32,
    pub(crate) ids: (u32, u32),
    pub(crate) mtime: (i64, i64),
    pub(crate) body: Vec<u8>,
    pub(crate) same: Option<String>,
    pub(crate) xattrs: BTreeMap<String, Vec<u8>>,
}

/// Everything below a folder, and the folder itself as `.`.
pub(crate) fn tree(top: &Path) -> BTreeMap<String, Node> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(path) = waiting.pop() {
        let about = path.symlink_metadata().unwrap();
        let body = if about.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            Vec::new()
        } else if about.is_symlink() {
            fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
        } else if about.file_type().is_fifo() {
            Vec::new()
        } else {
            fs::read(&path).unwrap()
        };
        let name = path.strip_prefix(top).unwrap().to_string_lossy().into_owned();
        let node = Node {
            mode: about.mode(),
            ids: (about.uid(), about.gid()),
            mtime: (about.mtime(), about.mtime_nsec()),
            body,
            same: None,
            xattrs: xattrs(&path),
        };
        found.insert(
            if name.is_empty() { ".".into() } else { name },
            (node, (about.ino(), about.nlink(), about.is_dir())),
        );
    }
    let mut first = HashMap::new();
    let named = found.into_iter().map(|(name, (mut node, (inode, links, folder)))| {
        if links > 1 && !folder {
            node.same = Some(first.entry(inode).or_insert_with(|| name.clone()).clone());
        }
        (name, node)
    });
    named.collect()
}

fn xattrs(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = vec![0; 4096];
    let length = rustix::fs::llistxattr(path, names.as_mut_slice()).unwrap();
    let names = names[..length].split(|b| *b == 0).filter(|name| !name.is_empty());
    names
        .map(|name| {
            let mut value = vec![0; 65536];
            let length = rustix::fs::lgetxattr(path, name, value.as_mut_slice()).unwrap();
            value.truncate(length);
            (String::from_utf8(name.to_vec()).unwrap(), value)
        })
        .collect()
}

/// Names and lines that differ, for a message that can be read.
pub(crate) fn differences(is: &BTreeMap<String, Node>, should: &BTreeMap<String, Node>) -> Vec<String> {
    let names = is.keys().chain(should.keys()).collect::<std::collections::BTreeSet<_>>();
    let differ = names.into_iter().filter(|name| is.get(*name) != should.get(*name));
    let short = |node: Option<&Node>| {
        node.map(|node| {
            let body = String::from_utf8_lossy(&node.body[..node.body.len().min(40)]).into_owned();
            format!(
                "{:o} {:?} {:?} {:?} {:?} {body:?}",
                node.mode, node.ids, node.mtime, node.same, node.xattrs
            )
        })
    };
    differ
        .map(|name| format!("{name}: {:?}, and not {:?}", short(is.get(name)), short(should.get(name))))
        .collect()
}

/// An entry of a layer, written without any of the checks that a library would make.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) kind: EntryType,
    pub(crate) name: String,
    pub(crate) target: String,
    pub(crate) body: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) ids: (u64, u64),
}

pub(crate) fn entry(kind: EntryType, name: &str, target: &str, body: &[u8]) -> Entry {
    let mode = if kind == EntryType::Directory { 0o755 } else { 0o644 };
    Entry { kind, name: name.into(), target: target.into(), body: body.into(), mode, ids: (0, 0) }
}

pub(crate) fn file(name: &str, body: &str) -> Entry {
    entry(EntryType::Regular, name, "", body.as_bytes())
}

pub(crate) fn folder(name: &str) -> Entry {
    entry(EntryType::Directory, name, "", b"")
}

pub(crate) fn symlink(name: &str, target: &str) -> Entry {
    entry(EntryType::Symlink, name, target, b"")
}

pub(crate) fn hard_link(name: &str, target: &str) -> Entry {
    entry(EntryType::Link, name, target, b"")
}

impl Entry {
    pub(crate) fn mode(self, mode: u32) -> Self {
        Self { mode, ..self }
    }

    pub(crate) fn ids(self, user: u64, group: u64) -> Self {
        Self { ids: (user, group), ..self }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut header = Header::new_gnu();
        let fields = header.as_gnu_mut().unwrap();
        fields.name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        fields.linkname[..self.target.len()].copy_from_slice(self.target.as_bytes());
        header.set_entry_type(self.kind);
        header.set_mode(self.mode);
        header.set_uid(self.ids.0);
        header.set_gid(self.ids.1);
        header.set_mtime(1_000_000_000);
        header.set_size(self.body.len() as u64);
        header.set_cksum();
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(&self.body);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    }
}

pub(crate) fn layer(entries: &[Entry]) -> Vec<u8> {
    let mut bytes: Vec<u8> = entries.iter().flat_map(Entry::bytes).collect();
    bytes.extend_from_slice(&[0; 1024]);
    bytes
}

pub(crate) fn opened(folder: &Path) -> OwnedFd {
    File::open(folder).unwrap().into()
}

pub(crate) fn applied(folder: &Path, layer: impl Read) -> Result<AppliedLayer, Error> {
    apply_layer(&opened(folder), layer, &LayerOptions::default())
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// Runs a program that must succeed.
pub(crate) fn run(program: &str, arguments: &[&str], folder: &Path) -> String {
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    let output = output.unwrap_or_else(|e| panic!("{program}: {e}; `make setup-tests` installs it"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}
