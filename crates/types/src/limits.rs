//! What a sandbox may use. All of it can be changed while the sandbox runs.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Ceilings that the kernel enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Memory, page cache and tmpfs included.
    pub memory_bytes: u64,
    /// Swap on top of the memory.
    pub swap_bytes: u64,
    /// Thousandths of a core.
    pub cpu_millis: u32,
    /// Processes and threads, without Atoll's own.
    pub processes: u32,
    /// Open files of one process.
    pub open_files: u32,
    /// What the volume may hold.
    pub disk_bytes: u64,
}

const MIB: u64 = 1024 * 1024;

/// What a sandbox's memory may be.
pub const MEMORY_MB: RangeInclusive<u64> = 16..=1 << 26;
/// What a sandbox's disk may be.
pub const DISK_MB: RangeInclusive<u64> = 1..=1 << 30;
/// How many processes and threads a sandbox may have.
pub const PROCESSES: RangeInclusive<u32> = 4..=1_000_000;
/// What a sandbox's share of the processors may be, in thousandths of a core.
pub const CPU_MILLIS: RangeInclusive<u32> = 10..=1_024_000;

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: 512 * MIB,
            swap_bytes: 0,
            cpu_millis: 1000,
            processes: 512,
            open_files: 4096,
            disk_bytes: 1024 * MIB,
        }
    }
}

impl Limits {
    /// Refuses what no sandbox could run with, and what no machine has.
    pub fn validate(&self) -> Result<()> {
        let Self { memory_bytes, swap_bytes, cpu_millis, processes, open_files, disk_bytes } = *self;
        let check = |ok: bool, field: &str, allowed: &str| {
            if ok { Ok(()) } else { Err(Error::invalid(field, format!("{field} must be {allowed}"))) }
        };
        let bytes = |range: &RangeInclusive<u64>| range.start() * MIB..=range.end() * MIB;
        check(bytes(&MEMORY_MB).contains(&memory_bytes), "memory_bytes", "between 16 MiB and 64 TiB")?;
        check(swap_bytes <= (1 << 46), "swap_bytes", "at most 64 TiB")?;
        check(CPU_MILLIS.contains(&cpu_millis), "cpu_millis", "between 10 and 1024000")?;
        check(PROCESSES.contains(&processes), "processes", "between 4 and 1000000")?;
        check((16..=1_048_576).contains(&open_files), "open_files", "between 16 and 1048576")?;
        check(bytes(&DISK_MB).contains(&disk_bytes), "disk_bytes", "between 1 MiB and 1 PiB")
    }

    /// How many cores the sandbox may see: enough for its share, never fewer than one.
    #[must_use]
    pub fn visible_cores(&self, machine: usize) -> usize {
        (self.cpu_millis.div_ceil(1000) as usize).clamp(1, machine.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid_and_a_wrong_field_is_named() {
        assert_eq!(Limits::default().validate(), Ok(()));
        let cases = [
            (Limits { memory_bytes: 1, ..Limits::default() }, "memory_bytes"),
            (Limits { memory_bytes: u64::MAX, ..Limits::default() }, "memory_bytes"),
            (Limits { swap_bytes: u64::MAX, ..Limits::default() }, "swap_bytes"),
            (Limits { cpu_millis: 0, ..Limits::default() }, "cpu_millis"),
            (Limits { processes: 0, ..Limits::default() }, "processes"),
            (Limits { open_files: 0, ..Limits::default() }, "open_files"),
            (Limits { disk_bytes: 0, ..Limits::default() }, "disk_bytes"),
        ];
        for (limits, field) in cases {
            assert_eq!(limits.validate().unwrap_err().field.as_deref(), Some(field));
        }
    }

    #[test]
    fn cores_cover_the_share() {
        let of = |cpu_millis, machine| Limits { cpu_millis, ..Limits::default() }.visible_cores(machine);
        assert_eq!((of(250, 64), of(1000, 64), of(1001, 64), of(8000, 2)), (1, 1, 2, 2));
    }
}
