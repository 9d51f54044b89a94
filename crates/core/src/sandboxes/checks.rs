//! What the values of a request may be. A refusal names the field as the caller does.

use crate::{
    bounds::{
        CPU_MILLIS, DISK_MB, IDLE_SECONDS, LABEL_NAME, LABEL_VALUE, LIFETIME_SECONDS, MEMORY_MB, MOST_LABELS,
        MOST_VARIABLES, VARIABLE_NAME, VARIABLE_VALUE,
    },
    ceiling::{ExplicitFields, TierCeiling},
    owner_config::OLD_SCOPE_LABEL,
};
use atoll_types::{Error, ErrorCode, ImageDefaults, Limits, Result};
use std::{collections::BTreeMap, ops::RangeInclusive};

const MIB: u64 = 1 << 20;
/// Names and values of a request's variables together, in bytes.
const LARGEST_ENVIRONMENT: usize = 128 * 1024;

/// Refuses what lies outside of a range.
fn outside<T: std::fmt::Display>(field: &str, range: &RangeInclusive<T>) -> Error {
    Error::invalid(field, format!("{field} must be between {} and {}", range.start(), range.end()))
}

fn megabytes(field: &str, value: u64) -> Result<u64> {
    value.checked_mul(MIB).ok_or_else(|| Error::invalid(field, format!("{field} is too large")))
}

fn cpu_millis(cores: f64) -> Result<u32> {
    let range = f64::from(*CPU_MILLIS.start()) / 1000.0..=f64::from(*CPU_MILLIS.end()) / 1000.0;
    // NaN and the infinite are outside of every range.
    if range.contains(&cores) {
        return Ok((cores * 1000.0).round() as u32);
    }
    Err(outside("cpu_cores", &range))
}

/// The limits with the requested values, and any refusal in the caller's own words for the field.
pub(crate) fn limits(
    base: Limits,
    memory: Option<u64>,
    cores: Option<f64>,
    disk: Option<u64>,
    processes: Option<u32>,
) -> Result<Limits> {
    let mut limits = base;
    if let Some(mb) = memory {
        limits.memory_bytes = megabytes("memory_mb", mb)?;
    }
    if let Some(mb) = disk {
        limits.disk_bytes = megabytes("disk_mb", mb)?;
    }
    if let Some(cores) = cores {
        limits.cpu_millis = cpu_millis(cores)?;
    }
    limits.processes = processes.unwrap_or(limits.processes);
    limits.validate().map_err(|e| match e.field.as_deref() {
        Some("memory_bytes") => outside("memory_mb", &MEMORY_MB),
        Some("disk_bytes") => outside("disk_mb", &DISK_MB),
        _ => e,
    })?;
    Ok(limits)
}

/// The limits of a new sandbox: the usual ones, of its image or of all, clamped to the caller's tier, and the requested ones.
pub(super) fn asked_limits(
    most: TierCeiling,
    usual: ImageDefaults,
    memory: Option<u64>,
    cores: Option<f64>,
    disk: Option<u64>,
    processes: Option<u32>,
) -> Result<Limits> {
    let named = ExplicitFields {
        memory: memory.is_some(),
        cores: cores.is_some(),
        disk: disk.is_some(),
        processes: processes.is_some(),
    };
    let limits = limits(most.clamp(usual.over(Limits::default())), memory, cores, disk, processes)?;
    most.check(&limits, named)?;
    Ok(limits)
}

/// The limit of a disk of its own: the usual one clamped to the caller's tier, or the requested one.
pub(crate) fn disk_limit(most: TierCeiling, disk_mb: Option<u64>) -> Result<u64> {
    asked_limits(most, ImageDefaults::default(), None, None, disk_mb, None).map(|limits| limits.disk_bytes)
}

pub(super) fn check_idle(seconds: Option<u32>) -> Result<()> {
    match seconds {
        Some(n) if !IDLE_SECONDS.contains(&n) => Err(outside("idle_timeout_seconds", &IDLE_SECONDS)),
        _ => Ok(()),
    }
}

/// Refuses a lifetime that is zero, or longer than the operator allows; 0 as the operator's value is no
/// bound.
pub(super) fn check_lifetime(seconds: Option<u32>, most: u32) -> Result<()> {
    const FIELD: &str = "max_lifetime_seconds";
    match seconds {
        Some(n) if !LIFETIME_SECONDS.contains(&n) => Err(outside(FIELD, &LIFETIME_SECONDS)),
        Some(n) if most != 0 && n > most => {
            let message = format!("{FIELD} may be at most {most} on this server; {n} was asked for");
            let error = Error::new(ErrorCode::PermissionDenied, message).at(FIELD);
            Err(error.fact("asked", n).fact("allowed", most))
        }
        _ => Ok(()),
    }
}

pub(crate) fn check_environment(field: &str, environment: &BTreeMap<String, String>) -> Result<()> {
    let size: usize = environment.iter().map(|(k, v)| k.len() + v.len()).sum();
    if environment.len() > MOST_VARIABLES || size > LARGEST_ENVIRONMENT {
        let message =
            format!("{field} may have {MOST_VARIABLES} names and {} KiB", LARGEST_ENVIRONMENT >> 10);
        return Err(Error::new(ErrorCode::TooLarge, message).at(field));
    }
    match environment.iter().find(|(k, v)| !VARIABLE_NAME.fits(k) || !VARIABLE_VALUE.fits(v)) {
        Some((name, _)) => {
            let message = format!("the name {name:?} is empty or holds '=', or it or its value holds a NUL");
            Err(Error::invalid(field, message))
        }
        None => Ok(()),
    }
}

/// The labels that a fork or a copy of a sandbox has too: not those by which a front finds its own sandboxes.
pub(crate) fn own_labels(labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let own = |(name, _): &(&String, &String)| !name.starts_with("atoll.") && *name != OLD_SCOPE_LABEL;
    labels.iter().filter(own).map(|(name, value)| (name.clone(), value.clone())).collect()
}

pub(super) fn check_labels(labels: &BTreeMap<String, String>) -> Result<()> {
    if labels.len() > MOST_LABELS {
        return Err(Error::invalid("labels", format!("labels may have {MOST_LABELS} names")));
    }
    for (name, value) in labels {
        LABEL_NAME.check("labels", name)?;
        if !LABEL_VALUE.fits(value) {
            let message =
                format!("a label's value may have {} characters, none of them control", LABEL_VALUE.most);
            return Err(Error::invalid("labels", message));
        }
    }
    Ok(())
}
