//! How large the place for the output of a container's commands is. The launcher sets it, and PID 1 is told.

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

/// What the output of one command may take that does not say itself.
#[must_use]
pub fn output_bytes(limits: &Limits) -> u64 {
    spool_bytes(limits) / OUTPUT_PART
}
