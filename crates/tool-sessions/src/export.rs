//! Exports of sessions. An export is no copy: the path is stored, and the file is read when a client
//! downloads it. It ends with its session.

use crate::{
    Sessions, ToolCaller, ToolReply,
    failure::ToolResult,
    paths::{covers, name_of, normalised},
    reply::kind,
    tools::{input::ExportFiles, output::FileExported, output::FilesExported},
};
use atoll_core::{Archive, Download, ExtensionOperation};
use atoll_guest_tools::Pack;
use atoll_store::{ToolExport, ToolSession, ToolStatus};
use atoll_types::{Error, ErrorCode, Operation, Result, files::EntryKind, time::now_ms};
use bytes::Bytes;

/// Most exports of one session.
const MOST_EXPORTS: usize = 1000;
/// The hint where the server has no HTTP listener.
const NO_ADDRESS: &str = "There is no download_url: this server listens on no address. A client reads the files as \
                          MCP resources (resources/list, resources/read) while the session is alive.";

/// A file or folder that was exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// The session that has it.
    pub session_id: String,
    /// Its path there, absolute and normalised.
    pub path: String,
    /// Whether it is a folder, and stands for all that is in it.
    pub is_folder: bool,
    /// Its bytes when it was exported, of a file.
    pub size: Option<u64>,
    /// When it was, in milliseconds since 1970.
    pub exported_at: i64,
}

/// An export that is being downloaded: a file as it is, a folder as a tar archive.
pub struct ExportBody {
    /// Its last name; of a folder with `.tar`.
    pub name: String,
    /// Whether it is an archive.
    pub is_folder: bool,
    /// How many bytes are to come, where that is known.
    pub size: Option<u64>,
    from: From,
}

enum From {
    File(Box<Download>),
    Folder(Box<Archive>),
}

impl ExportBody {
    /// The next bytes; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        match &mut self.from {
            From::File(file) => file.next().await,
            From::Folder(archive) => archive.next().await,
        }
    }
}

impl Sessions {
    pub(crate) async fn export(&self, who: &ToolCaller, input: ExportFiles) -> ToolResult {
        let (session, _using) = self.use_session(who, &input.session_id).await?;
        let mut files = Vec::new();
        for file in &input.files {
            files.push(match self.export_one(who, &session, &file.source).await {
                Ok(export) => self.exported(who, export),
                Err(error) => {
                    // A dead session fails the others as well.
                    let error = match self.failed_in(&session, error).await {
                        crate::Failure::Other { error, .. } => error,
                        died => return Err(died),
                    };
                    FileExported {
                        session_id: session.id.to_string(),
                        path: normalised(&file.source).unwrap_or_else(|_| file.source.clone()),
                        success: false,
                        size: None,
                        error: Some(format!("{}: {}", kind(error.code), error.message)),
                        download_url: None,
                    }
                }
            });
        }
        let failed = files.iter().filter(|file| !file.success).count();
        let error = (failed > 0).then(|| format!("{failed} of {} files could not be exported", files.len()));
        let without = failed < files.len() && self.address_for(who).is_none();
        let hint = without.then(|| NO_ADDRESS.to_owned());
        Ok(ToolReply::of(&FilesExported { success: failed == 0, files, error, hint }))
    }

    async fn export_one(&self, who: &ToolCaller, session: &ToolSession, source: &str) -> Result<ToolExport> {
        let path = normalised(source)?;
        let operation = ExtensionOperation::to(Operation::SessionExport, session.sandbox)
            .with(&path)
            .and("session", session.id);
        let exporting = async {
            let entry = self.core.files.stat(&who.caller, session.sandbox, &path, true).await?;
            let folder = match entry.kind {
                EntryKind::File => false,
                EntryKind::Directory => true,
                _ => {
                    let message = format!("{path} is neither a file nor a folder");
                    return Err(Error::new(ErrorCode::SpecialFile, message));
                }
            };
            let known = self.store.tool_exports(session.id).await?;
            if known.len() >= MOST_EXPORTS && !known.iter().any(|export| export.path == path) {
                let message =
                    format!("a session may export {MOST_EXPORTS} files and folders; export a folder");
                return Err(Error::new(ErrorCode::LimitExceeded, message));
            }
            let size = (!folder).then_some(entry.size);
            let export =
                ToolExport { session: session.id, path: path.clone(), folder, size, exported_at: now_ms() };
            self.store.put_tool_export(export.clone()).await?;
            Ok(export)
        };
        self.core.operations.carry_out(&who.caller, operation, exporting).await
    }

    /// The base URL of downloads: the operator's, or else the one that the caller connected to.
    fn address_for<'a>(&'a self, who: &'a ToolCaller) -> Option<&'a String> {
        self.settings.server_url.as_ref().or(who.address.as_ref())
    }

    fn exported(&self, who: &ToolCaller, export: ToolExport) -> FileExported {
        let ToolExport { session, path, folder: _, size, exported_at: _ } = export;
        let download_url = self.address_for(who).map(|url| {
            format!(
                "{}/threads/{}/files/download?session_id={session}&path={}",
                url.trim_end_matches('/'),
                encoded(who.thread.as_str()),
                encoded(&path)
            )
        });
        FileExported { session_id: session.to_string(), path, success: true, size, error: None, download_url }
    }

    /// The exports of the thread's sessions.
    pub async fn exports(&self, who: &ToolCaller) -> Result<Vec<Export>> {
        let mut all = Vec::new();
        for session in self.store.tool_sessions(Some((&who.caller.owner, who.thread.as_str()))).await? {
            let exports = self.store.tool_exports(session.id).await?;
            all.extend(exports.into_iter().map(|export| Export {
                session_id: session.id.to_string(),
                path: export.path,
                is_folder: export.folder,
                size: export.size,
                exported_at: export.exported_at,
            }));
        }
        Ok(all)
    }

    /// Reads an exported file, or one in an exported folder: `permission_denied` where it is not exported,
    /// `invalid_argument` or `path_outside_root` for an invalid path.
    pub async fn read_export(&self, who: &ToolCaller, session: &str, path: &str) -> Result<ExportBody> {
        let (session, path) = self.find_export(who, session, path).await?;
        let _using = self.core.sandboxes.keep_active(session.sandbox);
        self.touch(&session).await;
        let entry = self.core.files.stat(&who.caller, session.sandbox, &path, true).await?;
        let name = name_of(&path).to_owned();
        if entry.kind == EntryKind::Directory {
            let pack = Pack { path, prefix: Some(name.clone()) };
            let archive = self.core.files.pack(&who.caller, session.sandbox, &pack).await?;
            let (name, from) = (format!("{name}.tar"), From::Folder(Box::new(archive)));
            return Ok(ExportBody { name, is_folder: true, size: None, from });
        }
        let download = self.core.files.download(&who.caller, session.sandbox, &path, 0, 0).await?;
        let size = download.left();
        Ok(ExportBody { name, is_folder: false, size, from: From::File(Box::new(download)) })
    }

    /// The session and the path of an export.
    pub(crate) async fn find_export(
        &self,
        who: &ToolCaller,
        session: &str,
        path: &str,
    ) -> Result<(ToolSession, String)> {
        let path = normalised(path)?;
        let denied = || {
            let message = format!("{path} is not exported by the session {session:?} of this conversation");
            Error::new(ErrorCode::PermissionDenied, message)
        };
        let found = match self.find(who, session).await {
            Err(error) if error.code == ErrorCode::NotFound => return Err(denied()),
            other => other?,
        };
        let exports = self.store.tool_exports(found.id).await?;
        let covered = exports.iter().any(|export| match export.folder {
            true => covers(&export.path, &path),
            false => export.path == path,
        });
        match covered && found.status != ToolStatus::Starting {
            true => Ok((found, path)),
            false => Err(denied()),
        }
    }
}

/// A text as a part of a URL.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_holds_any_path() {
        assert_eq!(encoded("/workspace/é x&y=1#?"), "%2Fworkspace%2F%C3%A9%20x%26y%3D1%23%3F");
    }
}
