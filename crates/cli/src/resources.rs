//! What a new sandbox may use and how long it lives, as a create and a fork say it.

use crate::{Failure, size};
use clap::Args;
use std::time::Duration;

/// Options of the commands that make a sandbox.
#[derive(Debug, Args)]
pub(crate) struct Resources {
    /// Memory, such as 512m or 2g
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    memory: Option<u64>,
    /// Cores, such as 0.5 or 2
    #[arg(long, value_name = "CORES", value_parser = size::cores)]
    cpus: Option<u32>,
    /// What may be written, such as 1g; what a fork begins with counts
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    disk: Option<u64>,
    /// Stop it after this long without a request, such as 30m
    #[arg(long, value_name = "TIME", value_parser = size::duration)]
    idle_timeout: Option<Duration>,
    /// Destroy it after this long, whatever it does, such as 8h
    #[arg(long, value_name = "TIME", value_parser = size::duration)]
    max_lifetime: Option<Duration>,
}

/// The same in the units of the API.
pub(crate) struct RequestedResources {
    pub(crate) memory_mb: Option<u64>,
    pub(crate) cpu_cores: Option<f64>,
    pub(crate) disk_mb: Option<u64>,
    pub(crate) idle_timeout_seconds: Option<u32>,
    pub(crate) max_lifetime_seconds: Option<u32>,
}

impl Resources {
    pub(crate) fn request(self) -> Result<RequestedResources, Failure> {
        let Self { memory, cpus, disk, idle_timeout, max_lifetime } = self;
        let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
        let seconds = |time: Option<Duration>, name: &'static str| {
            let seconds = time.map(|time| u32::try_from(time.as_secs_f64().ceil() as u64));
            seconds.transpose().map_err(|_| Failure::usage(name, format!("--{name} is too long")))
        };
        Ok(RequestedResources {
            memory_mb: memory.map(mebibytes),
            cpu_cores: cpus.map(|millis| f64::from(millis) / 1000.0),
            disk_mb: disk.map(mebibytes),
            idle_timeout_seconds: seconds(idle_timeout, "idle-timeout")?,
            max_lifetime_seconds: seconds(max_lifetime, "max-lifetime")?,
        })
    }
}
