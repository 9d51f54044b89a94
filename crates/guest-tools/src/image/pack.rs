//! A folder as one layer: entries in the order of their names, with ids, times, hard links and the extended attributes that
//! images keep. Sockets, devices and what is in the kernel's own file systems are left out. Of the same files it is always the
//! same bytes, so an image that is exported twice has one digest.

use super::{
    apply::{is_kept, xattr_names},
    folder::io_error,
};
use crate::{
    PackedLayer,
    archive::{
        broken, check_readable, complete,
        write::{About, Archive},
    },
    beneath,
    errno::on_name,
    walk::{Item, Walk},
};
use atoll_oci::Hasher;
use atoll_types::Result;
use flate2::{Compression, write::GzEncoder};
use rustix::{
    fs::{FileType, OFlags, Stat, fgetxattr, fstat, readlinkat},
    io::Errno,
};
use std::{
    collections::HashMap,
    fs::File,
    io::{self, Write},
    os::fd::OwnedFd,
};
use tar::EntryType;

/// Packs an open folder. A file that cannot be read is an error before the first byte.
pub fn pack_image(folder: OwnedFd, out: impl Write) -> Result<()> {
    check_readable(&folder, b"")?;
    let top = folder.try_clone().map_err(|e| io_error(&e, b""))?;
    let mut packer = Packer { top, archive: Archive::new(out), links: HashMap::new() };
    let stat = fstat(&packer.top).map_err(|e| on_name(e, b""))?;
    packer.entry(b"./", b"", EntryType::Directory, &stat, b"")?;
    let mut walk = Walk::new(folder, u32::MAX).stored_only();
    while let Some(item) = walk.next() {
        packer.item(&item)?;
        complete(&walk, b"")?;
    }
    complete(&walk, b"")?;
    packer.archive.finish().map_err(broken)
}

/// The same, compressed where that is asked for, with what it is.
pub fn pack_layer(folder: OwnedFd, gzip: bool, out: impl Write) -> Result<PackedLayer> {
    let mut out = Hashed::new(out);
    let diff_id = match gzip {
        true => {
            let mut encoder = GzEncoder::new(&mut out, Compression::fast());
            let mut plain = Hashed::new(&mut encoder);
            pack_image(folder, &mut plain)?;
            let diff_id = plain.hasher.finish();
            encoder.finish().map_err(broken)?;
            diff_id
        }
        false => {
            pack_image(folder, &mut out)?;
            out.hasher.clone().finish()
        }
    };
    out.flush().map_err(broken)?;
    let Hashed { hasher, count, .. } = out;
    Ok(PackedLayer { digest: hasher.finish(), diff_id, size: count })
}

/// Bytes on their way, with their digest.
struct Hashed<W> {
    out: W,
    hasher: Hasher,
    count: u64,
}

impl<W> Hashed<W> {
    fn new(out: W) -> Self {
        Self { out, hasher: Hasher::default(), count: 0 }
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        self.count += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

struct Packer<W: Write> {
    top: OwnedFd,
    archive: Archive<W>,
    /// The first name of each file that has several.
    links: HashMap<(u64, u64), Vec<u8>>,
}

impl<W: Write> Packer<W> {
    fn item(&mut self, item: &Item) -> Result<()> {
        let path = item.path.as_slice();
        match item.kind() {
            FileType::Directory => {
                self.entry(&[path, b"/"].concat(), b"", EntryType::Directory, &item.stat, path)
            }
            FileType::RegularFile | FileType::Fifo | FileType::Symlink if item.stat.st_nlink > 1 => {
                let key = (item.stat.st_dev, item.stat.st_ino);
                if let Some(first) = self.links.get(&key) {
                    let about = About { kind: EntryType::Link, stat: &item.stat, size: 0 };
                    return self.archive.head(path, first, &about).map_err(broken);
                }
                self.links.insert(key, path.to_vec());
                self.special(item)
            }
            _ => self.special(item),
        }
    }

    fn special(&mut self, item: &Item) -> Result<()> {
        let path = item.path.as_slice();
        match item.kind() {
            FileType::RegularFile => self.entry(path, b"", EntryType::Regular, &item.stat, path),
            FileType::Fifo => self.entry(path, b"", EntryType::Fifo, &item.stat, path),
            FileType::Symlink => {
                let target = readlinkat(&self.top, path, Vec::new()).map_err(|e| on_name(e, path))?;
                self.entry(path, target.to_bytes(), EntryType::Symlink, &item.stat, path)
            }
            _ => Ok(()),
        }
    }

    fn entry(&mut self, name: &[u8], target: &[u8], kind: EntryType, stat: &Stat, path: &[u8]) -> Result<()> {
        let failed = |e| on_name(e, path);
        let open = |more| {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | more;
            beneath::open(&self.top, path, flags).map_err(failed)
        };
        let file = match kind {
            EntryType::Directory => Some(open(OFlags::DIRECTORY)?),
            EntryType::Regular => Some(open(OFlags::empty())?),
            _ => None,
        };
        let mut records = Vec::new();
        if stat.st_mtime_nsec != 0 {
            let text = format!("{}.{:09}", stat.st_mtime, stat.st_mtime_nsec);
            records.push((b"mtime".to_vec(), text.into_bytes()));
        }
        if let Some(file) = &file {
            for attribute in xattr_names(file).map_err(failed)?.into_iter().filter(|name| is_kept(name)) {
                let mut value = vec![0; 64 << 10];
                match fgetxattr(file, &*attribute, value.as_mut_slice()) {
                    Ok(length) => value.truncate(length),
                    Err(Errno::NODATA | Errno::OPNOTSUPP) => continue,
                    Err(e) => return Err(failed(e)),
                }
                records.push(([b"SCHILY.xattr.", attribute.as_slice()].concat(), value));
            }
        }
        self.archive.extensions(&records).map_err(broken)?;
        let size = if kind == EntryType::Regular { u64::try_from(stat.st_size).unwrap_or(0) } else { 0 };
        self.archive.head(name, target, &About { kind, stat, size }).map_err(broken)?;
        match (kind, file) {
            (EntryType::Regular, Some(file)) => {
                self.archive.body(&mut File::from(file), size).map_err(broken)
            }
            _ => Ok(()),
        }
    }
}
