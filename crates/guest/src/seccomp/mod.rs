//! The system call filter. PID 1 installs it on itself; every command inherits it at no cost.
//!
//! It is a stack of filters. The first has every call that a program may make and answers ENOSYS to all others,
//! so that new kernels bring no new attack surface and programs fall back as on an old kernel. The second answers
//! EPERM to known calls that are refused, another EPROTONOSUPPORT to sockets of rare protocols, another success
//! to calls that are ignored. A call passes only if all filters let it pass. The kernel caches which calls always
//! pass, so that the length of the lists costs nothing.

mod allowed;
mod refused;

use atoll_types::Seccomp;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch};
use std::collections::BTreeMap;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

#[cfg(target_arch = "x86_64")]
const ARCH: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCH: TargetArch = TargetArch::aarch64;

/// Installs the filter on this process, before it has a second thread.
pub(crate) fn install(profile: Seccomp) -> Result<(), String> {
    for program in programs(profile).map_err(|e| format!("cannot build the filter: {e}"))? {
        seccompiler::apply_filter(&program).map_err(|e| format!("cannot set the filter: {e}"))?;
    }
    Ok(())
}

fn programs(profile: Seccomp) -> Result<[BpfProgram; 4], seccompiler::BackendError> {
    let refused = refused::rules(profile)?;
    // Refused except when building images.
    let numbers = allowed::all().chain(refused.keys().copied()).chain([libc::SYS_chroot]);
    let known: Rules = numbers.map(|number| (number, Vec::new())).collect();
    let allow = SeccompAction::Allow;
    // A foreign architecture is killed by both. x32 has numbers of its own, which nothing here knows.
    let known = SeccompFilter::new(known, SeccompAction::Errno(libc::ENOSYS as u32), allow.clone(), ARCH)?;
    let answering = |rules: Rules, errno: libc::c_int| -> Result<BpfProgram, seccompiler::BackendError> {
        let action = SeccompAction::Errno(errno.unsigned_abs());
        SeccompFilter::new(rules, allow.clone(), action, ARCH)?.try_into()
    };
    // Where several filters return an error, the kernel takes that of the one installed last.
    Ok([
        known.try_into()?,
        answering(refused::ignored()?, 0)?,
        answering(refused::transports()?, libc::EPROTONOSUPPORT)?,
        answering(refused, libc::EPERM)?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_profiles_build() {
        for profile in [Seccomp::Default, Seccomp::Build] {
            assert!(programs(profile).unwrap().iter().all(|program| program.len() < 4096));
        }
    }

    #[test]
    fn what_must_look_absent_is_in_no_list() {
        let refused = refused::rules(Seccomp::Default).unwrap();
        assert!(!allowed::all().any(|n| n == libc::SYS_clone3) && !refused.contains_key(&libc::SYS_clone3));
    }

    #[test]
    fn a_call_refused_whatever_its_arguments_is_not_also_allowed() {
        for (number, rules) in refused::rules(Seccomp::Default).unwrap() {
            assert!(!(rules.is_empty() && allowed::all().any(|n| n == number)), "{number}");
        }
    }
}
