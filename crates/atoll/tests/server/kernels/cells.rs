//! Cells in every language: whole and streamed, many, at once, and stopped.

use super::{LANGUAGES, cell, event, events, execute, kernels, python, run, start, stream, value};
use super::{Server, http};
use crate::engine::fixture::eventually;
use serde_json::{Value, json};
use std::thread;

fn printed(ran: &Value) -> String {
    let value = ran["result"]["text/plain"].as_str().unwrap_or_default();
    format!("{}{value}", ran["stdout"].as_str().unwrap())
}

#[test]
fn every_language_keeps_its_variables_between_cells() {
    let server = Server::start();
    let sandbox = server.create("{}");
    for (language, set, get, _) in LANGUAGES {
        let first = run(&server, &sandbox, language, set);
        assert_eq!((&first["success"], &first["error"]), (&true.into(), &Value::Null), "{first}");
        let second = run(&server, &sandbox, language, get);
        assert!(printed(&second).contains("42"), "{language}: {second}");
        assert_eq!(second["kernel_id"], first["kernel_id"]);
        assert_eq!(second["execution_count"], 2, "{second}");
        let failed = run(
            &server,
            &sandbox,
            language,
            match language {
                "bash" => "no_such_command_at_all",
                "r" => "stop('on purpose')",
                "node" => "throw new Error('on purpose')",
                _ => "1/0",
            },
        );
        assert_eq!(failed["success"], false, "{failed}");
        assert!(!failed["error"]["type"].as_str().unwrap().is_empty(), "{failed}");
        assert!(printed(&run(&server, &sandbox, language, get)).contains("42"), "{language}");
    }
    let all = kernels(&server, &sandbox);
    let names: Vec<_> = all.iter().map(|k| k["language"].as_str().unwrap()).collect();
    assert_eq!(names, ["python", "node", "r", "bash"]);
    assert!(all.iter().all(|k| k["default"] == true && k["status"] == "idle"), "{all:?}");
}

#[test]
fn a_thousand_cells_keep_their_variables() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let kernel = start(&server, &sandbox, &json!({}));
    execute(&server, &kernel, "seen = []");
    for n in 0..1000 {
        let ran = execute(&server, &kernel, &format!("seen.append({n}); len(seen)"));
        assert_eq!(value(&ran), (n + 1).to_string());
    }
    assert_eq!(value(&execute(&server, &kernel, "seen == list(range(1000))")), "True");
}

#[test]
fn output_comes_as_it_is_made_in_every_language() {
    let server = Server::start();
    let sandbox = server.create("{}");
    for (language, code) in [
        (
            "python",
            "import os, time\nprint('one', flush=True)\nwhile not os.path.exists('go-python'): time.sleep(0.02)\nprint('two')",
        ),
        (
            "node",
            "console.log('one'); while (!require('fs').existsSync('go-node')) await new Promise(r => setTimeout(r, 20)); console.log('two')",
        ),
        ("r", "cat('one\\n'); flush(stdout()); while (!file.exists('go-r')) Sys.sleep(0.02); cat('two\\n')"),
        ("bash", "echo one; while ! test -e go-bash; do sleep 0.02; done; echo two"),
    ] {
        let body = json!({ "language": language, "code": code, "stream": true, "timeout": 60 });
        let mut coming = stream(&server, &format!("{sandbox}/run"), &body, &[]);
        assert!(coming.head.contains("text/event-stream"), "{}", coming.head);
        let mut seen = String::new();
        while !seen.contains("one") {
            let event = event(&mut coming).unwrap_or_else(|| panic!("{language}: no more after {seen:?}"));
            assert_ne!(event["type"], "ended", "{event}");
            seen.push_str(event["text"].as_str().unwrap_or_default());
        }
        assert_eq!(server.ask("PUT", &format!("{sandbox}/files/go-{language}"), "").status, 204);
        let rest = events(&mut coming);
        assert!(coming.is_whole());
        for event in &rest {
            if event["type"] == "output" && event["stream"] == "stdout" {
                seen.push_str(event["text"].as_str().unwrap());
            }
        }
        assert_eq!(seen.split_whitespace().collect::<Vec<_>>(), ["one", "two"], "{language}");
        let ended = rest.last().unwrap();
        assert_eq!((&ended["type"], &ended["success"]), (&"ended".into(), &true.into()), "{ended}");
        assert_eq!(ended["stdout"].as_str().unwrap().split_whitespace().count(), 2);
    }
}

#[test]
fn an_endless_cell_is_interrupted_and_its_variables_stay() {
    let server = Server::start();
    let sandbox = server.create("{}");
    for (language, set, get, endless) in LANGUAGES {
        let kernel = start(&server, &sandbox, &json!({ "language": language }));
        execute(&server, &kernel, set);
        let body = json!({ "code": endless, "timeout": 300 });
        thread::scope(|scope| {
            let waiting = scope.spawn(|| cell(&server, &format!("{kernel}/execute"), &body));
            eventually("a busy kernel", || server.ask("GET", &kernel, "").json()["status"] == "busy");
            assert_eq!(server.ask("POST", &format!("{kernel}/interrupt"), "").status, 204);
            let ended = waiting.join().unwrap();
            let told = (&ended["success"], &ended["interrupted"], &ended["timed_out"], &ended["state_lost"]);
            assert_eq!(told, (&false.into(), &true.into(), &false.into(), &false.into()), "{ended}");
            assert_eq!(ended["error"]["type"], "INTERRUPTED", "{ended}");
        });
        assert!(printed(&execute(&server, &kernel, get)).contains("42"), "{language}");
    }
}

#[test]
fn a_timeout_keeps_the_variables_and_one_that_will_not_end_loses_them() {
    let server = Server::start();
    let sandbox = server.create("{}");
    for (language, set, get, endless) in LANGUAGES {
        run(&server, &sandbox, language, set);
        let body = json!({ "language": language, "code": endless, "timeout": 1 });
        let late = cell(&server, &format!("{sandbox}/run"), &body);
        assert_eq!((&late["timed_out"], &late["state_lost"]), (&true.into(), &false.into()), "{late}");
        assert_eq!(late["error"]["type"], "TIMEOUT", "{late}");
        assert!(printed(&run(&server, &sandbox, language, get)).contains("42"), "{language}");
    }
    let stubborn =
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\nwhile True: pass";
    let body = json!({ "code": stubborn, "timeout": 1 });
    let killed = cell(&server, &format!("{sandbox}/run"), &body);
    let told = (&killed["timed_out"], &killed["state_lost"], &killed["restarted"]);
    assert_eq!(told, (&true.into(), &true.into(), &true.into()), "{killed}");
    let gone = run(&server, &sandbox, "python", "x");
    assert_eq!(gone["error"]["type"], "NameError", "{gone}");
}

#[test]
fn cells_of_one_kernel_run_in_order_and_kernels_side_by_side() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let [first, second] = [(); 2].map(|()| start(&server, &sandbox, &json!({ "language": "bash" })));
    // Each waits for the other: neither ends unless both run.
    let wait = |mine: &str, other: &str| {
        format!("touch {mine}; while ! test -e {other}; do sleep 0.02; done; echo {mine}")
    };
    thread::scope(|scope| {
        let one = scope.spawn(|| execute(&server, &first, &wait("a", "b")));
        let two = scope.spawn(|| execute(&server, &second, &wait("b", "a")));
        assert_eq!(one.join().unwrap()["stdout"], "a\n");
        assert_eq!(two.join().unwrap()["stdout"], "b\n");
    });
    execute(&server, &first, "n=0");
    thread::scope(|scope| {
        let all: Vec<_> = (0..20)
            .map(|_| scope.spawn(|| execute(&server, &first, "m=$n; sleep 0.01; n=$((m+1))")))
            .collect();
        all.into_iter().for_each(|one| assert_eq!(one.join().unwrap()["success"], true));
    });
    assert_eq!(execute(&server, &first, "echo $n")["stdout"], "20\n");
}

#[test]
fn fifty_kernels_at_once_and_not_more_than_there_may_be() {
    let server = Server::start();
    let sandbox = server.create(r#"{"memory_mb":1024,"processes":1024}"#);
    let all: Vec<String> = thread::scope(|scope| {
        let starting: Vec<_> = (0..50)
            .map(|_| scope.spawn(|| start(&server, &sandbox, &json!({ "language": "bash" }))))
            .collect();
        starting.into_iter().map(|one| one.join().unwrap()).collect()
    });
    thread::scope(|scope| {
        for (n, kernel) in all.iter().enumerate() {
            let server = &server;
            scope.spawn(move || {
                execute(server, kernel, &format!("mine={n}"));
                assert_eq!(execute(server, kernel, "echo $mine")["stdout"], format!("{n}\n"));
            });
        }
    });
    assert_eq!(kernels(&server, &sandbox).len(), 50);
    for _ in 50..64 {
        start(&server, &sandbox, &json!({ "language": "bash" }));
    }
    let one_more = server.ask("POST", &format!("{sandbox}/kernels"), r#"{"language":"bash"}"#);
    assert_eq!((one_more.status, one_more.json()["error"]["code"].as_str()), (429, Some("limit_exceeded")));
    assert_eq!(server.ask("DELETE", &all[0], "").status, 204);
    assert_eq!(server.ask("GET", &all[0], "").status, 404);
    start(&server, &sandbox, &json!({ "language": "bash" }));
}

#[test]
fn what_is_too_much_is_cut_and_says_so() {
    let server = Server::start();
    let sandbox = server.create("{}");
    for (language, code) in [
        ("python", "print('x' * (2 << 20), end='')"),
        ("node", "process.stdout.write('x'.repeat(2 << 20))"),
        ("r", "cat(strrep('x', 2097152))"),
        ("bash", "head -c 2097152 /dev/zero | tr '\\0' x"),
    ] {
        let ran = run(&server, &sandbox, language, code);
        assert_eq!((&ran["success"], &ran["truncated"]), (&true.into(), &true.into()), "{language}");
        let stdout = ran["stdout"].as_str().unwrap();
        let notice = "\n… [truncated: 2097152 characters, the first 40000 and the last 10000 shown] …\n";
        assert!(
            stdout.starts_with("xxxx") && stdout.contains(notice) && stdout.ends_with("xxxx"),
            "{language}: …{:?}",
            &stdout[39_990..]
        );
        assert_eq!(stdout.chars().count(), 50_000 + notice.chars().count(), "{language}");
    }
    let long = python(&server, &sandbox, "'y' * 100_000");
    assert!(value(&long).contains("truncated") && value(&long).len() < 31_000);
}

#[test]
fn text_of_every_kind_comes_back_as_it_was() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let text = "grüße 🐚 שלום \u{0301} \u{1}\t\"\\ 漢字";
    for (language, code) in [
        ("python", format!("print({})", json!(text))),
        ("node", format!("console.log({})", json!(text))),
        ("bash", format!("printf '%s\\n' '{}'", text.replace('\'', ""))),
    ] {
        let ran = run(&server, &sandbox, language, &code);
        assert_eq!(ran["stdout"], format!("{text}\n"), "{language}: {ran}");
    }
    // Bytes that are no text are shown as such, and nothing else suffers.
    let binary = python(&server, &sandbox, "import os; os.write(1, bytes(range(256))); 7");
    assert_eq!(value(&binary), "7");
    assert!(binary["stdout"].as_str().unwrap().contains('\u{fffd}'));
    assert_eq!(run(&server, &sandbox, "bash", "printf '\\xff\\xfeok'")["stdout"], "\u{fffd}\u{fffd}ok");
}

#[test]
fn what_a_caller_leaves_behind_is_interrupted() {
    use std::io::Write;
    let server = Server::start();
    let sandbox = server.create("{}");
    let kernel = start(&server, &sandbox, &json!({}));
    execute(&server, &kernel, "kept = 1");
    let (name, key) = super::AUTH;
    for streamed in [false, true] {
        let body = json!({ "code": "while True: pass", "timeout": 600, "stream": streamed }).to_string();
        let mut hurried = std::net::TcpStream::connect(server.address).unwrap();
        let length = body.len();
        let head = format!(
            "POST {kernel}/execute HTTP/1.1\r\nHost: x\r\n{name}: {key}\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        hurried.write_all(head.as_bytes()).unwrap();
        eventually("a busy kernel", || server.ask("GET", &kernel, "").json()["status"] == "busy");
        drop(hurried);
        eventually("an idle kernel", || server.ask("GET", &kernel, "").json()["status"] == "idle");
    }
    assert_eq!(value(&execute(&server, &kernel, "kept")), "1");
}

#[test]
fn kernels_have_folders_and_variables_of_their_own() {
    let server = Server::start();
    let sandbox = server.create(r#"{"env_vars":{"OF_SANDBOX":"s"}}"#);
    server.exec(&sandbox, "mkdir -p sub");
    let body = json!({ "working_directory": "sub", "env_vars": { "MINE": "m" } });
    let kernel = start(&server, &sandbox, &body);
    let ran =
        execute(&server, &kernel, "import os; (os.getcwd(), os.environ['MINE'], os.environ['OF_SANDBOX'])");
    assert_eq!(value(&ran), "('/workspace/sub', 'm', 's')");
    assert_eq!(run(&server, &sandbox, "bash", "pwd; echo $OF_SANDBOX$MINE")["stdout"], "/workspace\ns\n");
    let changed = python(&server, &sandbox, "open('made', 'w').write('x')");
    assert_eq!(changed["files_changed"][0]["path"], "made", "{changed}");
    // A fresh interpreter has forgotten everything, and has the same id.
    let again = server.ask("POST", &format!("{kernel}/restart"), "");
    assert_eq!((again.status, &again.json()["restarts"]), (200, &1.into()), "{again:?}");
    assert_eq!(execute(&server, &kernel, "os")["error"]["type"], "NameError");
}

#[test]
fn owners_do_not_see_each_others_kernels() {
    let server = Server::start();
    let key = |name: &str| {
        let made = server.ask("POST", "/api/v1/keys", &json!({ "name": name, "owner": name }).to_string());
        made.json()["key"].as_str().unwrap().to_owned()
    };
    let (ann, bob) = (key("ann"), key("bob"));
    let made = server.ask_as(&ann, "POST", "/api/v1/sandboxes", "{}").json();
    let sandbox = format!("/api/v1/sandboxes/{}", made["id"].as_str().unwrap());
    let ask = |key: &str, method: &str, below: &str, body: Value| -> http::Answer {
        server.ask_as(key, method, &format!("{sandbox}{below}"), &body.to_string())
    };
    assert_eq!(ask(&ann, "POST", "/run", json!({ "code": "secret = 7" })).status, 200);
    let kernel = ask(&ann, "GET", "/kernels", json!({})).json()[0]["kernel_id"].as_str().unwrap().to_owned();
    for (method, below, body) in [
        ("GET", "/kernels".to_owned(), json!({})),
        ("GET", format!("/kernels/{kernel}"), json!({})),
        ("POST", "/run".into(), json!({ "code": "secret" })),
        ("POST", format!("/kernels/{kernel}/execute"), json!({ "code": "secret" })),
        ("POST", format!("/kernels/{kernel}/interrupt"), json!({})),
        ("POST", format!("/kernels/{kernel}/checkpoints"), json!({})),
        ("POST", format!("/kernels/{kernel}/fork"), json!({})),
        ("POST", "/dependencies".into(), json!({ "packages": { "six": "" } })),
        ("DELETE", format!("/kernels/{kernel}"), json!({})),
    ] {
        assert_eq!(ask(&bob, method, &below, body).status, 404, "{method} {below}");
    }
    assert_eq!(value(&ask(&ann, "POST", "/run", json!({ "code": "secret" })).json()), "7");
}
