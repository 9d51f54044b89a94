//! Blocks of a message's content.

use atoll_types::{
    Error, Result,
    conversation::{Block, ToolCall},
};
use serde_json::{Value, json};

fn text<'a>(value: &'a Value, names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| value.get(name)?.as_str())
}

/// The type and the data of a `data:` URL in base64.
fn data_url(url: &str) -> Option<(String, String)> {
    let (mime, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
    Some((mime.to_owned(), data.to_owned()))
}

fn at_url(url: &str) -> Block {
    match data_url(url) {
        Some((mime, data)) if mime.starts_with("image/") => Block::Image { mime, data },
        _ => Block::ImageUrl { url: url.to_owned() },
    }
}

/// A picture: OpenAI's `image_url`, Anthropic's `source`, or LangChain's own fields.
fn image(value: &Value) -> Option<Block> {
    if let Some(url) = value.get("image_url") {
        return Some(at_url(url.as_str().or_else(|| text(url, &["url"]))?));
    }
    let from = value.get("source").filter(|source| source.is_object()).unwrap_or(value);
    if let Some(data) = text(from, &["data", "base64"]) {
        let mime = text(from, &["mime_type", "mimeType", "media_type"])?;
        return mime.starts_with("image/").then(|| Block::Image { mime: mime.into(), data: data.into() });
    }
    text(from, &["url"]).map(at_url)
}

fn reasoning(value: &Value) -> Option<Block> {
    let signature =
        text(value, &["signature"]).or_else(|| text(value.get("extras")?, &["signature"])).map(str::to_owned);
    let text = text(value, &["reasoning", "thinking", "text"])?.to_owned();
    Some(Block::Reasoning { text, signature })
}

/// A call of a tool, in LangChain's form or in OpenAI's.
pub(super) fn call(value: &Value) -> Option<ToolCall> {
    let function = value.get("function").unwrap_or(value);
    let name = text(function, &["name"])?.to_owned();
    let id = text(value, &["id"]).unwrap_or_default().to_owned();
    let given = ["args", "arguments", "input"].iter().find_map(|name| function.get(name));
    let (arguments, broken) = match given {
        Some(Value::String(text)) => match serde_json::from_str(text) {
            Ok(arguments) => (arguments, None),
            Err(_) => (Value::Null, Some(text.clone())),
        },
        Some(arguments) => (arguments.clone(), None),
        None => (json!({}), None),
    };
    Some(ToolCall { id, name, arguments, broken, signature: None })
}

/// A block of content. One of a type that the agent does not read is kept as it came.
pub(super) fn read_block(value: &Value, place: &str) -> Result<Block> {
    if let Some(text) = value.as_str() {
        return Ok(Block::Text { text: text.to_owned() });
    }
    let Some(kind) = text(value, &["type"]) else {
        return Err(Error::invalid(place, "a block of content is a text, or an object with a type"));
    };
    let read = match kind {
        "text" | "input_text" | "output_text" => {
            text(value, &["text"]).map(|text| Block::Text { text: text.to_owned() })
        }
        "image_url" | "image" | "input_image" => image(value),
        "reasoning" | "thinking" => reasoning(value),
        "tool_call" | "tool_use" | "function_call" => call(value).map(Block::ToolCall),
        _ => None,
    };
    Ok(read.unwrap_or_else(|| Block::Other { value: value.clone() }))
}

/// A block as LangChain writes it; none of what a message has in fields of their own.
pub(super) fn write_block(block: &Block) -> Option<Value> {
    Some(match block {
        Block::Text { text } => json!({ "type": "text", "text": text }),
        Block::Reasoning { text, signature: None } => json!({ "type": "reasoning", "reasoning": text }),
        Block::Reasoning { text, signature: Some(signature) } => {
            json!({ "type": "reasoning", "reasoning": text, "extras": { "signature": signature } })
        }
        Block::Image { mime, data } => {
            json!({ "type": "image_url", "image_url": { "url": format!("data:{mime};base64,{data}") } })
        }
        Block::ImageUrl { url } => json!({ "type": "image_url", "image_url": { "url": url } }),
        Block::Other { value } => value.clone(),
        Block::ToolCall(_) | Block::ToolResult(_) => return None,
    })
}
