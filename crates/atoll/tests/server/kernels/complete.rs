//! How code could go on, and whether it is whole, as the interpreters themselves say.

use super::{LANGUAGES, Server, cell, execute, start};
use serde_json::{Value, json};

fn complete(server: &Server, kernel: &str, code: &str) -> Value {
    cell(server, &format!("{kernel}/complete"), &json!({ "code": code }))
}

#[test]
fn every_language_completes_and_knows_what_is_whole() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let cases = [
        ("python", "abcdef = 1", "x = abcd", "abcdef", 4, ["1 + 1", "def f():", "1 +* 2"]),
        ("node", "let abcdef = 1", "x = abcd", "abcdef", 4, ["1 + 1", "function f() {", "1 +* 2"]),
        ("r", "abcdef <- 1", "x <- abcd", "abcdef", 5, ["1 + 1", "f <- function() {", "1 +* 2"]),
        ("bash", "abcdef=1", "echo $abcd", "$abcdef", 5, ["echo 1", "for i in 1; do", "fi"]),
    ];
    assert_eq!(cases.map(|case| case.0), LANGUAGES.map(|language| language.0));
    for (language, set, typed, whole, from, [complete_code, incomplete, invalid]) in cases {
        let kernel = start(&server, &sandbox, &json!({ "language": language }));
        execute(&server, &kernel, set);
        let found = complete(&server, &kernel, typed);
        assert_eq!(found["matches"], json!([whole]), "{language}: {found}");
        let span = (found["cursor_start"].as_u64(), found["cursor_end"].as_u64());
        assert_eq!(span, (Some(from), Some(typed.len() as u64)), "{language}: {found}");
        for (code, status) in [(complete_code, "complete"), (incomplete, "incomplete"), (invalid, "invalid")]
        {
            assert_eq!(complete(&server, &kernel, code)["status"], status, "{language}: {code}");
        }
        // It counts as no cell, and cells go on.
        let after = execute(&server, &kernel, set);
        assert_eq!((&after["success"], &after["execution_count"]), (&json!(true), &json!(2)), "{after}");
    }
}

#[test]
fn a_kernel_that_works_completes_nothing() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let kernel = start(&server, &sandbox, &json!({}));
    let body = json!({ "code": "import time; print(1, flush=True); time.sleep(60)", "stream": true });
    let mut cell = super::stream(&server, &format!("{kernel}/execute"), &body, &[]);
    while super::event(&mut cell).unwrap()["type"] != "output" {}
    let refused = server.ask("POST", &format!("{kernel}/complete"), r#"{"code":"pri"}"#);
    assert_eq!(refused.status, 409, "{refused:?}");
    // A cursor behind the end counts as at the end, so it is refused for the same reason.
    let behind = server.ask("POST", &format!("{kernel}/complete"), r#"{"code":"pri","cursor":4}"#);
    assert_eq!(behind.status, 409, "{behind:?}");
    server.ask("POST", &format!("{kernel}/interrupt"), "");
}
