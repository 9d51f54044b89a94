//! The system call filter. PID 1 puts it on itself; every command inherits it and pays nothing.
//!
//! It is two filters. The first knows every call that a program may make and answers ENOSYS to all
//! others, so that new kernels bring no new ways in and programs fall back as on an old kernel. The
//! second answers EPERM to what is known and refused. A call passes only if both let it pass. The
//! kernel remembers which calls always pass, so that the length of the lists costs nothing.

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

/// Puts the filter on this process, before it has a second thread.
pub(crate) fn install(profile: Seccomp) -> Result<(), String> {
    let (known, refused) = programs(profile).map_err(|e| format!("cannot build the filter: {e}"))?;
    for program in [known, refused] {
        seccompiler::apply_filter(&program).map_err(|e| format!("cannot set the filter: {e}"))?;
    }
    Ok(())
}

fn programs(profile: Seccomp) -> Result<(BpfProgram, BpfProgram), seccompiler::BackendError> {
    let refused = refused::rules(profile)?;
    // Refused except when building images.
    let numbers = allowed::all().chain(refused.keys().copied()).chain([libc::SYS_chroot]);
    let known: Rules = numbers.map(|number| (number, Vec::new())).collect();
    let allow = SeccompAction::Allow;
    // A foreign architecture is killed by both. x32 has numbers of its own, which nothing here knows.
    let known = SeccompFilter::new(known, SeccompAction::Errno(libc::ENOSYS as u32), allow.clone(), ARCH)?;
    let refused = SeccompFilter::new(refused, allow, SeccompAction::Errno(libc::EPERM as u32), ARCH)?;
    Ok((known.try_into()?, refused.try_into()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_profiles_build() {
        for profile in [Seccomp::Default, Seccomp::Build] {
            let (known, refused) = programs(profile).unwrap();
            assert!(known.len() < 4096 && refused.len() < 4096);
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
