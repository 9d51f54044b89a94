//! A reader of a spool, from any offset.

use super::{Extent, SpoolDirectory, changes_name, data_name, read_change};
use crate::reserve;
use atoll_guest_proto::v1::Stream;
use atoll_types::ExecId;
use rustix::io::{Errno, Result, pread};
use std::os::fd::OwnedFd;

pub(crate) struct SpoolReader {
    data: OwnedFd,
    changes: Option<OwnedFd>,
}

impl SpoolReader {
    /// Only for a command that has output.
    pub(crate) fn open(directory: &SpoolDirectory, id: ExecId) -> Result<Self> {
        let data = directory.open(&data_name(id))?;
        reserve::check(&data, reserve::STREAM)?;
        Ok(Self { data, changes: directory.open(&changes_name(id)).ok() })
    }

    /// Opens the second file, if it was not there yet when this was opened.
    pub(crate) fn refresh(&mut self, directory: &SpoolDirectory, id: ExecId, extent: Extent) {
        if self.changes.is_none() && extent.changes > 0 {
            self.changes = directory.open(&changes_name(id)).ok();
        }
    }

    /// The stream at an offset, and where the run of that stream ends.
    pub(crate) fn run_at(&self, offset: u64, extent: Extent) -> Result<(Stream, u64)> {
        if offset < extent.freed {
            return Err(Errno::NOENT);
        }
        let file = self.changes.as_ref();
        let changes = extent.changes_until(file, offset)?;
        let end = if changes < extent.changes { read_change(file, changes)? } else { extent.kept };
        Ok((extent.stream_after(changes), end))
    }

    pub(crate) fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(length);
        pread(&self.data, rustix::buffer::spare_capacity(&mut bytes), offset)?;
        Ok(bytes)
    }
}
