//! The certificates that containers trust: those of their image, those of the machine, and those that the server adds for
//! connections that it intercepts. One folder for each image, seen read-only in every container of it. Certificates only: no
//! secret is ever here.

use crate::{
    context::{Context, make_folder},
    disk_figures, images,
};
use atoll_launch_proto::MAX_CERTIFICATE;
use atoll_storage::Image;
use atoll_types::{Error, ErrorCode, Result};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, ResolveFlags, flock, openat2};
use std::{
    fs, io,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// The names of [`atoll_types::egress_address`], in their folder.
const CERTIFICATE: &str = "ca.pem";
const BUNDLE: &str = "ca-bundle.pem";
/// Where images have all their certificates in one file; the first that exists is used.
const BUNDLES: &[&str] = &[
    "etc/ssl/certs/ca-certificates.crt",
    "etc/pki/tls/certs/ca-bundle.crt",
    "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "etc/ssl/ca-bundle.pem",
    "etc/ssl/cert.pem",
];
const LONGEST_BUNDLE: u64 = 4 << 20;

fn fault(e: impl std::fmt::Display) -> Error {
    Error::internal(format!("certificates cannot be laid out: {e}"))
}

/// Adds these certificates to those of every image, in place of those that were added before.
pub(crate) fn set(context: &Context, certificates: &str) -> Result<()> {
    only_certificates(certificates)?;
    let _held = hold(context)?;
    write(&context.trust().join(CERTIFICATE), certificates.as_bytes())?;
    // Running containers see the new certificates too: they mount the same folder.
    let known = fs::read_dir(context.trust()).map_err(fault)?.flatten();
    for folder in known.filter(|entry| entry.path().is_dir()) {
        let Some(id) = folder.file_name().to_str().map(str::to_owned) else { continue };
        lay_out(context, &folder.path(), &context.image_root(&id))?;
    }
    Ok(())
}

/// The folder for containers of an image.
pub(crate) fn folder(context: &Context, image: &Image) -> Result<PathBuf> {
    let folder = context.trust().join(&image.id);
    let whole = folder.join(BUNDLE).exists() && folder.join(disk_figures::FOLDER).exists();
    // The certificates of a root that is built change with it.
    if images::is_built(&image.id) || !whole {
        let root = image.trees.first().ok_or_else(|| Error::internal("an image without a tree"))?;
        let _held = hold(context)?;
        make_folder(&folder, 0o755)
            .and_then(|()| make_folder(&folder.join(disk_figures::FOLDER), 0o755))
            .map_err(fault)?;
        lay_out(context, &folder, &root.source)?;
    }
    Ok(folder)
}

/// Removes what was laid out for an image that is gone. What stays is of no harm.
pub(crate) fn forget(context: &Context, image: &str) {
    // Not while certificates are written to every image's folder.
    let Ok(_held) = hold(context) else { return };
    let _ = fs::remove_dir_all(context.trust().join(image));
}

/// One process at a time writes here.
fn hold(context: &Context) -> Result<fs::File> {
    let file = fs::File::create(context.trust().join("lock")).map_err(fault)?;
    flock(&file, FlockOperation::LockExclusive).map_err(fault)?;
    Ok(file)
}

/// Writes the files of one image. The bundle is written last: where it exists, the rest does.
fn lay_out(context: &Context, folder: &Path, root: &Path) -> Result<()> {
    let mut all = bundle_of(root);
    let machine = bundle_of(Path::new("/"));
    let is_machines = all == machine;
    let mut add = |more: &[u8]| {
        if !all.is_empty() && !all.ends_with(b"\n") {
            all.push(b'\n');
        }
        all.extend_from_slice(more);
    };
    // An image that came from elsewhere lacks the authority of a network that has one of its own.
    if !is_machines {
        add(&machine);
    }
    match fs::read(context.trust().join(CERTIFICATE)) {
        Ok(added) => {
            write(&folder.join(CERTIFICATE), &added)?;
            add(&added);
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(fault(e)),
    }
    write(&folder.join(BUNDLE), &all)
}

/// An image's own certificates; empty where the image has none.
fn bundle_of(root: &Path) -> Vec<u8> {
    let open = |path: &str| {
        let root = openat2(CWD, root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::empty())?;
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        openat2(root, path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty(), how)
    };
    let read = |path: &&str| {
        let mut bytes = Vec::new();
        let file = fs::File::from(open(path).ok()?);
        let plain = file.metadata().is_ok_and(|m| m.is_file() && m.len() <= LONGEST_BUNDLE);
        let read = plain.then(|| file.take(LONGEST_BUNDLE).read_to_end(&mut bytes));
        read.is_some_and(|read| read.is_ok()).then_some(bytes)
    };
    BUNDLES.iter().find_map(read).unwrap_or_default()
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    let temporary = path.with_extension("new");
    fs::write(&temporary, content)
        .and_then(|()| fs::set_permissions(&temporary, fs::Permissions::from_mode(0o644)))
        .and_then(|()| fs::rename(&temporary, path))
        .map_err(fault)
}

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Refuses anything but certificates, above all a key: this text is seen in every sandbox.
fn only_certificates(text: &str) -> Result<()> {
    let wrong = |why: &str| Error::invalid("certificate_pem", format!("certificate_pem {why}"));
    if text.len() > MAX_CERTIFICATE {
        let message = format!("certificate_pem has more than {MAX_CERTIFICATE} bytes");
        return Err(Error::new(ErrorCode::TooLarge, message).at("certificate_pem"));
    }
    let mut lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).peekable();
    if lines.peek().is_none() {
        return Err(wrong("is empty"));
    }
    while let Some(first) = lines.next() {
        if first != BEGIN {
            return Err(wrong("holds something that is no PEM block CERTIFICATE"));
        }
        let mut inside = String::new();
        loop {
            match lines.next() {
                Some(END) => break,
                Some(line) => inside.push_str(line),
                None => return Err(wrong("has a block without an end")),
            }
        }
        if !is_sequence(&inside) {
            return Err(wrong("has a block that holds no certificate"));
        }
    }
    Ok(())
}

/// Whether this is Base64 of one whole ASN.1 sequence, as every certificate is.
fn is_sequence(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
    if !text.len().is_multiple_of(4) || padding > 2 || digits.len() < 8 || !digits.bytes().all(plain) {
        return false;
    }
    let length = text.len() / 4 * 3 - padding;
    let head = digits.bytes().take(8).fold(0u64, |bits, b| bits << 6 | u64::from(digit(b)));
    let [_, _, tag, form, high, low, ..] = head.to_be_bytes();
    let inside = usize::from(u16::from_be_bytes([high, low]));
    match (tag, form) {
        (0x30, 0x82) => length == inside + 4,
        (0x30, 0x81) => length == usize::from(high) + 3,
        (0x30, 0..=0x7f) => length == usize::from(form) + 2,
        _ => false,
    }
}

fn digit(b: u8) -> u8 {
    match b {
        b'A'..=b'Z' => b - b'A',
        b'a'..=b'z' => b - b'a' + 26,
        b'0'..=b'9' => b - b'0' + 52,
        b'+' => 62,
        _ => 63,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sequence of 256 + 4 zeros, in lines as tools write them.
    fn block() -> String {
        let digits = format!("MIIBB{}", "A".repeat(4 * 88 - 5));
        let lines: Vec<&str> =
            digits.as_bytes().chunks(64).map(|l| std::str::from_utf8(l).unwrap()).collect();
        format!("{BEGIN}\n{}\n{END}\n", lines.join("\n"))
    }

    #[test]
    fn certificates_are_taken_and_nothing_else_is() {
        let good = block();
        for text in [good.clone(), good.repeat(3), good.replace('\n', "\r\n"), format!("\n{good}\n")] {
            assert_eq!(only_certificates(&text), Ok(()), "{text}");
        }
        let key = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA==\n-----END PRIVATE KEY-----\n";
        let wrong = [
            String::new(),
            "\n\n".into(),
            key.into(),
            format!("{good}{key}"),
            format!("{key}{good}"),
            format!("subject=x\n{good}"),
            good.replace(END, ""),
            good.replace(BEGIN, ""),
            good.replace("MIIB", "MIIC"),
            good.replace("MIIB", "AIIB"),
            good.replace("MIIB", "M*IB"),
            format!("{BEGIN}\n{END}\n"),
            format!("{BEGIN}\nMA==\n{END}\n"),
        ];
        for text in wrong {
            let error = only_certificates(&text).unwrap_err();
            assert_eq!(error.field.as_deref(), Some("certificate_pem"), "{text}");
            assert_eq!(error.code, ErrorCode::InvalidArgument, "{text}");
        }
        let long = good.repeat(MAX_CERTIFICATE / good.len() + 1);
        assert_eq!(only_certificates(&long).unwrap_err().code, ErrorCode::TooLarge);
    }
}
