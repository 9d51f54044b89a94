//! What the machine has, and what of it is free at the moment, read from `/proc`. What cannot be read counts
//! as little, so that admission promises nothing that may not be there.

use super::Need;
use crate::RuntimeSettings;
use std::{fs, num::NonZero, sync::Arc, thread};

/// What the machine has.
#[derive(Clone)]
pub struct Machine {
    total: Need,
    /// What is free now.
    free: Arc<dyn Fn() -> Need + Send + Sync>,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").field("total", &self.total).finish_non_exhaustive()
    }
}

const SMALL_MEMORY: u64 = 1 << 30;
const SMALL_TABLE: u64 = 4096;

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// A line of `/proc/meminfo`, in bytes.
fn memory(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// How many processes and threads there are.
fn processes() -> Option<u64> {
    let load = fs::read_to_string("/proc/loadavg").ok()?;
    load.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

/// How many there can be.
fn process_table() -> u64 {
    let most = [number("/proc/sys/kernel/pid_max"), number("/proc/sys/kernel/threads-max")];
    most.into_iter().flatten().min().unwrap_or(SMALL_TABLE)
}

impl Machine {
    /// This machine.
    #[must_use]
    pub fn here() -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZero::get) as u64;
        let total = Need {
            cpu_millis: cores * 1000,
            memory_bytes: memory("MemTotal").unwrap_or(SMALL_MEMORY),
            processes: process_table(),
        };
        let free = move || Need {
            // Cores are shared and never used up.
            cpu_millis: u64::MAX,
            memory_bytes: memory("MemAvailable").unwrap_or(SMALL_MEMORY),
            processes: process_table().saturating_sub(processes().unwrap_or(0)),
        };
        Self { total, free: Arc::new(free) }
    }

    #[cfg(test)]
    pub(crate) fn made_up(total: Need, free: impl Fn() -> Need + Send + Sync + 'static) -> Self {
        Self { total, free: Arc::new(free) }
    }

    /// What may be reserved in all.
    pub(crate) fn capacity(&self, runtime_settings: &RuntimeSettings) -> Need {
        let times = |value: u64, ratio: f64| (value as f64 * ratio) as u64;
        Need {
            cpu_millis: times(self.total.cpu_millis, runtime_settings.admission_cpu_ratio),
            memory_bytes: times(self.total.memory_bytes, runtime_settings.admission_memory_ratio),
            processes: times(self.total.processes, runtime_settings.admission_process_ratio),
        }
    }

    /// What must be free for one more container to start: a twentieth of the memory, and of the process
    /// table.
    pub(crate) fn floor(&self) -> Need {
        Need {
            cpu_millis: 0,
            memory_bytes: (self.total.memory_bytes / 20).min(1 << 30),
            processes: self.total.processes / 20,
        }
    }

    /// What is free at the moment.
    pub(crate) fn free(&self) -> Need {
        (self.free)()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_something_and_some_of_it_is_free() {
        let machine = Machine::here();
        assert!(machine.total.cpu_millis >= 1000 && machine.total.memory_bytes > 64 << 20);
        let free = machine.free();
        assert!(free.memory_bytes > 0 && free.memory_bytes <= machine.total.memory_bytes);
        assert!(free.processes > 0 && free.processes < process_table());
    }
}
