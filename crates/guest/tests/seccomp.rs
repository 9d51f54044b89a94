//! System calls, tried from inside by number.

use crate::support::*;
use atoll_guest_proto::GuestConfig;
use atoll_types::{Capability, Seccomp};

/// Makes each call and prints its error's name, or `ok`.
async fn errors(guest: &Guest, calls: &[(&str, String)]) -> Vec<(String, String)> {
    let list: Vec<String> = calls.iter().map(|(name, call)| format!("({name:?}, lambda: {call})")).collect();
    let script = format!(
        "import ctypes, errno, os, socket\nlibc = ctypes.CDLL(None, use_errno=True)\n\
         def s(*a): return libc.syscall(*[ctypes.c_long(x) if isinstance(x, int) else x for x in a])\n\
         for name, call in [{}]:\n\
         \x20 ctypes.set_errno(0)\n\
         \x20 r = call()\n\
         \x20 print(name, 'ok' if r >= 0 else errno.errorcode[ctypes.get_errno()], flush=True)\n",
        list.join(",")
    );
    let seen = guest.run(python(&script)).await;
    assert_eq!(seen.info().exit_code, Some(0), "{}", seen.stderr());
    let words = seen.stdout();
    words.lines().filter_map(|l| l.split_once(' ')).map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
}

fn call(number: i64, arguments: &str) -> String {
    format!("s({number}{arguments})")
}

#[tokio::test]
async fn what_is_refused_says_eperm() {
    let guest = Guest::start().await;
    let zeros = ", 0, 0, 0, 0, 0";
    let calls = [
        ("mount", libc::SYS_mount),
        ("umount2", libc::SYS_umount2),
        ("pivot_root", libc::SYS_pivot_root),
        ("fsopen", libc::SYS_fsopen),
        ("move_mount", libc::SYS_move_mount),
        ("open_tree", libc::SYS_open_tree),
        ("mount_setattr", libc::SYS_mount_setattr),
        ("bpf", libc::SYS_bpf),
        ("keyctl", libc::SYS_keyctl),
        ("add_key", libc::SYS_add_key),
        ("userfaultfd", libc::SYS_userfaultfd),
        ("io_uring_setup", libc::SYS_io_uring_setup),
        ("init_module", libc::SYS_init_module),
        ("kexec_load", libc::SYS_kexec_load),
        ("reboot", libc::SYS_reboot),
        ("swapon", libc::SYS_swapon),
        ("perf_event_open", libc::SYS_perf_event_open),
        ("open_by_handle_at", libc::SYS_open_by_handle_at),
        ("setns", libc::SYS_setns),
        ("unshare", libc::SYS_unshare),
        ("quotactl", libc::SYS_quotactl),
        ("clock_settime", libc::SYS_clock_settime),
        ("adjtimex", libc::SYS_adjtimex),
        ("fanotify_init", libc::SYS_fanotify_init),
        ("syslog", libc::SYS_syslog),
        ("vhangup", libc::SYS_vhangup),
        ("chroot", libc::SYS_chroot),
        ("acct", libc::SYS_acct),
    ];
    let calls: Vec<_> = calls.iter().map(|(name, number)| (*name, call(*number, zeros))).collect();
    for (name, result) in errors(&guest, &calls).await {
        assert_eq!(result, "EPERM", "{name}");
    }
}

#[tokio::test]
async fn new_namespaces_are_refused_whatever_the_call() {
    let guest = Guest::start().await;
    let flags = [0x2_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000i64];
    let mut calls = vec![("clone3", call(libc::SYS_clone3, ", 0, 0"))];
    calls.extend(flags.map(|flag| ("clone", call(libc::SYS_clone, &format!(", {}, 0, 0, 0, 0", flag | 17)))));
    let seen = errors(&guest, &calls).await;
    assert_eq!(seen[0].1, "ENOSYS");
    assert_eq!(seen.len(), 8);
    for (name, result) in &seen[1..] {
        assert_eq!(result, "EPERM", "{name}");
    }
}

#[tokio::test]
async fn only_known_socket_families_exist() {
    let guest = Guest::start().await;
    let socket = |family: i32, kind: i32, protocol: i32| {
        call(libc::SYS_socket, &format!(", {family}, {kind}, {protocol}"))
    };
    let refused = [
        ("vsock", socket(40, 1, 0)),
        ("packet", socket(17, 3, 0)),
        ("alg", socket(38, 5, 0)),
        ("bluetooth", socket(31, 3, 0)),
        ("audit", socket(16, 3, 9)),
        ("netfilter", socket(16, 3, 12)),
        ("pair", call(libc::SYS_socketpair, ", 40, 1, 0, 0")),
    ];
    for (name, result) in errors(&guest, &refused).await {
        // Programs that add users take this for a kernel without audit, and go on.
        let netlink = ["audit", "netfilter"].contains(&&*name);
        assert_eq!(result, if netlink { "EPROTONOSUPPORT" } else { "EPERM" }, "{name}");
    }
    let allowed = [
        ("unix", socket(1, 1, 0)),
        ("inet", socket(2, 1, 0)),
        ("inet6", socket(10, 1, 0)),
        ("route", socket(16, 3, 0)),
    ];
    for (name, result) in errors(&guest, &allowed).await {
        assert_eq!(result, "ok", "{name}");
    }
}

#[tokio::test]
async fn only_the_usual_transports_exist() {
    let guest = Guest::start().await;
    let socket = |family: i32, kind: i32, protocol: i32| {
        call(libc::SYS_socket, &format!(", {family}, {kind}, {protocol}"))
    };
    const CLOSE_ON_EXEC: i32 = 0o2_000_000;
    for family in [2, 10] {
        let refused = [
            ("MPTCP", socket(family, 1, 262)),
            ("MPTCP-with-flags", socket(family, 1 | CLOSE_ON_EXEC, 262)),
            ("UDP-Lite", socket(family, 2, 136)),
            ("SCTP", socket(family, 1, 132)),
            ("SCTP-by-type", socket(family, 5 | CLOSE_ON_EXEC, 0)),
            ("DCCP", socket(family, 6, 33)),
            ("DCCP-by-type", socket(family, 6, 0)),
        ];
        for (name, result) in errors(&guest, &refused).await {
            assert_eq!(result, "EPROTONOSUPPORT", "{name}");
        }
        let allowed = [("TCP", socket(family, 1, 6)), ("UDP", socket(family, 2 | CLOSE_ON_EXEC, 17))];
        for (name, result) in errors(&guest, &allowed).await {
            assert_eq!(result, "ok", "{name}");
        }
    }
}

#[tokio::test]
async fn requests_of_asynchronous_io_cannot_be_made() {
    let guest = Guest::start().await;
    let calls = [
        ("io_setup", call(libc::SYS_io_setup, ", 1, 0")),
        ("io_submit", call(libc::SYS_io_submit, ", 0, 0, 0")),
    ];
    for (name, result) in errors(&guest, &calls).await {
        assert_eq!(result, "ENOSYS", "{name}");
    }
}

#[tokio::test]
async fn no_command_can_have_its_core_handled() {
    // With a limit of exactly one byte the kernel starts no handler; with 0 it would.
    let script = "import resource as r\n\
                  print(r.getrlimit(r.RLIMIT_CORE))\n\
                  r.setrlimit(r.RLIMIT_CORE, (0, 0))\n\
                  try: r.prlimit(0, r.RLIMIT_CORE, (0, 0)); print('set')\n\
                  except PermissionError: print('refused')\n\
                  print(r.getrlimit(r.RLIMIT_CORE), r.prlimit(0, r.RLIMIT_NOFILE, (50, 50)), \
                  r.getrlimit(r.RLIMIT_NOFILE))";
    for config in [config(), root_config()] {
        let seen = Guest::with(config).await.run(python(script)).await;
        assert_eq!(seen.stdout(), "(1, 1)\nrefused\n(1, 1) (256, 256) (50, 50)\n", "{}", seen.stderr());
    }
}

#[tokio::test]
async fn odd_arguments_and_unknown_calls() {
    let guest = Guest::start().await;
    let calls = [
        ("TIOCSTI", call(libc::SYS_ioctl, ", 0, 0x5412, 0")),
        ("TIOCLINUX", call(libc::SYS_ioctl, ", 0, 0x541c, 0")),
        // Only the low half counts for the kernel, so it must for us.
        ("high", call(libc::SYS_ioctl, ", 0, 0x100005412, 0")),
        ("READ_IMPLIES_EXEC", call(libc::SYS_personality, ", 0x400000")),
        ("device", "libc.mknod(b'/tmp/dev', 0o20644, 0x103)".into()),
    ];
    for (name, result) in errors(&guest, &calls).await {
        assert_eq!(result, "EPERM", "{name}");
    }
    let fine = [
        ("asks", call(libc::SYS_personality, ", 0xffffffff")),
        ("fifo", "libc.mkfifo(b'/tmp/fifo', 0o644)".into()),
        ("ptrace", "libc.ptrace(0, 0, 0, 0)".into()),
    ];
    for (name, result) in errors(&guest, &fine).await {
        assert_eq!(result, "ok", "{name}");
    }
    let unknown = errors(&guest, &[("new", call(467, "")), ("none", call(9999, ""))]).await;
    assert!(unknown.iter().all(|(_, result)| result == "ENOSYS"), "{unknown:?}");
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn other_architectures_are_shut() {
    let guest = Guest::start().await;
    // getpid and unshare as x32 numbers.
    let calls = [("getpid", call(0x4000_0000 + 39, "")), ("unshare", call(0x4000_0000 + 272, ", 0"))];
    for (name, result) in errors(&guest, &calls).await {
        assert_eq!(result, "ENOSYS", "{name}");
    }
    // int 0x80 with getpid's 32-bit number: mov eax, 20; int 0x80; ret.
    let script = r"
import ctypes, mmap
m = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
m.write(b'\xb8\x14\x00\x00\x00\xcd\x80\xc3')
f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))
print('before', flush=True); f(); print('after')
";
    let seen = guest.run(python(script)).await;
    assert_eq!(
        (seen.stdout().as_str(), seen.info().signal),
        ("before\n", Some(libc::SIGSYS)),
        "{}",
        seen.stderr()
    );
}

#[tokio::test]
async fn building_images_may_chroot() {
    let mut config = GuestConfig { seccomp: Seccomp::Build, ..root_config() };
    config.capabilities.push(Capability::SysChroot);
    let guest = Guest::with(config).await;
    assert_eq!(guest.output("chroot / /bin/sh -c 'echo in'").await, "in");
    let guest = Guest::with(GuestConfig { seccomp: Seccomp::Build, ..config_of_user() }).await;
    assert_eq!(guest.run(sh("unshare -U true")).await.info().exit_code, Some(1));
}

fn config_of_user() -> GuestConfig {
    config()
}
