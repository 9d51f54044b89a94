//! What a command holds, and what it cannot reach.

use crate::support::*;
use atoll_guest_proto::v1::ExecRequest;

async fn status(guest: &Guest, user: &str) -> String {
    let request = ExecRequest { user: user.into(), ..argv(&["cat", "/proc/self/status"]) };
    guest.run(request).await.stdout()
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(":\t")).unwrap()
}

const SETS: [&str; 5] = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
const NONE: &str = "0000000000000000";

#[tokio::test]
async fn a_command_holds_nothing() {
    let guest = Guest::start().await;
    let status = status(&guest, "").await;
    for set in SETS {
        assert_eq!(field(&status, set), NONE, "{set}");
    }
    assert_eq!((field(&status, "NoNewPrivs"), field(&status, "Seccomp")), ("1", "2"));
    assert_eq!((field(&status, "SigBlk"), field(&status, "SigIgn")), (NONE, NONE));
    assert_eq!(field(&status, "Umask"), "0022");
    assert_eq!(field(&status, "Uid"), "1000\t1000\t1000\t1000");
}

#[tokio::test]
async fn root_holds_exactly_what_its_profile_says() {
    let guest = Guest::with(root_config()).await;
    // CHOWN (0), KILL (5) and SETUID (7).
    let held = "00000000000000a1";
    let root = status(&guest, "").await;
    for (set, wanted) in SETS.iter().zip([NONE, held, held, held, NONE]) {
        assert_eq!(field(&root, set), wanted, "{set}");
    }
    let user = status(&guest, "user").await;
    for set in SETS {
        assert_eq!(field(&user, set), NONE, "{set}");
    }
}

#[tokio::test]
async fn only_stdio_is_open() {
    let guest = Guest::start().await;
    // The fourth is the directory that ls itself reads.
    assert_eq!(guest.output("ls /proc/self/fd | wc -l").await, "4");
    let seen = guest.run(python("import os; print(sorted(os.listdir('/proc/self/fd')))")).await;
    assert_eq!(seen.stdout(), "['0', '1', '2', '3']\n");
}

#[tokio::test]
async fn limits_are_set() {
    let guest = Guest::start().await;
    let text = guest.output("ulimit -n; ulimit -Hn; ulimit -c; cat /proc/self/oom_score_adj").await;
    assert_eq!(text, "256\n256\n0\n500");
    assert_eq!(guest.output("ps -o sid= -p $$ | tr -d ' '; echo $$").await.lines().count(), 2);
    let text = guest.output("echo $(ps -o sid=,pgid= -p $$) $$").await;
    let words: Vec<&str> = text.split_whitespace().collect();
    assert_eq!((words[0], words[1]), (words[2], words[2]));
}

#[tokio::test]
async fn atoll_init_cannot_be_reached_from_inside() {
    let guest = Guest::start().await;
    let init = guest.pid();
    let script = format!(
        "for p in {init} $PPID; do
           kill -0 $p 2>/dev/null && echo kill
           cat /proc/$p/environ >/dev/null 2>&1 && echo environ
           cat /proc/$p/maps 2>/dev/null | grep -q . && echo maps
           ls /proc/$p/fd >/dev/null 2>&1 && echo fd
           readlink /proc/$p/exe >/dev/null 2>&1 && echo exe
         done; true"
    );
    assert_eq!(guest.output(&script).await, "");
    // 16 is PTRACE_ATTACH, 438 is pidfd_getfd.
    let script = format!(
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n\
         for p in ({init}, os.getppid()):\n  print(libc.ptrace(16, p, 0, 0), end=' ')\n\
         \x20 print(libc.syscall(438, os.pidfd_open(p), 3, 0), end=' ')\n"
    );
    assert_eq!(guest.run(python(&script)).await.stdout(), "-1 -1 -1 -1 ");
}

#[tokio::test]
async fn atoll_init_itself_is_bare() {
    let guest = Guest::start().await;
    guest.output("true").await;
    let status = std::fs::read_to_string(format!("/proc/{}/status", guest.pid())).unwrap();
    assert_eq!((field(&status, "NoNewPrivs"), field(&status, "Seccomp")), ("1", "2"));
    // The second is for files.
    assert_eq!((field(&status, "CapBnd"), field(&status, "Threads")), (NONE, "2"));
    let environ = std::fs::read(format!("/proc/{}/environ", guest.pid())).unwrap();
    assert!(environ.iter().all(|b| *b == 0), "the configuration is still in memory");
}
