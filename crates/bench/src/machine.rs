//! The machine that the figures were taken on.

use crate::{Result, instance::Instance};
use atoll_launch_proto::Report;
use serde::Serialize;
use std::{fs, thread};

/// The machine, as far as it bears on figures.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) cores: usize,
    pub(crate) memory_mib: u64,
    pub(crate) cgroup: String,
    pub(crate) storage: String,
    pub(crate) quota: String,
    pub(crate) load: [f64; 3],
    /// Whether other processes were busy.
    pub(crate) loaded: bool,
    pub(crate) optimised: bool,
    pub(crate) notes: Vec<String>,
}

/// Reads the machine's facts before any measurement.
pub(crate) async fn look(instance: &Instance) -> Result<Machine> {
    let Report { cgroup, storage, quota, notes, .. } = instance.provider.report().await?;
    let cores = thread::available_parallelism()?.get();
    let load = load(&fs::read_to_string("/proc/loadavg")?);
    Ok(Machine {
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().into(),
        cores,
        memory_mib: meminfo("MemTotal:")? >> 20,
        cgroup,
        storage,
        quota: quota.to_string(),
        load,
        loaded: load[0] > cores as f64 / 2.0,
        optimised: !cfg!(debug_assertions),
        notes,
    })
}

fn load(text: &str) -> [f64; 3] {
    let mut fields = text.split_whitespace().map(|f| f.parse().unwrap_or(f64::NAN));
    std::array::from_fn(|_| fields.next().unwrap_or(f64::NAN))
}

/// Bytes of a line of /proc/meminfo.
pub(crate) fn meminfo(line: &str) -> Result<u64> {
    kibibytes(&fs::read_to_string("/proc/meminfo")?, line)
}

/// Bytes of a line of one of /proc's files that count kibibytes.
pub(crate) fn kibibytes(text: &str, line: &str) -> Result<u64> {
    let number = text.lines().find_map(|l| l.strip_prefix(line)?.split_whitespace().next()?.parse().ok());
    number.map(|kib: u64| kib * 1024).ok_or_else(|| format!("the kernel does not say {line}").into())
}

/// Bytes of resident memory of a process.
pub(crate) fn resident(pid: u32) -> Result<u64> {
    kibibytes(&fs::read_to_string(format!("/proc/{pid}/status"))?, "VmRSS:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        assert_eq!(load("0.50 1.25 2.00 1/234 567\n"), [0.5, 1.25, 2.0]);
        let text = "Rss:    100 kB\nPss:     12 kB\nPss_Anon: 4 kB\n";
        assert_eq!(kibibytes(text, "Pss:").unwrap(), 12 * 1024);
        assert!(kibibytes(text, "Swap:").is_err());
    }
}
