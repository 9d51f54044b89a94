//! A model provider that answers at once, by OpenAI's Chat Completions. The last words of a person say what: `make` calls the tool
//! that makes a session, `tool ID` runs a command in one, and `write N` says so many words, each in a piece of its own. It ends
//! with the program.

use crate::Result;
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

/// The command that a tool runs.
pub(super) const COMMAND: &str = "true";
/// The first word of an answer of several.
pub(super) const FIRST: &str = "w0 ";
/// Connections need no more.
const STACK: usize = 256 << 10;

/// Starts it.
pub(super) fn start() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that goes away sees a closed connection.
            let serve = move || drop(serve(stream));
            let _ = thread::Builder::new().stack_size(STACK).spawn(serve);
        }
    });
    Ok(address)
}

fn serve(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(body) = request(&mut reader)? {
        stream.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        )?;
        for event in answer(&serde_json::from_slice(&body)?) {
            let text = format!("data: {event}\n\n");
            stream.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())?;
        }
        stream.write_all(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")?;
    }
    Ok(())
}

/// The body of the next request; none where the client has closed.
fn request(reader: &mut impl BufRead) -> Result<Option<Vec<u8>>> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse()?,
            Some(_) => {}
            None if line.trim().is_empty() => break,
            None => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(body))
}

fn text(content: &Value) -> String {
    match content {
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        one => one.as_str().unwrap_or_default().to_owned(),
    }
}

fn choice(delta: &Value, finish: Option<&str>) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o",
        "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }],
    })
}

fn call(name: &str, arguments: &Value) -> Vec<Value> {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let id = format!("call-{}", CALLS.fetch_add(1, Ordering::Relaxed));
    let function = json!({ "name": name, "arguments": arguments.to_string() });
    let call = json!({ "index": 0, "id": id, "type": "function", "function": function });
    vec![
        choice(&json!({ "role": "assistant", "content": null, "tool_calls": [call] }), None),
        choice(&json!({}), Some("tool_calls")),
    ]
}

fn words(all: impl Iterator<Item = String>) -> Vec<Value> {
    let pieces = all.map(|word| choice(&json!({ "content": word }), None));
    pieces.chain([choice(&json!({}), Some("stop"))]).collect()
}

/// The events of an answer.
fn answer(body: &Value) -> Vec<Value> {
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let last = messages.iter().rposition(|message| message["role"] == "user").unwrap_or(0);
    let said = messages.get(last).map(|message| text(&message["content"])).unwrap_or_default();
    let done = messages.iter().skip(last).any(|message| message["role"] == "tool");
    match said.split_once(' ').unwrap_or((&said, "")) {
        ("make", _) if !done => call("create_session", &json!({})),
        ("tool", session) if !done => {
            call("execute_terminal", &json!({ "session_id": session, "command": COMMAND }))
        }
        ("write", count) => words((0..count.parse().unwrap_or(1_u32)).map(|number| format!("w{number} "))),
        _ => words(std::iter::once("done".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_of_a_person_say_what_is_answered() {
        let said = |messages: Value| answer(&json!({ "messages": messages }));
        let person = |words: &str| json!({ "role": "user", "content": words });
        let asked = said(json!([person("make"), person("tool 7")]));
        let function = &asked[0]["choices"][0]["delta"]["tool_calls"][0]["function"];
        assert_eq!(function["name"], "execute_terminal");
        assert!(function["arguments"].as_str().unwrap().contains("\"7\""), "{function}");
        let done = said(json!([person("tool 7"), { "role": "tool", "content": "x" }]));
        assert_eq!(done[0]["choices"][0]["delta"]["content"], "done");
        assert_eq!(said(json!([person("write 3")])).len(), 4);
    }
}
