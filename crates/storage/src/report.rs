//! The state of storage, for `atoll doctor` and for a sandbox's status.

use std::fmt;

/// What a tree holds and may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that count against the limit, data not yet written back included.
    pub used_bytes: u64,
    /// The limit.
    pub limit_bytes: u64,
}

/// What the trees are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverKind {
    /// Subvolumes of the file system that the data folder is on.
    BtrfsNative,
    /// Subvolumes of a pool in a sparse file.
    BtrfsLoop,
    /// Plain directories.
    Dir,
}

/// What enforces the disk limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaKind {
    /// Btrfs simple quotas.
    Simple,
    /// Btrfs qgroups with full accounting, on kernels before 6.7.
    Classic,
    /// Nothing.
    None,
}

impl fmt::Display for DriverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DriverKind::BtrfsNative => "btrfs (native)",
            DriverKind::BtrfsLoop => "btrfs (loop)",
            DriverKind::Dir => "dir",
        })
    }
}

impl fmt::Display for QuotaKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QuotaKind::Simple => "simple",
            QuotaKind::Classic => "classic",
            QuotaKind::None => "none",
        })
    }
}

/// The state of storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageReport {
    /// What the trees are made of.
    pub driver: DriverKind,
    /// What enforces the disk limit.
    pub quota: QuotaKind,
    /// Whether a copy of a file can share its blocks.
    pub reflink: bool,
    /// What all trees together can hold.
    pub capacity_bytes: u64,
    /// What trees can still write; where disks are not thin, what can still be promised.
    pub free_bytes: u64,
    /// Whether so little is free that no new tree is made.
    pub low: bool,
    /// What is promised to trees and not used by them yet.
    pub promised_bytes: u64,
    /// Sentences for the operator.
    pub notes: Vec<String>,
}
