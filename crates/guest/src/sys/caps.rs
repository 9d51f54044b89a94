//! Capabilities as bit masks: which numbers they have and how a thread gives them up.

use super::check;
use atoll_types::Capability;
use rustix::io::{Errno, Result};

/// Numbers above this exist in no kernel yet.
const HIGHEST: usize = 63;
const VERSION_3: u32 = 0x2008_0522;

const fn number(capability: Capability) -> u32 {
    match capability {
        Capability::Chown => 0,
        Capability::DacOverride => 1,
        Capability::Fowner => 3,
        Capability::Fsetid => 4,
        Capability::Kill => 5,
        Capability::Setgid => 6,
        Capability::Setuid => 7,
        Capability::NetBindService => 10,
        Capability::SysChroot => 18,
        Capability::Setfcap => 31,
    }
}

/// The mask of a list.
pub(crate) fn mask(capabilities: &[Capability]) -> u64 {
    capabilities.iter().fold(0, |mask, c| mask | 1 << number(*c))
}

/// Removes these from the bounding set of this thread. Needs no privilege where nothing is left.
pub(crate) fn drop_bounding(mask: u64) -> Result<()> {
    for number in 0..=HIGHEST {
        if mask & (1 << number) == 0 {
            continue;
        }
        // SAFETY: numbers. It answers whether the set holds the capability.
        let held = check(unsafe {
            libc::syscall(libc::SYS_prctl, libc::PR_CAPBSET_READ, number, 0usize, 0usize, 0usize)
        });
        match held {
            Ok(0) => {}
            Ok(_) => super::prctl(libc::PR_CAPBSET_DROP, number)?,
            // The first number that the kernel does not know.
            Err(Errno::INVAL) => return Ok(()),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Gives up CAP_SYS_ADMIN and leaves the rest.
pub(crate) fn give_up_administration() -> Result<()> {
    const SYS_ADMIN: u32 = 1 << 21;
    let header: [u32; 2] = [VERSION_3, 0];
    let mut data = [0u32; 6];
    // SAFETY: the kernel reads a header of two and writes data of six numbers, as version 3 has them.
    check(unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), data.as_mut_ptr()) })?;
    data[..3].iter_mut().for_each(|set| *set &= !SYS_ADMIN);
    // SAFETY: the kernel reads both.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) }).map(drop)
}

/// Makes this thread hold exactly these, with nothing inheritable and nothing ambient.
pub(crate) fn set_exact(mask: u64) -> Result<()> {
    match super::prctl_ambient_clear() {
        // A kernel without an ambient set has nothing in it.
        Ok(()) | Err(Errno::INVAL) => {}
        Err(e) => return Err(e),
    }
    let header: [u32; 2] = [VERSION_3, 0];
    let (low, high) = (mask as u32, (mask >> 32) as u32);
    // effective, permitted, inheritable; low halves first.
    let data: [u32; 6] = [low, low, 0, high, high, 0];
    // SAFETY: the kernel reads a header of two and data of six numbers, as version 3 has them.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) }).map(drop)
}
