//! Exported files as MCP resources: `atoll://session/<session><absolute path>`. A folder is a tar archive; a
//! file in an exported folder can be read by its own address, which the template describes.

use atoll_tool_sessions::{Export, Sessions, ToolCaller};
use atoll_types::{Error, ErrorCode, text::unhex};
use base64::{Engine, engine::general_purpose::STANDARD};
use rmcp::{
    ErrorData,
    model::{ListResourcesResult, ReadResourceResult, Resource, ResourceContents, ResourceTemplate},
};
use serde_json::json;

const SCHEME: &str = "atoll://session/";
/// Resources on one page of a list.
const PAGE: usize = 100;
/// The largest file that is read into a message.
const LARGEST: u64 = 8 << 20;

/// MIME types by the last part of a name; those of other files are found by their bytes.
const KINDS: &[(&str, &str)] = &[
    ("aac", "audio/aac"),
    ("csv", "text/csv"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("ipynb", "application/x-ipynb+json"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("md", "text/markdown"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("ogg", "audio/ogg"),
    ("parquet", "application/vnd.apache.parquet"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("py", "text/x-python"),
    ("r", "text/x-r"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tsv", "text/tab-separated-values"),
    ("txt", "text/plain"),
    ("wav", "audio/wav"),
    ("webp", "image/webp"),
    ("xml", "application/xml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
];

fn kind_of(name: &str) -> Option<&'static str> {
    let (_, end) = name.rsplit_once('.')?;
    KINDS.iter().find(|(known, _)| end.eq_ignore_ascii_case(known)).map(|(_, kind)| *kind)
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte)
}

/// The address of what a session exported.
pub(crate) fn address(session: &str, path: &str) -> String {
    let mut uri = format!("{SCHEME}{session}");
    for byte in path.bytes() {
        if is_plain(byte) {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri
}

/// Session and path of an address.
fn parse(uri: &str) -> Option<(String, String)> {
    let rest = uri.strip_prefix(SCHEME)?;
    let (session, path) = rest.split_at(rest.find('/')?);
    let mut bytes = Vec::with_capacity(path.len());
    let mut from = path.bytes();
    while let Some(byte) = from.next() {
        bytes.push(match byte {
            b'%' => {
                let pair = [from.next()?, from.next()?];
                unhex(std::str::from_utf8(&pair).ok()?)?.pop()?
            }
            other => other,
        });
    }
    Some((session.to_owned(), String::from_utf8(bytes).ok()?))
}

fn resource(export: &Export) -> Resource {
    let Export { session_id, path, is_folder, size, exported_at: _ } = export;
    let name = path.rsplit('/').find(|part| !part.is_empty()).unwrap_or("workspace");
    let name = if *is_folder { format!("{name}.tar") } else { name.to_owned() };
    let kind = if *is_folder { Some("application/x-tar") } else { kind_of(&name) };
    let about = match is_folder {
        true => format!("{path} of session {session_id}, a folder, as a tar archive"),
        false => format!("{path} of session {session_id}"),
    };
    let mut resource = Resource::new(address(session_id, path), name).with_description(about);
    if let Some(kind) = kind {
        resource = resource.with_mime_type(kind);
    }
    if let Some(size) = size.filter(|_| !is_folder) {
        resource = resource.with_size(size);
    }
    resource
}

/// A page of what the thread has exported.
pub(crate) async fn list(
    sessions: &Sessions,
    who: &ToolCaller,
    cursor: Option<&str>,
) -> Result<ListResourcesResult, ErrorData> {
    let start = match cursor {
        None => 0,
        Some(text) => {
            text.parse::<usize>().map_err(|_| ErrorData::invalid_params("there is no such cursor", None))?
        }
    };
    let exports = sessions.exports(who).await.map_err(|e| failed(&e, ""))?;
    let page: Vec<Resource> = exports.iter().skip(start).take(PAGE).map(resource).collect();
    let next = start.saturating_add(PAGE);
    let mut result = ListResourcesResult::with_all_items(page);
    result.next_cursor = (next < exports.len()).then(|| next.to_string());
    Ok(result)
}

/// How to address what lies in an exported folder.
pub(crate) fn templates() -> Vec<ResourceTemplate> {
    let about = "A file that a session exported with export_files, or one in a folder that it exported";
    vec![
        ResourceTemplate::new(format!("{SCHEME}{{session_id}}{{+path}}"), "exported file")
            .with_description(about),
    ]
}

fn failed(error: &Error, uri: &str) -> ErrorData {
    let data = Some(json!({ "uri": uri, "code": error.code }));
    match error.code {
        ErrorCode::NotFound
        | ErrorCode::PermissionDenied
        | ErrorCode::ContainerDied
        | ErrorCode::NotRunning => {
            let message =
                format!("{}; only what a live session exported with export_files can be read", error.message);
            ErrorData::resource_not_found(message, data)
        }
        ErrorCode::Internal | ErrorCode::Unavailable => {
            ErrorData::internal_error(error.message.clone(), data)
        }
        _ => ErrorData::invalid_params(error.message.clone(), data),
    }
}

/// What is in a resource: text where it is text, base64 otherwise.
fn contents(uri: &str, name: &str, is_folder: bool, bytes: Vec<u8>) -> ResourceContents {
    let kind = if is_folder { Some("application/x-tar") } else { kind_of(name) };
    let textual = |kind: &str| {
        kind.starts_with("text/") || kind.ends_with("json") || kind.ends_with("xml") || kind.ends_with("yaml")
    };
    let may_be_text = !bytes.contains(&0) && kind.is_none_or(textual);
    match std::str::from_utf8(&bytes) {
        Ok(text) if may_be_text => {
            ResourceContents::text(text, uri).with_mime_type(kind.unwrap_or("text/plain"))
        }
        _ => {
            let blob = STANDARD.encode(&bytes);
            ResourceContents::blob(blob, uri).with_mime_type(kind.unwrap_or("application/octet-stream"))
        }
    }
}

/// Reads a resource.
pub(crate) async fn read(
    sessions: &Sessions,
    who: &ToolCaller,
    uri: &str,
) -> Result<ReadResourceResult, ErrorData> {
    let shown: String = uri.chars().take(500).collect();
    let Some((session, path)) = parse(uri) else {
        let message =
            format!("{shown:?} is no resource of this server; resources/list tells which there are");
        return Err(ErrorData::resource_not_found(message, Some(json!({ "uri": shown }))));
    };
    let too_large = || {
        let message = "this is larger than 8 MiB; download it by the download_url of export_files, or import it into another session";
        failed(&Error::new(ErrorCode::TooLarge, message), &shown)
    };
    let mut body = sessions.read_export(who, &session, &path).await.map_err(|e| failed(&e, &shown))?;
    if body.size.is_some_and(|size| size > LARGEST) {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    while let Some(part) = body.next().await.map_err(|e| failed(&e, &shown))? {
        if (bytes.len() + part.len()) as u64 > LARGEST {
            return Err(too_large());
        }
        bytes.extend_from_slice(&part);
    }
    Ok(ReadResourceResult::new(vec![contents(uri, &body.name, body.is_folder, bytes)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_a_session_and_a_path() {
        for path in ["/workspace/a.csv", "/workspace/mit Leerzeichen/é%?#.txt", "/workspace"] {
            let uri = address("1a2b3c4d", path);
            assert!(uri.bytes().all(|b| b.is_ascii_graphic()), "{uri}");
            assert_eq!(parse(&uri), Some(("1a2b3c4d".into(), path.into())), "{uri}");
        }
        for bad in [
            "",
            "file:///etc/passwd",
            "atoll://session/1a2b3c4d",
            "atoll://session/x/%",
            "atoll://session/x/%zz",
            "atoll://session/x/%ff",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn text_is_text_and_the_rest_is_base64() {
        let kind = |name: &str, bytes: &[u8]| match contents("u", name, false, bytes.to_vec()) {
            ResourceContents::TextResourceContents { text, mime_type, .. } => (text, mime_type.unwrap()),
            ResourceContents::BlobResourceContents { blob, mime_type, .. } => {
                (format!("base64 {blob}"), mime_type.unwrap())
            }
            _ => unreachable!(),
        };
        assert_eq!(kind("a.csv", b"a,b"), ("a,b".into(), "text/csv".into()));
        assert_eq!(kind("NOTES", "é".as_bytes()), ("é".into(), "text/plain".into()));
        assert_eq!(kind("a.PNG", b"abc"), ("base64 YWJj".into(), "image/png".into()));
        assert_eq!(kind("a.csv", &[0xff]), ("base64 /w==".into(), "text/csv".into()));
        assert_eq!(kind("x", &[0]), ("base64 AA==".into(), "application/octet-stream".into()));
    }

    #[test]
    fn the_kinds_are_in_order() {
        assert!(KINDS.windows(2).all(|two| two[0].0 < two[1].0));
    }
}
