//! `apply-layer`, `unpack-image` and `pack-image`: images' root filesystems, from stdin, from a file, and to stdout.

use super::{
    files::{Steady, report},
    place::absolute,
};
use crate::{
    ApplyLayer, PackImage, UnpackImage,
    errno::on_path,
    image::{LayerOptions, apply_layer, pack_layer, unpack_image},
};
use atoll_types::{Error, Result};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::{
    fs::File,
    io::{self, BufWriter},
    os::fd::OwnedFd,
};

fn open(field: &str, path: &str, flags: OFlags) -> Result<OwnedFd> {
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    openat(CWD, absolute(path), flags, Mode::empty()).map_err(|e| on_path(e, field))
}

pub(super) fn apply(request: &ApplyLayer) -> Result<()> {
    request.check()?;
    let root = open("target", &request.target, OFlags::DIRECTORY)?;
    let options = LayerOptions {
        compression: request.compression,
        limits: request.limits,
        needs_end: request.diff_id.is_none(),
        plain: request.plain,
    };
    let layer = apply_layer(&root, Steady, &options)?;
    for (field, is, said) in
        [("digest", &layer.digest, &request.digest), ("diff_id", &layer.diff_id, &request.diff_id)]
    {
        if let Some(said) = said.as_ref().filter(|said| *said != is) {
            return Err(Error::invalid(field, format!("the layer has the {field} {is}, and not {said}")));
        }
    }
    report(layer)
}

pub(super) fn unpack(request: &UnpackImage) -> Result<()> {
    request.check()?;
    let archive = File::from(open("archive", &request.archive, OFlags::empty())?);
    let root = open("target", &request.target, OFlags::DIRECTORY)?;
    let request = UnpackImage { archive: absolute(&request.archive), ..request.clone() };
    report(unpack_image(archive, &root, &request)?)
}

pub(super) fn pack(request: &PackImage) -> Result<()> {
    request.check()?;
    let folder = open("path", &request.path, OFlags::DIRECTORY)?;
    match request.measure {
        true => report(pack_layer(folder, request.gzip, io::sink())?),
        false => {
            let out = BufWriter::with_capacity(64 << 10, io::stdout());
            pack_layer(folder, request.gzip, out).map(drop)
        }
    }
}
