//! Cells over MCP: variables that stay, what is seen, what takes long, and what is called off.

use super::{super::fixture::Server, Wire, stdio::Place, web::Web};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

fn code(wire: &mut impl Wire, session: &str, code: &str) -> Value {
    let value = wire.value("execute_code", json!({ "session_id": session, "code": code }));
    assert_eq!(value["success"], true, "{value}");
    value
}

fn a_notebook(wire: &mut impl Wire) {
    let session = wire.session("python");
    code(wire, &session, "x = 41\nname = 'Grüße, 世界 🌍'");
    let value = code(wire, &session, "print(name)\nx + 1");
    assert_eq!(
        (&value["result"]["text/plain"], &value["stdout"]),
        (&json!("42"), &json!("Grüße, 世界 🌍\n"))
    );
    let raised = wire.call("execute_code", json!({ "session_id": session, "code": "1/0" }));
    assert_eq!(raised["isError"], false, "code that raises is an answer: {raised}");
    let error = &raised["structuredContent"]["error"];
    assert_eq!(error["type"], "ZeroDivisionError", "{raised}");
    assert!(error["traceback"].as_str().unwrap().contains("ZeroDivisionError"));
    let long = wire.value("execute_code", json!({ "session_id": session, "code": "print('x' * 200_000)" }));
    let stdout = long["stdout"].as_str().unwrap();
    assert!(
        stdout.len() < 60_000 && stdout.contains("truncated") && stdout.contains("200001"),
        "{}",
        stdout.len()
    );
    let shell = wire.value(
        "execute_terminal",
        json!({ "session_id": session, "command": "echo é; echo no >&2; exit 3" }),
    );
    assert_eq!(shell, json!({ "exit_code": 3, "stdout": "é\n", "stderr": "no\n" }));
    assert_eq!(wire.value("stop_session", json!({ "session_id": session })), json!({ "success": true }));
    let gone = wire.call("execute_code", json!({ "session_id": session, "code": "x" }));
    assert_eq!(gone["isError"], true, "{gone}");
}

#[test]
fn a_notebook_over_http() {
    let server = Server::start();
    a_notebook(&mut Web::open(&server));
}

#[test]
fn a_notebook_over_stdio() {
    let place = Place::new();
    let mut stdio = place.start(&[]);
    a_notebook(&mut stdio);
    let events: Vec<Value> =
        stdio.notes().into_iter().filter(|n| n["method"] == "notifications/message").collect();
    let events: Vec<&str> = events.iter().map(|n| n["params"]["data"]["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["session_created", "session_stopped"]);
}

/// A red point and a moment of silence.
const SHOWS: &str = r#"
import base64, io, struct, wave, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
png += chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + chunk(b"IEND", b"")
class Picture:
    def _repr_png_(self):
        return png
class Sound:
    def _repr_mimebundle_(self, **_):
        file = io.BytesIO()
        with wave.open(file, "wb") as out:
            out.setnchannels(1); out.setsampwidth(1); out.setframerate(8000); out.writeframes(b"\x80" * 8)
        return {"audio/wav": base64.b64encode(file.getvalue()).decode()}
display(Picture())
display(Sound())
"#;

#[test]
fn what_is_shown_comes_as_images_and_sounds() {
    let server = Server::start();
    let mut web = Web::open(&server);
    let session = web.session("python");
    let result = web.call("execute_code", json!({ "session_id": session, "code": SHOWS }));
    let of = |kind: &str| -> Vec<&Value> {
        result["content"].as_array().unwrap().iter().filter(|block| block["type"] == kind).collect()
    };
    let (images, sounds) = (of("image"), of("audio"));
    assert_eq!(images.len(), 1, "{result}");
    assert_eq!(images[0]["mimeType"], "image/png");
    let png = STANDARD.decode(images[0]["data"].as_str().unwrap()).unwrap();
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n") && png.ends_with(b"IEND\xaeB`\x82"));
    assert_eq!(sounds.len(), 1, "{result}");
    assert!(STANDARD.decode(sounds[0]["data"].as_str().unwrap()).unwrap().starts_with(b"RIFF"));
    let whole = result.to_string();
    for shown in [&images[0], &sounds[0]] {
        let data = shown["data"].as_str().unwrap();
        assert_eq!(whole.matches(data).count(), 1, "it is sent once: {whole}");
    }
    assert_eq!(result["structuredContent"]["display_outputs"].as_array().unwrap().len(), 2);
}

/// The events that were logged.
fn logged(wire: &mut impl Wire) -> Vec<String> {
    let notes = wire.notes().into_iter().filter(|note| note["method"] == "notifications/message");
    notes.map(|note| note["params"]["data"]["event"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_interpreter_that_died_and_a_session_that_was_collected_are_told_of() {
    let place = Place::new();
    let every = ["--set", "tool_sessions.idle_seconds=4", "--set", "tool_sessions.collect_seconds=1"];
    let mut stdio = place.start(&every);
    let session = stdio.session("python");
    let code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)";
    let died = stdio.call("execute_code", json!({ "session_id": session, "code": code }));
    let value = &died["structuredContent"];
    assert_eq!((&died["isError"], &value["state_lost"]), (&json!(false), &json!(true)), "{died}");
    assert_eq!(logged(&mut stdio), ["session_created", "interpreter_restarted"]);
    let session = stdio.session("python");
    crate::engine::fixture::eventually("the collection", || {
        // Looking at it would be using it.
        std::thread::sleep(std::time::Duration::from_secs(6));
        let asked = stdio.call("execute_terminal", json!({ "session_id": session, "command": "true" }));
        asked["isError"] == true
    });
    assert_eq!(logged(&mut stdio), ["session_created", "session_evicted"]);
    stdio.ask("logging/setLevel", json!({ "level": "error" }));
    stdio.session("python");
    assert_eq!(logged(&mut stdio), Vec::<String>::new(), "below the level");
}

#[test]
fn a_killed_kernel_manager_costs_the_variables_and_not_the_session() {
    let place = Place::new();
    let mut stdio = place.start(&[]);
    let session = stdio.session("python");
    let code = |text: &str| json!({ "session_id": session, "code": text });
    stdio.value("execute_code", code("kept = 1; open('file', 'w').write('there'); None"));
    let kill = "pkill -9 -f '^atoll-init tool kernels'; true";
    stdio.value("execute_terminal", json!({ "session_id": session, "command": kill }));
    let first = stdio.call("execute_code", code("'kept' in globals()"));
    let told = &first["structuredContent"];
    assert_eq!(told["state_lost"], true, "{first}");
    assert!(told["success"] == false || told["result"]["text/plain"] == "False", "{first}");
    let read = stdio.value("execute_code", code("open('file').read()"));
    assert_eq!(read["result"]["text/plain"], "'there'", "{read}");
}

/// Tells of itself for long.
const SLOW: &str = "import time\nfor n in range(600):\n    print('step', n, flush=True)\n    time.sleep(0.1)";

#[test]
fn progress_is_told_and_a_cell_is_called_off_over_stdio() {
    let place = Place::new();
    let mut stdio = place.start(&[]);
    let session = stdio.session("python");
    code(&mut stdio, &session, "kept = 'still here'");
    let arguments = json!({ "session_id": session, "code": SLOW, "timeout": 120 });
    let params =
        json!({ "name": "execute_code", "arguments": arguments, "_meta": { "progressToken": "p1" } });
    let id = stdio.start_request("tools/call", params);
    let mut last = 0.0;
    for _ in 0..3 {
        let note = loop {
            let note = stdio.next().unwrap();
            if note["method"] == "notifications/progress" {
                break note;
            }
            assert_ne!(note["id"], id, "it did not end by itself: {note}");
        };
        assert_eq!(note["params"]["progressToken"], "p1");
        let progress = note["params"]["progress"].as_f64().unwrap();
        assert!(progress > last, "{note}");
        last = progress;
        assert!(note["params"]["message"].as_str().unwrap().contains("step"), "{note}");
    }
    stdio.tell("notifications/cancelled", json!({ "requestId": id, "reason": "enough" }));
    let value = code(&mut stdio, &session, "kept");
    assert_eq!(value["result"]["text/plain"], "'still here'", "the variables stay");
    assert!(stdio.notes().iter().all(|note| note["id"] != id), "nobody waits for the answer");
}

#[test]
fn progress_is_told_and_a_cell_is_called_off_over_http() {
    let server = Server::start();
    let mut web = Web::open(&server);
    let session = web.session("python");
    code(&mut web, &session, "kept = 7");
    let arguments = json!({ "session_id": session, "code": SLOW, "timeout": 120 });
    let params = json!({ "name": "execute_code", "arguments": arguments, "_meta": { "progressToken": 5 } });
    let (id, mut events) = web.start("tools/call", params);
    let note = events.next().unwrap();
    assert_eq!(
        (&note["method"], &note["params"]["progressToken"]),
        (&json!("notifications/progress"), &json!(5))
    );
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    assert_eq!(web.post(&cancel).status, 202);
    while let Some(message) = events.next() {
        assert_eq!(message["method"], "notifications/progress", "no answer comes: {message}");
    }
    assert_eq!(code(&mut web, &session, "kept")["result"]["text/plain"], "7");
}

#[test]
fn an_answer_that_broke_off_is_fetched_later() {
    let server = Server::start();
    let mut web = Web::open(&server);
    let session = web.session("python");
    let arguments = json!({ "session_id": session, "command": "sleep 3; echo late" });
    let params =
        json!({ "name": "execute_terminal", "arguments": arguments, "_meta": { "progressToken": 1 } });
    let (id, mut events) = web.start("tools/call", params);
    assert_eq!(events.next().unwrap()["method"], "notifications/progress");
    let last = events.last.clone().unwrap();
    drop(events);
    let mut again = web.listen(&[("Last-Event-ID", &last)]);
    let answer = loop {
        let message = again.next().expect("the answer");
        if message["id"] == id {
            break message;
        }
    };
    assert_eq!(answer["result"]["structuredContent"]["stdout"], "late\n");
}
