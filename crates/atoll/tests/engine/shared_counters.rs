//! What the kernel counts for each user of the machine, or for the machine as a whole. A sandbox takes all
//! of it that it can get; then root outside and a neighbour must still get theirs.

use super::fixture::{Instance, python, says, spec};
use atoll_provider::{Command, ContainerSpec, Provider};
use atoll_types::Limits;
use std::{fs, process, sync::Arc, time::Duration};

/// One function for each counter: takes one more, or raises.
const KINDS: &str = r"
import ctypes, fcntl, mmap, os, resource, select, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
kept = []
def call(number, *args):
    result = libc.syscall(ctypes.c_long(number), *args)
    if result == -1: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def inotify_watch(n=[0, None]):
    if n[1] is None: n[1] = call(294, 0)
    folder = f'/tmp/watched-{os.getpid()}-{n[0]}'; n[0] += 1
    os.mkdir(folder); libc.inotify_add_watch(n[1], folder.encode(), 0xfff) >= 0 or call(294, -1)
def inotify_instance(): kept.append(call(294, 0))
def message_queue(n=[0]):
    name = f'q{os.getpid()}-{n[0]}'.encode(); n[0] += 1
    call(240, name, os.O_CREAT | os.O_RDWR, 0o600, None); kept.append(name)
def posix_timer(): call(222, 1, None, ctypes.byref(ctypes.c_int()))
def pipe_buffer():
    r, w = os.pipe(); fcntl.fcntl(w, 1031, 1 << 20); kept.append((r, w))
def epoll_watch(n=[None]):
    if n[0] is None: n[0] = select.epoll()
    r, w = os.pipe(); n[0].register(r); kept.append((r, w))
def file_lock(n=[0, None]):
    n[1] = n[1] or open(f'/tmp/lock-{os.getpid()}', 'w')
    fcntl.lockf(n[1], fcntl.LOCK_EX, 1, 2 * n[0]); n[0] += 1
def terminal(): kept.append(os.openpty())
def semaphores(): call(64, 0, 100, 0o600 | 0o1000)
def system_v_queue(): call(68, 0, 0o600 | 0o1000)
def shared_segment(): call(29, 0, 4096, 0o600 | 0o1000)
def descriptor_in_flight(pair=[None]):
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    socket.send_fds(a, [b'x'], [a.fileno()]); kept.append((a, b))
def event_descriptor(): kept.append(os.eventfd(0))
def memory_descriptor(): kept.append(os.memfd_create('x'))
def locked_memory():
    page = mmap.mmap(-1, 4096); kept.append(page)
    if libc.mlock(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(page))), 4096): raise OSError(12, 'mlock')
kinds = [v for k, v in list(globals().items()) if callable(v) and getattr(v, '__module__', '') == '__main__' and k != 'call']
";

/// Takes all of everything, each kind in a process of its own, says so, and holds it.
const TAKE_ALL: &str = r"
for kind in kinds:
    r, w = os.pipe()
    if os.fork() == 0:
        taken = 0
        try:
            while taken < (100_000 if kind is posix_timer else 3000): kind(); taken += 1
            why = 'enough'
        except (OSError, MemoryError) as e: why = str(e)
        os.write(w, f'{kind.__name__} {taken} {why}\n'.encode())
        time.sleep(1000)
    os.close(w); line = os.read(r, 1000).decode()
    with open('/workspace/taken', 'a') as f: f.write(line or f'{kind.__name__} ended\n')
open('/workspace/done', 'w')
time.sleep(1000)
";

/// Takes one of everything, names what it did not get, and frees what outlives it.
const TAKE_ONE: &str = r"
for kind in kinds:
    try: kind()
    except OSError as e: print(kind.__name__, e)
for name in [k for k in kept if isinstance(k, bytes)]: call(241, name)
for left in (f'/tmp/lock-{os.getpid()}', f'/tmp/watched-{os.getpid()}-0'):
    if os.path.isdir(left): os.rmdir(left)
    elif os.path.exists(left): os.remove(left)
print('done')
";

/// As root outside. What System V keeps would stay there, so only the rest is tried.
fn outside() -> String {
    let program = format!(
        "{KINDS}\nkinds = [k for k in kinds if k not in (semaphores, system_v_queue, shared_segment)]\n{TAKE_ONE}"
    );
    let ran = process::Command::new("/usr/bin/python3").args(["-c", &program]).output().unwrap();
    String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr)
}

#[tokio::test]
async fn what_one_sandbox_takes_others_still_have() {
    let instance = Instance::start().await;
    let limits = Limits { memory_bytes: 256 << 20, ..Limits::default() };
    let hostile = instance.provider.create(ContainerSpec { limits, ..spec("default") }).await.unwrap();
    let neighbour = instance.container("default").await;
    let program = format!("{KINDS}{TAKE_ALL}");
    let taker = Arc::clone(&hostile);
    let taking =
        tokio::spawn(
            async move { taker.guest().run(&Command::new(["/usr/bin/python3", "-c", &program])).await },
        );
    let began = std::time::Instant::now();
    while says(&hostile, "ls /workspace").await.lines().all(|name| name != "done") {
        assert!(
            began.elapsed() < Duration::from_secs(120) && !taking.is_finished(),
            "it was not allowed to try"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let taken = says(&hostile, "cat /workspace/taken").await;
    println!("{taken}");
    assert!(taken.contains("inotify_instance 127 ") && taken.contains("inotify_watch 3000 "), "{taken}");
    assert_eq!(outside(), "done\n", "root outside, after:\n{taken}");
    assert_eq!(python(&neighbour, &format!("{KINDS}{TAKE_ONE}")).await, "done", "after:\n{taken}");
    taking.abort();
}

/// The kernel's own word for it: the user namespace is the sandbox's and not root's.
#[tokio::test]
async fn the_user_namespace_is_owned_by_the_sandbox() {
    let instance = Instance::start().await;
    for spec in super::fixture::every_spec() {
        let own_kernel = format!("{:?}", spec.profile.isolation).contains("runsc");
        let c = instance.provider.create(spec).await.unwrap();
        let namespace = fs::File::open(format!("/proc/{}/ns/user", instance.pid_of(&c))).unwrap();
        // NS_GET_OWNER_UID.
        let asked = process::Command::new("/usr/bin/python3")
            .args([
                "-c",
                "import array, fcntl; a = array.array('I', [0]); fcntl.ioctl(0, 0xb704, a); print(a[0])",
            ])
            .stdin(namespace)
            .output()
            .unwrap();
        let owner = String::from_utf8(asked.stdout).unwrap().trim().parse::<u32>().unwrap();
        assert!(own_kernel || owner >= 0x7000_0000, "owned by {owner}");
        instance.provider.destroy(c.id()).await.unwrap();
    }
}

/// Ceilings of the whole machine are above what sandboxes reach by their own limits.
#[tokio::test]
async fn ceilings_of_the_machine_are_out_of_reach() {
    let _instance = Instance::start().await;
    let ceiling = |name: &str| -> u64 {
        fs::read_to_string(format!("/proc/sys/{name}")).unwrap().trim().parse().unwrap()
    };
    assert!(ceiling("fs/file-max") >= 1 << 40, "each file is memory of its sandbox");
    assert!(ceiling("kernel/pid_max") >= 4_194_304, "a thousand sandboxes of the largest tier");
    assert!(ceiling("kernel/pty/max") >= 65_536, "five hundred sandboxes with all their terminals");
}
