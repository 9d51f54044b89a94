//! The parts of an archive on its way in: the files, and the difference of each snapshot. Each is handed on as an archive of its
//! own while it comes.

use super::tail::DigestCheck;
use atoll_guest_tools::archive::{END_MARK, Splitter, part_folder};
use atoll_types::{Error, Result};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::Mutex as AsyncMutex;

pub(super) type Body = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

/// The error of a body that ended before the archive did.
pub(super) fn cut_off(error: Error) -> Error {
    Error::invalid("body", format!("the archive broke off: {}", error.message))
}

/// Reads the parts one after another.
pub(super) struct Parts {
    source: Arc<AsyncMutex<Source>>,
    fault: Fault,
    /// How many parts there are beside the files, and how many were begun.
    snapshots: u32,
    begun: u32,
}

/// Why an archive's bytes ended early: set by the stream of a part, read when the tool has ended.
type Fault = Arc<Mutex<Option<Error>>>;

struct Source {
    body: Body,
    checked: DigestCheck,
    /// What was read and belongs to no part yet.
    beyond: Bytes,
    splitter: Splitter,
    /// The next part was found behind the bytes that were returned last.
    found: bool,
    ended: bool,
}

impl Source {
    /// The next bytes of the part that ends where this folder begins, or else with the archive; none at its end. An archive
    /// that is not as it was has no end.
    async fn next(&mut self, folder: Option<&str>) -> Result<Option<Bytes>> {
        loop {
            if std::mem::take(&mut self.found) {
                return Ok(None);
            }
            if self.ended {
                let missing = |folder| Error::invalid("body", format!("the archive has no part {folder}"));
                return folder.map_or(Ok(None), |folder| Err(missing(folder)));
            }
            let bytes = if self.beyond.is_empty() { self.read().await? } else { self.split(folder) };
            if !bytes.is_empty() {
                return Ok(Some(bytes));
            }
        }
    }

    /// Reads on; at the end of all it returns what waits to be a head.
    async fn read(&mut self) -> Result<Bytes> {
        match self.body.next().await {
            Some(piece) => {
                self.beyond = self.checked.push(&piece.map_err(cut_off)?);
                Ok(Bytes::new())
            }
            None => {
                self.checked.check()?;
                self.ended = true;
                Ok(self.splitter.rest().into())
            }
        }
    }

    fn split(&mut self, folder: Option<&str>) -> Bytes {
        let mut left = &self.beyond[..];
        let (before, found) = self.splitter.take(&mut left, folder);
        let at = self.beyond.len() - left.len();
        self.beyond = self.beyond.slice(at..);
        self.found = found;
        before.into()
    }
}

impl Parts {
    /// The parts of an archive, of which `beyond` was read behind the manifest.
    pub(super) fn new(body: Body, checked: DigestCheck, beyond: Bytes, snapshots: usize) -> Self {
        let (splitter, found, ended) = (Splitter::default(), false, false);
        let source = Source { body, checked, beyond, splitter, found, ended };
        let snapshots = u32::try_from(snapshots).unwrap_or(u32::MAX);
        Self { source: Arc::new(AsyncMutex::new(source)), fault: Fault::default(), snapshots, begun: 0 }
    }

    /// The next part as an archive of its own. It lacks its end where the whole is not as it was, and then
    /// [`Self::take_fault`] says why.
    pub(super) fn next(&mut self) -> impl Stream<Item = Result<Bytes>> + Send + 'static {
        let until = (self.begun < self.snapshots).then(|| part_folder(self.begun + 1));
        self.begun += 1;
        let state = Some((Arc::clone(&self.source), Arc::clone(&self.fault), until));
        stream::unfold(state, |state| async move {
            let (source, fault, until) = state?;
            let next = source.lock().await.next(until.as_deref()).await;
            match next {
                Ok(Some(bytes)) => Some((Ok(bytes), Some((source, fault, until)))),
                Ok(None) => Some((Ok(Bytes::from_static(&END_MARK)), None)),
                Err(error) => {
                    *fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
                    Some((Err(error), None))
                }
            }
        })
    }

    /// Why the part that was read last has no end.
    pub(super) fn take_fault(&self) -> Option<Error> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Reads what is left, so that all of the archive is known to be as it was.
    pub(super) async fn end(&self) -> Result<()> {
        let mut source = self.source.lock().await;
        while source.next(None).await?.is_some() {}
        Ok(())
    }
}
