//! The files of an image that Atoll writes itself: directories, accounts, names. The machine's own are never
//! used, so that nothing about its users or its network shows inside.

/// Directories with their modes, parents first.
pub(super) const DIRECTORIES: &[(&str, u32)] = &[
    ("dev", 0o755),
    ("etc", 0o755),
    // Certificates are mounted here.
    ("etc/atoll", 0o755),
    ("etc/pam.d", 0o755),
    ("etc/skel", 0o755),
    ("home", 0o755),
    ("home/sandbox", 0o755),
    ("home/user", 0o755),
    ("media", 0o755),
    ("mnt", 0o755),
    ("opt", 0o755),
    ("proc", 0o755),
    ("root", 0o700),
    ("run", 0o755),
    ("run/lock", 0o1777),
    ("srv", 0o755),
    ("sys", 0o755),
    ("tmp", 0o1777),
    ("usr", 0o755),
    ("var", 0o755),
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("var/log", 0o755),
    ("var/tmp", 0o1777),
    ("workspace", 0o755),
];

/// Symbolic links.
pub(super) const LINKS: &[(&str, &str)] =
    &[("etc/mtab", "../proc/self/mounts"), ("var/lock", "../run/lock"), ("var/run", "../run")];

/// Files.
pub(super) const FILES: &[(&str, &str)] = &[
    ("etc/adduser.conf", "DSHELL=/bin/bash\n"),
    ("etc/bash.bashrc", BASHRC),
    ("etc/group", GROUP),
    ("etc/host.conf", "multi on\n"),
    ("etc/hostname", "sandbox\n"),
    ("etc/hosts", HOSTS),
    ("etc/login.defs", LOGIN_DEFS),
    ("etc/machine-id", ""),
    ("etc/nsswitch.conf", NSSWITCH),
    ("etc/pam.d/other", PAM),
    ("etc/passwd", PASSWD),
    ("etc/profile", PROFILE),
    ("etc/resolv.conf", RESOLV_CONF),
    ("etc/shells", "/bin/sh\n/bin/bash\n/usr/bin/bash\n"),
];

const HOSTS: &str = "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n";

/// The files that describe the network of a sandbox, which is the same in every image.
pub const NETWORK_FILES: &[(&str, &str)] =
    &[("etc/hostname", "sandbox\n"), ("etc/hosts", HOSTS), ("etc/resolv.conf", RESOLV_CONF)];

/// The egress session's resolver, which answers at once or never.
const RESOLV_CONF: &str = "nameserver 127.0.0.53\noptions timeout:2 attempts:2\n";

const PASSWD: &str = "\
root:x:0:0:root:/root:/bin/bash
user:x:1000:1000:user:/home/user:/bin/bash
sandbox:x:65532:65532:sandbox:/home/sandbox:/bin/bash
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
";

const GROUP: &str = "\
root:x:0:
tty:x:5:
staff:x:50:
users:x:100:
user:x:1000:
sandbox:x:65532:
nogroup:x:65534:
";

const NSSWITCH: &str = "\
passwd: files
group: files
shadow: files
hosts: files dns
networks: files
protocols: files
services: files
ethers: files
rpc: files
";

const LOGIN_DEFS: &str = "\
UID_MIN 1000
UID_MAX 60000
GID_MIN 1000
GID_MAX 60000
UMASK 022
USERGROUPS_ENAB yes
ENCRYPT_METHOD YESCRYPT
";

/// For every program that uses PAM (su, chfn, passwd …), since no other service has a file: root inside needs no
/// password, which gives it no right that it has not, and other users need their own.
const PAM: &str = "\
auth sufficient pam_rootok.so
auth required pam_unix.so
account required pam_permit.so
password required pam_unix.so yescrypt
session required pam_permit.so
";

const PROFILE: &str = r#"export PATH="${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}"
umask 022
if [ -n "${BASH_VERSION:-}" ] && [ -n "${PS1:-}" ] && [ -r /etc/bash.bashrc ]; then
  . /etc/bash.bashrc
fi
"#;

const BASHRC: &str = r#"[ -z "${PS1:-}" ] && return
shopt -s checkwinsize
PS1='\u@\h:\w\$ '
"#;
