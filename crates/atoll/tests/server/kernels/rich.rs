//! What cells show can be looked at.

use super::{Server, run};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;
use std::process::{Command, Stdio};

fn shown<'a>(ran: &'a Value, mime: &str) -> &'a str {
    let all = ran["display_outputs"].as_array().unwrap();
    let found = all.iter().find(|d| d["type"] == mime);
    let found = found.or_else(|| Some(&Value::Null).filter(|_| false));
    match found {
        Some(display) => display["data"].as_str().unwrap(),
        None => ran["result"][mime].as_str().unwrap_or_else(|| panic!("no {mime}: {ran}")),
    }
}

/// What Python's own image library makes of it: format and size.
fn decoded(data: &str) -> String {
    use std::io::Write;
    let script = "import sys, io; from PIL import Image; i = Image.open(io.BytesIO(sys.stdin.buffer.read())); i.load(); print(i.format, *i.size)";
    let mut child = Command::new("/usr/bin/python3")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&STANDARD.decode(data.trim_end()).unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn works(server: &Server, sandbox: &str, language: &str, code: &str) -> Value {
    let ran = run(server, sandbox, language, code);
    assert_eq!(ran["success"], true, "{code}: {ran}");
    ran
}

#[test]
fn python_shows_figures_pictures_tables_and_pages() {
    let server = Server::start();
    let sandbox = server.create(r#"{"memory_mb":1024}"#);
    let python = |code: &str| works(&server, &sandbox, "python", code);
    let figure = python("import matplotlib.pyplot as plt; plt.plot([1, 4, 9]); plt.show()");
    assert!(decoded(shown(&figure, "image/png")).starts_with("PNG "), "{figure}");
    let picture = python("from PIL import Image; Image.new('RGB', (30, 20), 'red')");
    assert_eq!(decoded(shown(&picture, "image/png")), "PNG 30 20");
    let table = python("import pandas as pd; pd.DataFrame({'a': [1, 2], 'b': ['x', 'ü']})");
    assert!(shown(&table, "text/html").contains("<table"), "{table}");
    assert!(table["result"]["text/plain"].as_str().unwrap().contains('ü'));
    let page = python("from IPython.display import HTML, display; display(HTML('<b>bold</b>'))");
    assert_eq!(shown(&page, "text/html"), "<b>bold</b>");
    let sound = python("from IPython.display import Audio; Audio(data=b'RIFF' + bytes(100), rate=8000)");
    assert_eq!(sound["success"], true, "{sound}");
    let awaited = python("import asyncio\nawait asyncio.sleep(0)\n'awaited'");
    assert_eq!(awaited["result"]["text/plain"], "'awaited'");
    let asked = run(&server, &sandbox, "python", "input('name? ')");
    assert_eq!(asked["success"], false, "{asked}");
    let wrong = run(&server, &sandbox, "python", "def f():\n    return 1 / 0\n\nf()");
    let traceback = wrong["error"]["traceback"].as_str().unwrap();
    assert!(traceback.contains("line 2") && traceback.contains("line 4"), "{traceback}");
}

#[test]
fn node_and_r_show_pictures_too() {
    let server = Server::start();
    let sandbox = server.create(r#"{"memory_mb":1024}"#);
    let plot = works(&server, &sandbox, "r", "plot(1:10)");
    assert_eq!(decoded(shown(&plot, "image/png")), "PNG 800 600");
    let ggplot = works(
        &server,
        &sandbox,
        "r",
        "library(ggplot2); ggplot(data.frame(x = 1:3, y = 1:3), aes(x, y)) + geom_point()",
    );
    assert_eq!(decoded(shown(&ggplot, "image/png")), "PNG 800 600");
    let frame = works(&server, &sandbox, "r", "data.frame(a = 1:2, b = c('x', 'y'))");
    assert!(shown(&frame, "text/html").contains("<table"), "{frame}");
    let warned = works(&server, &sandbox, "r", "warning('careful'); 1");
    assert!(warned["stderr"].as_str().unwrap().contains("careful"), "{warned}");
    let kept = works(&server, &sandbox, "node", "const a = 1; class B { c() { return a + 1 } }");
    assert_eq!(kept["error"], Value::Null);
    assert_eq!(
        works(&server, &sandbox, "node", "await Promise.resolve(new B().c())")["result"]["text/plain"],
        "2"
    );
}
