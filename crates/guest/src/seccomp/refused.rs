//! System calls that user code is refused. An empty list of conditions refuses a call always.

use super::{Rules, allowed::numbers};
use atoll_types::Seccomp;
use seccompiler::{
    BackendError,
    SeccompCmpArgLen::{Dword, Qword},
    SeccompCmpOp::{self, Eq, MaskedEq, Ne},
    SeccompCondition, SeccompRule,
};

/// Mounts, namespaces, modules, keys, clocks, tracing of the kernel, and interfaces with a history.
const ALWAYS: &[i64] = &numbers! {
    SYS_mount SYS_umount2 SYS_pivot_root SYS_fsopen SYS_fsmount SYS_fsconfig SYS_fspick SYS_move_mount
    SYS_open_tree SYS_mount_setattr SYS_setns SYS_unshare SYS_bpf SYS_perf_event_open SYS_userfaultfd
    SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register SYS_keyctl SYS_add_key SYS_request_key
    SYS_kexec_load SYS_kexec_file_load SYS_init_module SYS_finit_module SYS_delete_module SYS_reboot
    SYS_swapon SYS_swapoff SYS_open_by_handle_at SYS_name_to_handle_at SYS_quotactl SYS_quotactl_fd
    SYS_acct SYS_settimeofday SYS_clock_settime SYS_fanotify_init SYS_fanotify_mark SYS_syslog
    SYS_vhangup SYS_lookup_dcookie SYS_nfsservctl SYS_sethostname SYS_setdomainname SYS_migrate_pages
    SYS_move_pages SYS_adjtimex SYS_clock_adjtime
};

#[cfg(target_arch = "x86_64")]
const ALWAYS_HERE: &[i64] = &numbers! {
    SYS_iopl SYS_ioperm SYS_modify_ldt
    SYS__sysctl SYS_uselib SYS_ustat SYS_sysfs
};
#[cfg(not(target_arch = "x86_64"))]
const ALWAYS_HERE: &[i64] = &[];

const NAMESPACE_FLAGS: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Linux, 32-bit names, 2.6 names, no address randomisation (debuggers), and the query.
const PERSONALITIES: [u64; 8] = [0x0, 0x8, 0x2_0000, 0x2_0008, 0x4_0000, 0x4_0008, 0x6_0000, 0xffff_ffff];

const FAMILIES: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Device calls that reach beyond the caller: typing into another's terminal, and making or deleting
/// btrfs subvolumes, which any owner of a folder may do and which disk limits would have to follow.
const DEVICE_CALLS: [u64; 9] = [
    0x5412,      // TIOCSTI
    0x541c,      // TIOCLINUX
    0x5000_9401, // BTRFS_IOC_SNAP_CREATE
    0x5000_9417, // BTRFS_IOC_SNAP_CREATE_V2
    0x5000_940e, // BTRFS_IOC_SUBVOL_CREATE
    0x5000_9418, // BTRFS_IOC_SUBVOL_CREATE_V2
    0x5000_940f, // BTRFS_IOC_SNAP_DESTROY
    0x5000_943f, // BTRFS_IOC_SNAP_DESTROY_V2
    0x4008_941a, // BTRFS_IOC_SUBVOL_SETFLAGS
];

fn all(conditions: impl IntoIterator<Item = (u8, SeccompCmpOp, u64)>) -> Result<SeccompRule, BackendError> {
    let conditions =
        conditions.into_iter().map(|(index, op, value)| SeccompCondition::new(index, Dword, op, value));
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}

/// Calls of prlimit64 that set the limit of core files, and whether they also request the old one.
fn setting_core(old: Option<SeccompCmpOp>) -> Result<SeccompRule, BackendError> {
    // All of a pointer counts: one whose low half is zero is still one.
    let given = |index, op| SeccompCondition::new(index, Qword, op, 0);
    let mut conditions =
        vec![SeccompCondition::new(1, Dword, Eq, u64::from(libc::RLIMIT_CORE))?, given(2, Ne)?];
    if let Some(op) = old {
        conditions.push(given(3, op)?);
    }
    SeccompRule::new(conditions)
}

/// For each call the cases in which it is refused.
pub(super) fn rules(profile: Seccomp) -> Result<Rules, BackendError> {
    let mut rules: Rules = ALWAYS.iter().chain(ALWAYS_HERE).map(|number| (*number, Vec::new())).collect();
    let flag = |flag: &libc::c_int| all([(0, MaskedEq(*flag as u64), *flag as u64)]);
    rules.insert(libc::SYS_clone, NAMESPACE_FLAGS.iter().map(flag).collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_personality, vec![all(PERSONALITIES.map(|value| (0, Ne, value)))?]);
    let device_call = |call: &u64| all([(1, Eq, *call)]);
    rules.insert(libc::SYS_ioctl, DEVICE_CALLS.iter().map(device_call).collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_socket, sockets()?);
    rules.insert(libc::SYS_socketpair, sockets()?);
    // A call that also requests the old limit cannot be ignored; see `ignored`.
    rules.insert(libc::SYS_prlimit64, vec![setting_core(Some(Ne))?]);
    if profile == Seccomp::Default {
        rules.insert(libc::SYS_chroot, Vec::new());
        rules.insert(libc::SYS_mknodat, devices(2)?);
        #[cfg(target_arch = "x86_64")]
        rules.insert(libc::SYS_mknod, devices(1)?);
    }
    Ok(rules)
}

/// Every family but those of the list.
fn sockets() -> Result<Vec<SeccompRule>, BackendError> {
    Ok(vec![all(FAMILIES.map(|family| (0, Ne, family as u64)))?])
}

/// Sockets of the internet that are neither TCP, UDP, ICMP nor raw (which needs a capability): the transports
/// that few programs use and whose code is reviewed less. MPTCP, UDP-Lite, SCTP, DCCP. Of netlink all but the
/// table of addresses and routes: programs that add users open the kernel's audit socket, take this error for a
/// kernel without it and continue, where they would end with any other.
pub(super) fn transports() -> Result<Rules, BackendError> {
    const PROTOCOLS: [libc::c_int; 6] = [
        libc::IPPROTO_IP,
        libc::IPPROTO_ICMP,
        libc::IPPROTO_TCP,
        libc::IPPROTO_UDP,
        libc::IPPROTO_ICMPV6,
        libc::IPPROTO_RAW,
    ];
    // Protocol 0 means whatever the type has: SCTP, DCCP.
    const TYPES: [libc::c_int; 2] = [libc::SOCK_SEQPACKET, libc::SOCK_DCCP];
    let mut rules = vec![all([(0, Eq, libc::AF_NETLINK as u64), (2, Ne, libc::NETLINK_ROUTE as u64)])?];
    for family in [libc::AF_INET, libc::AF_INET6] {
        let family = (0, Eq, family as u64);
        rules.push(all([family.clone()].into_iter().chain(PROTOCOLS.map(|p| (2, Ne, p as u64))))?);
        for kind in TYPES {
            rules.push(all([family.clone(), (1, MaskedEq(0xf), kind as u64)])?);
        }
    }
    Ok(Rules::from([(libc::SYS_socket, rules)]))
}

/// What seems to work and does nothing: setting the limit of core files, which PID 1 has set so that there
/// are none. Programs that want no core set it to 0, and with that the kernel would run the host's handler.
pub(super) fn ignored() -> Result<Rules, BackendError> {
    let core = u64::from(libc::RLIMIT_CORE);
    let mut rules = Rules::from([(libc::SYS_prlimit64, vec![setting_core(None)?])]);
    rules.insert(SETRLIMIT, vec![all([(0, Eq, core)])?]);
    Ok(rules)
}

#[cfg(target_arch = "x86_64")]
const SETRLIMIT: i64 = libc::SYS_setrlimit;
/// The C library's crate does not name it here.
#[cfg(target_arch = "aarch64")]
const SETRLIMIT: i64 = 164;

/// Device nodes; FIFOs and sockets are left.
fn devices(mode_argument: u8) -> Result<Vec<SeccompRule>, BackendError> {
    let kind = |kind: libc::mode_t| all([(mode_argument, MaskedEq(libc::S_IFMT.into()), kind.into())]);
    Ok(vec![kind(libc::S_IFBLK)?, kind(libc::S_IFCHR)?])
}
