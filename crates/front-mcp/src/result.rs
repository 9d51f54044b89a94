//! Replies as MCP results: the value as structured content, the same as text, and what can be seen or heard
//! as content of its own kind. Those bytes are sent once: in text and structure a notice has their place,
//! because a model would pay for them twice and can read neither, and clients bound how long an answer may
//! be.

use atoll_tool_sessions::{Image, ToolReply};
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::Value;

/// Sounds that are given beside the text of one answer.
const MOST_SOUNDS: usize = 4;

fn mime_of(output: &Value) -> &str {
    output["type"].as_str().unwrap_or_default()
}

/// A sound among what was shown.
fn sound(output: &Value) -> Option<ContentBlock> {
    let mime = mime_of(output);
    mime.starts_with("audio/").then(|| ContentBlock::audio(output["data"].as_str().unwrap_or_default(), mime))
}

/// The value with the bytes of those outputs left out that are given otherwise.
fn without(value: &Value, given: &[(String, String)]) -> Value {
    let mut value = value.clone();
    let outputs = value.get_mut("display_outputs").and_then(Value::as_array_mut);
    for output in outputs.into_iter().flatten() {
        let is_given = given.iter().any(|(mime, data)| mime == mime_of(output) && *data == output["data"]);
        if is_given && let Some(data) = output.get_mut("data") {
            let length = data.as_str().map_or(0, str::len);
            *data = format!("[{length} characters of base64, given as content of its own]").into();
        }
    }
    value
}

/// A reply as a result.
pub(crate) fn result(reply: ToolReply) -> CallToolResult {
    let ToolReply { value, failure, images, changed: _ } = reply;
    let outputs = value["display_outputs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let pair =
        |output: &Value| (mime_of(output).to_owned(), output["data"].as_str().unwrap_or_default().to_owned());
    let heard = outputs.iter().filter_map(|output| Some((pair(output), sound(output)?)));
    let (heard, sounds): (Vec<_>, Vec<ContentBlock>) = heard.take(MOST_SOUNDS).unzip();
    let seen = images.iter().map(|Image { mime, data }| (mime.clone(), data.clone()));
    let given: Vec<(String, String)> = seen.chain(heard).collect();
    let value = if given.is_empty() { value } else { without(&value, &given) };
    let pictures = images.into_iter().map(|Image { mime, data }| ContentBlock::image(data, mime));
    let content: Vec<ContentBlock> =
        std::iter::once(ContentBlock::text(value.to_string())).chain(pictures).chain(sounds).collect();
    let mut result =
        if failure.is_some() { CallToolResult::error(content) } else { CallToolResult::success(content) };
    result.structured_content = Some(value);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_tool_sessions::FailureKind;
    use serde_json::json;

    fn sent(reply: ToolReply) -> Value {
        serde_json::to_value(result(reply)).unwrap()
    }

    #[test]
    fn text_and_structure_say_the_same() {
        let value = json!({ "success": false, "error": "NotFound: é\n", "hint": "…" });
        let sent = sent(ToolReply {
            value: value.clone(),
            failure: Some(FailureKind::InvalidInput),
            images: Vec::new(),
            changed: None,
        });
        assert_eq!((&sent["isError"], &sent["structuredContent"]), (&json!(true), &value));
        let text: Value = serde_json::from_str(sent["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, value);
        assert_eq!(sent["content"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn what_is_seen_and_heard_comes_as_such_and_once() {
        let shown = json!([
            { "type": "image/png", "data": "cG5n" },
            { "type": "text/html", "data": "<b>" },
            { "type": "audio/wav", "data": "d2F2" },
            { "type": "image/png", "data": "bm90IGdpdmVu" },
        ]);
        let value = json!({ "success": true, "display_outputs": shown });
        let images = vec![Image { mime: "image/png".into(), data: "cG5n".into() }];
        let sent = sent(ToolReply { value, failure: None, images, changed: None });
        let kinds: Vec<&str> =
            sent["content"].as_array().unwrap().iter().map(|c| c["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["text", "image", "audio"]);
        assert_eq!(sent["content"][1], json!({ "type": "image", "data": "cG5n", "mimeType": "image/png" }));
        assert_eq!(sent["content"][2], json!({ "type": "audio", "data": "d2F2", "mimeType": "audio/wav" }));
        let text: Value = serde_json::from_str(sent["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(sent["structuredContent"], text, "each of them once");
        let data: Vec<&str> =
            text["display_outputs"].as_array().unwrap().iter().map(|o| o["data"].as_str().unwrap()).collect();
        assert!(data[0].starts_with("[4 characters") && data[2].starts_with("[4 characters"), "{data:?}");
        assert_eq!((data[1], data[3]), ("<b>", "bm90IGdpdmVu"));
    }
}
