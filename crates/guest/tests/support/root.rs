//! A root filesystem for one test, made in the child between fork and exec: a tmpfs with the
//! machine's /usr, /proc and /dev, an /etc of its own, and the directories of a sandbox.

use std::{ffi::CString, fs, io, path::Path};

const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n\
                      ann:x:1234:1235::/home/ann:/bin/sh\nbig:x:65534:65534::/:/bin/sh\n";
const GROUP: &str = "root:x:0:ann\nextra:x:2000:user,ann\nmore:x:2001:ann\ntty:x:5:\n";

/// Everything prepared before the fork.
pub(crate) struct Root {
    root: CString,
    mkdirs: Vec<(CString, u32, u32)>,
    links: Vec<(CString, CString)>,
    binds: Vec<(CString, CString)>,
    terminals: CString,
}

fn c(path: impl AsRef<Path>) -> CString {
    CString::new(path.as_ref().to_str().unwrap()).unwrap()
}

impl Root {
    /// `scratch` is an empty directory of the test's.
    pub(crate) fn prepare(scratch: &Path, binary: &Path, first_id: u32) -> Self {
        let (root, etc) = (scratch.join("root"), scratch.join("etc"));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&etc).unwrap();
        fs::write(etc.join("passwd"), PASSWD).unwrap();
        fs::write(etc.join("group"), GROUP).unwrap();
        let at = |name: &str| c(root.join(name));
        let directories = [
            ("usr", 0, 0o755),
            ("etc", 0, 0o755),
            ("proc", 0, 0o755),
            ("dev", 0, 0o755),
            ("init", 0, 0o755),
            ("root", 0, 0o700),
            ("tmp", 0, 0o1777),
            ("workspace", 1000, 0o755),
            ("home", 0, 0o755),
            ("home/user", 1000, 0o755),
            ("secret", 0, 0o700),
        ];
        let links = ["bin", "sbin", "lib", "lib64"].map(|name| (c(format!("usr/{name}")), at(name)));
        let mut binds: Vec<_> =
            ["usr", "proc", "dev"].iter().map(|name| (c(format!("/{name}")), at(name))).collect();
        binds.push((c(etc), at("etc")));
        binds.push((c(binary.parent().unwrap()), at("init")));
        Self {
            root: c(&root),
            mkdirs: directories
                .iter()
                .map(|(name, owner, mode)| (at(name), first_id + owner, *mode))
                .collect(),
            links: links.to_vec(),
            terminals: at("dev/pts"),
            binds,
        }
    }

    /// Enters it. Only system calls: this runs in the forked child of a threaded process.
    pub(crate) fn enter(&self) -> io::Result<()> {
        let none = std::ptr::null::<libc::c_char>();
        let mount = |from: *const libc::c_char, to: &CString, kind: *const libc::c_char, flags| {
            // SAFETY: strings that live through the call, or null where mount(2) allows it.
            check(unsafe { libc::mount(from, to.as_ptr(), kind, flags, std::ptr::null()) })
        };
        // SAFETY: a number.
        check(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
        // SAFETY: as above; makes all mounts private to this namespace.
        check(unsafe {
            libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, std::ptr::null())
        })?;
        mount(c"tmpfs".as_ptr(), &self.root, c"tmpfs".as_ptr(), 0)?;
        for (path, owner, mode) in &self.mkdirs {
            // SAFETY: strings that live through the calls.
            unsafe {
                check(libc::mkdir(path.as_ptr(), 0o755))?;
                check(libc::chmod(path.as_ptr(), *mode))?;
                check(libc::chown(path.as_ptr(), *owner, *owner))?;
            }
        }
        for (target, path) in &self.links {
            // SAFETY: strings that live through the call.
            check(unsafe { libc::symlink(target.as_ptr(), path.as_ptr()) })?;
        }
        for (from, to) in &self.binds {
            mount(from.as_ptr(), to, none, libc::MS_BIND | libc::MS_REC)?;
        }
        // SAFETY: strings that live through the call. Terminals of its own, as a sandbox has them.
        check(unsafe {
            let options = c"newinstance,ptmxmode=0666,mode=0620";
            libc::mount(
                c"devpts".as_ptr(),
                self.terminals.as_ptr(),
                c"devpts".as_ptr(),
                0,
                options.as_ptr().cast(),
            )
        })?;
        // SAFETY: strings that live through the calls.
        unsafe {
            // Not chroot: who is in one may not make user namespaces.
            check(libc::chdir(self.root.as_ptr()))?;
            check(libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) as libc::c_int)?;
            check(libc::umount2(c".".as_ptr(), libc::MNT_DETACH))?;
            check(libc::chdir(c"/".as_ptr()))
        }
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
