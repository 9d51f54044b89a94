//! Importing files into a session: inline content from the model, exports of other sessions of the same
//! thread, uploads, and files of this machine that the operator allows. Each succeeds or fails by itself.

mod host;

use crate::{
    Sessions, ToolCaller, ToolReply,
    failure::ToolResult,
    paths::{covers, destination, name_of},
    reply::kind,
    tools::{
        input::Encoding, input::ImportFile, input::ImportFiles, input::LARGEST_INLINE, output::FileImported,
        output::FilesImported,
    },
};
use atoll_core::{Archive, Download};
use atoll_guest_tools::{Pack, Unpack};
use atoll_store::ToolSession;
use atoll_types::{
    Error, ErrorCode, Result,
    files::{EntryKind, NOT_WRITABLE, OVERWRITE, WriteOptions},
};
use base64::Engine;
use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt, stream};

/// What a model can do about a file that it may not write.
const REMEDY: &str = "make it writable in the session first (chmod u+w), or import it under another name";

/// An error of a write, with a remedy that the tools have.
fn remedied(mut error: Error) -> Error {
    if error.code == ErrorCode::PermissionDenied && error.field.as_deref() == Some(OVERWRITE) {
        error.message = format!("{NOT_WRITABLE}; {REMEDY}");
    }
    error
}

/// An import's destination, before it is known whether it succeeds.
struct Plan {
    source: String,
    destination: Result<String>,
}

impl Plan {
    fn of(file: &ImportFile) -> Self {
        match file {
            ImportFile::Host { source, destination: wanted } => {
                Self { source: source.clone(), destination: destination(wanted.as_deref(), name_of(source)) }
            }
            ImportFile::Session { session_id, path, destination: wanted } => Self {
                source: format!("{session_id}:{path}"),
                destination: destination(wanted.as_deref(), name_of(path)),
            },
            ImportFile::Inline { file_name, .. } => {
                Self { source: file_name.clone(), destination: destination(Some(file_name), "") }
            }
            ImportFile::Unclear => {
                Self { source: String::new(), destination: Err(Error::invalid("files", ImportFile::FORMS)) }
            }
        }
    }
}

impl Sessions {
    pub(crate) async fn import(&self, who: &ToolCaller, input: ImportFiles) -> ToolResult {
        let (session, _using) = self.use_session(who, &input.session_id).await?;
        let mut files = Vec::new();
        for file in input.files {
            let Plan { source, destination } = Plan::of(&file);
            let shown = destination.clone().unwrap_or_else(|_| "/workspace".to_owned());
            let done = match destination {
                Ok(at) => self.import_one(who, &session, file, &at).await,
                Err(error) => Err(error),
            };
            let done = match done {
                Ok(size) => Ok(size),
                // A dead session fails the others as well.
                Err(error) => match self.failed_in(&session, error).await {
                    crate::Failure::Other { error, .. } => Err(error),
                    died => return Err(died),
                },
            };
            files.push(FileImported {
                source,
                destination: shown,
                success: done.is_ok(),
                size: done.as_ref().ok().copied(),
                error: done.err().map(|error| format!("{}: {}", kind(error.code), error.message)),
            });
        }
        let failed = files.iter().filter(|file| !file.success).count();
        let error = (failed > 0).then(|| format!("{failed} of {} files could not be imported", files.len()));
        Ok(ToolReply::of(&FilesImported { success: failed == 0, files, error }))
    }

    async fn import_one(
        &self,
        who: &ToolCaller,
        to: &ToolSession,
        file: ImportFile,
        at: &str,
    ) -> Result<u64> {
        match file {
            ImportFile::Host { source, .. } => self.import_host(who, to, &source, at).boxed().await,
            ImportFile::Session { session_id, path, .. } => {
                self.import_session(who, to, &session_id, &path, at).boxed().await
            }
            ImportFile::Inline { file_content, encoding, .. } => {
                let bytes = decoded(file_content, encoding)?;
                self.write(who, to, at, stream::iter([Ok(bytes)])).await
            }
            ImportFile::Unclear => Err(Error::invalid("files", ImportFile::FORMS)),
        }
    }

    /// From another session, or from another path of the same.
    async fn import_session(
        &self,
        who: &ToolCaller,
        to: &ToolSession,
        session: &str,
        path: &str,
        at: &str,
    ) -> Result<u64> {
        let (from, path) = self.find_export(who, session, path).await?;
        if from.id == to.id && (covers(&path, at) || covers(at, &path)) {
            return Err(Error::new(ErrorCode::Conflict, format!("{path} cannot be imported into itself")));
        }
        let _using = self.core.sandboxes.keep_active(from.sandbox);
        self.touch(&from).await;
        let entry = self.core.files.stat(&who.caller, from.sandbox, &path, true).await?;
        if entry.kind == EntryKind::Directory {
            let pack = Pack { path, prefix: None };
            let archive = self.core.files.pack(&who.caller, from.sandbox, &pack).boxed().await?;
            return self.unpack(who, to, at, IncomingFile::Folder(Box::new(archive)).pieces()).await;
        }
        let download = self.core.files.download(&who.caller, from.sandbox, &path, 0, 0).boxed().await?;
        self.write(who, to, at, IncomingFile::File(Box::new(download)).pieces()).await
    }

    /// One file, whole or not at all. Returns its bytes.
    async fn write(
        &self,
        who: &ToolCaller,
        to: &ToolSession,
        at: &str,
        body: impl Stream<Item = Result<Bytes>> + Send + 'static,
    ) -> Result<u64> {
        let options = WriteOptions { create_parents: true, ..WriteOptions::default() };
        // On the heap: the nested futures would fill a thread's stack.
        let writing = self.core.files.upload(&who.caller, to.sandbox, at, options, body.boxed());
        let entry = writing.boxed().await.map_err(remedied)?;
        Ok(entry.size)
    }

    /// A folder from an archive. Returns the bytes of its files.
    async fn unpack(
        &self,
        who: &ToolCaller,
        to: &ToolSession,
        at: &str,
        body: impl Stream<Item = Result<Bytes>> + Send + 'static,
    ) -> Result<u64> {
        let unpack = Unpack { path: at.to_owned() };
        let unpacking = self.core.files.unpack(&who.caller, to.sandbox, &unpack, body.boxed());
        Ok(unpacking.boxed().await?.bytes)
    }
}

/// An incoming file, in pieces.
enum IncomingFile {
    File(Box<Download>),
    Folder(Box<Archive>),
}

impl IncomingFile {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        match self {
            Self::File(file) => file.next().await,
            Self::Folder(folder) => folder.next().await,
        }
    }

    /// All of it, to its end or to its first error.
    fn pieces(self) -> impl Stream<Item = Result<Bytes>> + Send + 'static {
        stream::unfold(Some(self), |coming| async move {
            let mut coming = coming?;
            match coming.next().await {
                Ok(piece) => piece.map(|piece| (Ok(piece), Some(coming))),
                Err(error) => Some((Err(error), None)),
            }
        })
    }
}

fn decoded(content: String, encoding: Encoding) -> Result<Bytes> {
    let bytes = match encoding {
        Encoding::Text => Bytes::from(content),
        Encoding::Base64 => {
            let wrong = |_| Error::new(ErrorCode::InvalidArgument, "file_content is not base64");
            let plain: Vec<u8> =
                content.into_bytes().into_iter().filter(|b| !b.is_ascii_whitespace()).collect();
            base64::engine::general_purpose::STANDARD.decode(plain).map_err(wrong)?.into()
        }
    };
    match bytes.len() > LARGEST_INLINE {
        true => Err(Error::new(ErrorCode::TooLarge, "a file that is given as text may have 8 MiB")),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_as_they_were_written() {
        let of = |text: &str, encoding| decoded(text.to_owned(), encoding).map_err(|e| e.code);
        assert_eq!(of("hé", Encoding::Text).unwrap(), "hé".as_bytes());
        assert_eq!(of("AP+A\nAQ==", Encoding::Base64).unwrap(), &[0, 255, 128, 1][..]);
        assert_eq!(of("", Encoding::Base64).unwrap(), &[][..]);
        assert_eq!(of("no base64!", Encoding::Base64), Err(ErrorCode::InvalidArgument));
        assert_eq!(of(&"x".repeat(LARGEST_INLINE + 1), Encoding::Text), Err(ErrorCode::TooLarge));
    }
}
