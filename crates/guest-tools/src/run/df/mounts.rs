//! What is mounted, and how full it is.

use super::options::Options;
use rustix::{
    fs::{Dev, StatVfs, major, minor, stat, statvfs},
    io::Errno,
};
use std::{
    collections::HashMap,
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

/// One mount of /proc/self/mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) source: String,
    pub(super) kind: String,
    pub(super) at: PathBuf,
}

/// One row: a mount and its figures in bytes. Figures of inodes are counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileSystem {
    pub(super) source: String,
    pub(super) kind: String,
    pub(super) at: PathBuf,
    pub(super) file: String,
    pub(super) size: u64,
    pub(super) used: u64,
    pub(super) available: u64,
    pub(super) inodes: u64,
    pub(super) inodes_free: u64,
}

/// Every mount of this process, in the order in which they were made.
pub(super) fn read() -> Vec<Mount> {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    text.split(|byte| *byte == b'\n').filter_map(parse).collect()
}

/// `36 35 98:0 /root /at options optional... - kind source options`; blanks in names are octal.
fn parse(line: &[u8]) -> Option<Mount> {
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = words.iter().position(|word| *word == b"-")?;
    let text = |word: &[u8]| String::from_utf8_lossy(&plain(word)).into_owned();
    let at = PathBuf::from(OsString::from_vec(plain(words.get(4)?)));
    Some(Mount { source: text(words.get(dash + 2)?), kind: text(words.get(dash + 1)?), at })
}

/// A name without its octal escapes.
fn plain(word: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, behind @ ..] = rest {
        let code = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| *first == b'\\') {
            Some(byte) => {
                plain.push(byte);
                rest = &behind[3..];
            }
            None => {
                plain.push(*first);
                rest = behind;
            }
        }
    }
    plain
}

/// One row for each device: that of its shortest mount point, as GNU `df` has it. What holds nothing, such as /proc, is
/// left out unless everything is asked for.
pub(super) fn chosen(mounts: Vec<Mount>, options: &Options, disks: &Path) -> Vec<FileSystem> {
    let mut rows: Vec<FileSystem> = Vec::new();
    let mut of_device: HashMap<Dev, usize> = HashMap::new();
    for mount in mounts.into_iter().filter(|mount| options.takes(&mount.kind)) {
        let Ok(seen) = stat(&mount.at) else { continue };
        let Ok(row) = measure(&mount, seen.st_dev, "-", disks) else { continue };
        if options.all {
            rows.push(row);
            continue;
        }
        if row.size == 0 {
            continue;
        }
        match of_device.get(&seen.st_dev) {
            Some(number) if rows[*number].at.as_os_str().len() <= row.at.as_os_str().len() => {}
            Some(number) => rows[*number] = row,
            None => {
                of_device.insert(seen.st_dev, rows.len());
                rows.push(row);
            }
        }
    }
    rows
}

/// The row of the file system that a path lies on.
pub(super) fn of_path(mounts: &[Mount], path: &Path, disks: &Path) -> Result<FileSystem, Errno> {
    let device = stat(path)?.st_dev;
    let real = fs::canonicalize(path).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::NOENT))?;
    let holds = |mount: &&Mount| real.starts_with(&mount.at);
    // Of two mounts at one place the later one hides the other.
    let mount = mounts.iter().filter(holds).max_by_key(|mount| mount.at.as_os_str().len());
    let unknown = Mount { source: "-".into(), kind: "-".into(), at: real.clone() };
    let mut row = measure(mount.unwrap_or(&unknown), device, &path.to_string_lossy(), disks)?;
    if row.size == 0 {
        // A place whose mount point cannot be reached any more.
        row.at = mount.map_or(real, |mount| mount.at.clone());
    }
    Ok(row)
}

fn measure(mount: &Mount, device: Dev, file: &str, disks: &Path) -> Result<FileSystem, Errno> {
    let told = statvfs(&mount.at)?;
    let (size, used, available) = quota(disks, device, &told).unwrap_or_else(|| figures(&told));
    Ok(FileSystem {
        source: mount.source.clone(),
        kind: mount.kind.clone(),
        at: mount.at.clone(),
        file: file.to_owned(),
        size,
        used,
        available,
        inodes: told.f_files,
        inodes_free: told.f_ffree,
    })
}

/// Size, used and available by statfs.
fn figures(told: &StatVfs) -> (u64, u64, u64) {
    let bytes = |blocks: u64| blocks.saturating_mul(told.f_frsize);
    (bytes(told.f_blocks), bytes(told.f_blocks.saturating_sub(told.f_bfree)), bytes(told.f_bavail))
}

/// The same by the quota group of a volume, where the device is one. No more is available than the disk below has.
fn quota(disks: &Path, device: Dev, told: &StatVfs) -> Option<(u64, u64, u64)> {
    let folder = disks.join(format!("{}:{}", major(device), minor(device)));
    let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    let shared = number("shared").unwrap_or(0);
    let limit = number("group/max_referenced").filter(|limit| *limit > 0)?.saturating_add(shared);
    let written = number("group/referenced")?.saturating_add(number("group/rsv_data").unwrap_or(0));
    let used = written.saturating_add(shared);
    Some((limit, used, limit.saturating_sub(used).min(figures(told).2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_read_with_its_escapes_and_optional_fields() {
        let line = b"36 35 98:0 /mnt1 /with\\040blank rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue";
        let expected =
            Mount { source: "/dev/root".into(), kind: "ext3".into(), at: PathBuf::from("/with blank") };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse(b"36 35 98:0 /mnt1 /at rw"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn a_volume_has_the_figures_of_its_group_and_anything_else_those_of_statfs() {
        let disks = tempfile::tempdir().unwrap();
        let seen = stat(disks.path()).unwrap();
        let told = statvfs(disks.path()).unwrap();
        assert_eq!(quota(disks.path(), seen.st_dev, &told), None);
        let folder = disks.path().join(format!("{}:{}", major(seen.st_dev), minor(seen.st_dev)));
        fs::create_dir_all(folder.join("group")).unwrap();
        for (name, text) in [("max_referenced", "60000\n"), ("referenced", "20000\n"), ("rsv_data", "1000\n")]
        {
            fs::write(folder.join("group").join(name), text).unwrap();
        }
        fs::write(folder.join("shared"), "40000").unwrap();
        assert_eq!(quota(disks.path(), seen.st_dev, &told), Some((100_000, 61_000, 39_000)));
        // A group without a limit.
        fs::write(folder.join("group/max_referenced"), "0\n").unwrap();
        assert_eq!(quota(disks.path(), seen.st_dev, &told), None);
    }
}
