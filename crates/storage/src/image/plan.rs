//! What an image will be made of, decided before anything is written, so that its hash can name it.

use super::{source, written};
use crate::error::failed;
use atoll_types::{Result, text::hex};
use rustix::fs::{AtFlags, FileType, readlinkat, statat};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Part of every hash: a change here makes images new.
const FORMAT: &str = "atoll host image 1";
const OUTSIDE_USR: &[&str] = &["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Which content a copied file has, without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) size: u64,
    pub(super) seconds: i64,
    pub(super) nanoseconds: u64,
}

/// One entry of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Directory { mode: u32 },
    Link { target: String },
    Text { text: &'static str },
    Copy { mode: u32, stamp: Stamp },
}

pub(super) struct Plan {
    pub(super) root: OwnedFd,
    /// By path; parents come before children.
    pub(super) entries: BTreeMap<String, Node>,
    /// Directories of the machine that are mounted on the skeleton.
    pub(super) mounts: Vec<&'static str>,
}

impl Plan {
    pub(super) fn of(root: &Path) -> Result<Self> {
        let root = rustix::fs::open(
            root,
            rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )
        .map_err(failed("open the machine's root"))?;
        let mut plan = Self { entries: source::etc(&root)?, root, mounts: vec!["usr"] };
        plan.outside_usr();
        // Atoll's own entries come last and win.
        let directories =
            written::DIRECTORIES.iter().map(|(path, mode)| (*path, Node::Directory { mode: *mode }));
        let links =
            written::LINKS.iter().map(|(path, target)| (*path, Node::Link { target: (*target).into() }));
        let files = written::FILES.iter().map(|(path, text)| (*path, Node::Text { text }));
        plan.entries
            .extend(directories.chain(links).chain(files).map(|(path, node)| (path.to_owned(), node)));
        Ok(plan)
    }

    /// /bin and its like: links into /usr where the machine has merged them, else trees of their own.
    fn outside_usr(&mut self) {
        for name in OUTSIDE_USR {
            let Ok(stat) = statat(&self.root, *name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {
                    self.mounts.push(name);
                    self.entries.insert((*name).into(), Node::Directory { mode: 0o755 });
                }
                FileType::Symlink => {
                    let target =
                        readlinkat(&self.root, *name, Vec::new()).ok().and_then(|t| t.into_string().ok());
                    let inside = target.as_deref().map(|target| target.trim_start_matches('/'));
                    if let Some(target) =
                        inside.filter(|target| target.starts_with("usr/") && !target.contains(".."))
                    {
                        self.entries.insert((*name).into(), Node::Link { target: target.into() });
                    }
                }
                _ => {}
            }
        }
    }

    /// 16 hexadecimal digits that change with any entry.
    pub(super) fn hash(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(FORMAT);
        for (path, node) in &self.entries {
            // Debug output is unambiguous: texts are quoted and fields are named.
            hash.update(format!("{path:?} {node:?}\n"));
        }
        hash.update(format!("{:?}", self.mounts));
        hex(&hash.finalize()[..8])
    }
}
