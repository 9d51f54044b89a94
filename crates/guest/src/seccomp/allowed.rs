//! Every call that a program may make. Some of these are refused for certain arguments; see
//! `refused`. What is missing here does not exist for user code: clone3, whose flags a filter cannot
//! see, above all. Nor are there the calls of asynchronous I/O (io_setup and its kin): the kernel counts their
//! requests for the whole machine, and programs do without them.

macro_rules! numbers {
    ($($name:ident)*) => { [$(libc::$name),*] };
}
pub(super) use numbers;

/// The calls that every architecture has.
const COMMON: &[i64] = &numbers! {
    SYS_read SYS_write SYS_openat SYS_openat2 SYS_close SYS_close_range SYS_fstat SYS_newfstatat
    SYS_statx SYS_lseek SYS_mmap SYS_mprotect SYS_munmap SYS_brk
    SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigpending SYS_rt_sigtimedwait
    SYS_rt_sigqueueinfo SYS_rt_tgsigqueueinfo SYS_rt_sigsuspend SYS_sigaltstack
    SYS_ioctl SYS_pread64 SYS_pwrite64 SYS_readv SYS_writev SYS_preadv SYS_pwritev SYS_preadv2
    SYS_pwritev2 SYS_faccessat SYS_faccessat2 SYS_pipe2 SYS_ppoll SYS_pselect6
    SYS_sched_yield SYS_mremap SYS_msync SYS_mincore SYS_madvise SYS_process_madvise SYS_mlock
    SYS_mlock2 SYS_munlock SYS_mlockall SYS_munlockall
    SYS_shmget SYS_shmat SYS_shmctl SYS_shmdt SYS_semget SYS_semop SYS_semctl SYS_semtimedop SYS_msgget
    SYS_msgsnd SYS_msgrcv SYS_msgctl
    SYS_dup SYS_dup3 SYS_nanosleep SYS_clock_nanosleep SYS_getitimer SYS_setitimer SYS_getpid
    SYS_getppid SYS_gettid SYS_sendfile
    SYS_socket SYS_connect SYS_accept SYS_accept4 SYS_sendto SYS_recvfrom SYS_sendmsg SYS_recvmsg
    SYS_sendmmsg SYS_recvmmsg SYS_shutdown SYS_bind SYS_listen SYS_getsockname SYS_getpeername
    SYS_socketpair SYS_setsockopt SYS_getsockopt
    SYS_clone SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_wait4 SYS_waitid SYS_kill SYS_tkill
    SYS_tgkill SYS_uname SYS_fcntl SYS_flock SYS_fsync SYS_fdatasync SYS_sync SYS_syncfs
    SYS_truncate SYS_ftruncate SYS_getdents64 SYS_getcwd SYS_chdir SYS_fchdir SYS_renameat2 SYS_mkdirat
    SYS_linkat SYS_unlinkat SYS_symlinkat SYS_readlinkat SYS_mknodat
    SYS_fchmod SYS_fchmodat SYS_fchown SYS_fchownat SYS_umask SYS_gettimeofday SYS_prlimit64
    SYS_getrusage SYS_sysinfo SYS_times SYS_ptrace
    SYS_getuid SYS_getgid SYS_setuid SYS_setgid SYS_geteuid SYS_getegid SYS_setpgid SYS_getpgid
    SYS_setsid SYS_getsid SYS_setreuid SYS_setregid SYS_getgroups SYS_setgroups SYS_setresuid
    SYS_getresuid SYS_setresgid SYS_getresgid SYS_setfsuid SYS_setfsgid
    SYS_capget SYS_capset SYS_personality SYS_statfs SYS_fstatfs SYS_getpriority SYS_setpriority
    SYS_ioprio_set SYS_ioprio_get
    SYS_sched_setparam SYS_sched_getparam SYS_sched_setscheduler SYS_sched_getscheduler
    SYS_sched_get_priority_max SYS_sched_get_priority_min SYS_sched_rr_get_interval
    SYS_sched_setaffinity SYS_sched_getaffinity SYS_sched_setattr SYS_sched_getattr
    SYS_prctl SYS_readahead
    SYS_setxattr SYS_lsetxattr SYS_fsetxattr SYS_getxattr SYS_lgetxattr SYS_fgetxattr SYS_listxattr
    SYS_llistxattr SYS_flistxattr SYS_removexattr SYS_lremovexattr SYS_fremovexattr
    SYS_futex SYS_set_tid_address SYS_get_robust_list SYS_set_robust_list SYS_restart_syscall
    SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2 SYS_signalfd4
    SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime SYS_inotify_init1 SYS_inotify_add_watch
    SYS_inotify_rm_watch
    SYS_timer_create SYS_timer_settime SYS_timer_gettime SYS_timer_getoverrun SYS_timer_delete
    SYS_clock_gettime SYS_clock_getres
    SYS_mbind SYS_set_mempolicy SYS_get_mempolicy SYS_set_mempolicy_home_node SYS_mq_open SYS_mq_unlink
    SYS_mq_timedsend SYS_mq_timedreceive SYS_mq_notify SYS_mq_getsetattr
    SYS_utimensat SYS_fadvise64 SYS_fallocate SYS_splice SYS_vmsplice SYS_tee SYS_copy_file_range
    SYS_getcpu SYS_process_vm_readv SYS_process_vm_writev SYS_kcmp
    SYS_getrandom SYS_memfd_create SYS_membarrier SYS_rseq SYS_pkey_mprotect SYS_pkey_alloc
    SYS_pkey_free SYS_seccomp SYS_remap_file_pages
    SYS_pidfd_send_signal SYS_pidfd_open SYS_pidfd_getfd SYS_process_mrelease
    SYS_landlock_create_ruleset SYS_landlock_add_rule SYS_landlock_restrict_self SYS_memfd_secret
    SYS_futex_waitv
};

/// What this architecture has besides: the older forms of newer calls.
#[cfg(target_arch = "x86_64")]
const HERE: &[i64] = &numbers! {
    SYS_sync_file_range SYS_renameat SYS_getrlimit SYS_setrlimit SYS_open SYS_stat SYS_lstat SYS_poll
    SYS_access SYS_pipe SYS_select SYS_dup2 SYS_pause SYS_alarm SYS_fork SYS_vfork SYS_getdents
    SYS_rename SYS_mkdir SYS_rmdir SYS_creat SYS_link SYS_unlink SYS_symlink SYS_readlink SYS_chmod
    SYS_chown SYS_lchown SYS_utime SYS_utimes SYS_futimesat SYS_getpgrp SYS_arch_prctl SYS_time
    SYS_epoll_create SYS_epoll_wait SYS_inotify_init SYS_signalfd SYS_eventfd SYS_mknod
};
/// Numbers that the C library's crate does not name: sync_file_range, renameat, getrlimit, setrlimit.
#[cfg(target_arch = "aarch64")]
const HERE: &[i64] = &[84, 38, 163, 164];

/// What is too new to be named by the C library's crate, with the same number everywhere: cachestat,
/// fchmodat2, map_shadow_stack, futex_wake, futex_wait, futex_requeue, mseal, setxattrat, getxattrat,
/// listxattrat, removexattrat.
const RECENT: &[i64] = &[451, 452, 453, 454, 455, 456, 462, 463, 464, 465, 466];

/// All of them.
pub(super) fn all() -> impl Iterator<Item = i64> {
    COMMON.iter().chain(HERE).chain(RECENT).copied()
}
