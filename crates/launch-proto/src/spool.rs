//! The size of the spool for the output of a container's commands. The launcher sets it, and PID 1 gets it in its
//! configuration.

use atoll_types::Limits;

/// What the output of a container's commands may take on disk: as much as its files, within these. The
/// disk below must have it free, so a small sandbox has a small one.
const SPOOL_BYTES: std::ops::RangeInclusive<u64> = 32 << 20..=256 << 20;
/// The part of it that one command may have.
const OUTPUT_PART: u64 = 4;

/// What the output of all commands may take.
#[must_use]
pub fn spool_bytes(limits: &Limits) -> u64 {
    limits.disk_bytes.clamp(*SPOOL_BYTES.start(), *SPOOL_BYTES.end())
}

/// The limit for the output of one command that sets none itself.
#[must_use]
pub fn output_bytes(limits: &Limits) -> u64 {
    spool_bytes(limits) / OUTPUT_PART
}
