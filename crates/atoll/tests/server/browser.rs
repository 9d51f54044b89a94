//! A real browser, driven over its debugging pipe. `make test` installs it.

use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
};

/// A browser with one tab.
pub(crate) struct Browser {
    child: Child,
    to: fs::File,
    from: BufReader<fs::File>,
    tab: Option<String>,
    next: u64,
    _folder: tempfile::TempDir,
}

impl Browser {
    pub(crate) fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("atoll-browser-").tempdir().unwrap();
        let (to, from) = (folder.path().join("to"), folder.path().join("from"));
        assert!(Command::new("mkfifo").args([&to, &from]).status().unwrap().success());
        // It talks over the descriptors 3 and 4.
        let child = Command::new("bash")
            .args([
                "-c",
                "exec \"$@\" 3< \"$TO\" 4> \"$FROM\"",
                "-",
                "chromium",
                "--headless=new",
                "--no-sandbox",
            ])
            .args(["--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .env("TO", &to)
            .env("FROM", &from)
            .env("HOME", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let to = fs::OpenOptions::new().write(true).open(to).unwrap();
        let from = BufReader::new(fs::File::open(from).unwrap());
        let mut browser = Self { child, to, from, tab: None, next: 0, _folder: folder };
        let made = browser.command("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": made["targetId"], "flatten": true });
        browser.tab =
            Some(browser.command("Target.attachToTarget", attach)["sessionId"].as_str().unwrap().into());
        browser.command("Page.enable", json!({}));
        browser
    }

    fn read(&mut self) -> Value {
        let mut message = Vec::new();
        self.from.read_until(0, &mut message).unwrap();
        assert_eq!(
            message.pop(),
            Some(0),
            "the browser ended; is chromium installed? `make setup-tests` does that"
        );
        serde_json::from_slice(&message).unwrap()
    }

    fn command(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": params });
        if let Some(tab) = &self.tab {
            message["sessionId"] = tab.as_str().into();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let answer = self.read();
            if answer["id"] == self.next {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    /// Opens an address, and waits until the page has been loaded.
    pub(crate) fn open(&mut self, url: &str) {
        let went = self.command("Page.navigate", json!({ "url": url }));
        assert!(went["errorText"].is_null(), "{url}: {went}");
        while self.read()["method"] != "Page.loadEventFired" {}
    }

    /// What an expression of the page gives, when its promise is kept.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let done = self.command("Runtime.evaluate", params);
        assert!(done["exceptionDetails"].is_null(), "{expression}: {done}");
        done["result"]["value"].clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.tab = None;
        let _ = self.to.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        // It closes its end when it is done; whatever it still says is read.
        let mut rest = Vec::new();
        while matches!(self.from.read_until(0, &mut rest), Ok(n) if n > 0) {
            rest.clear();
        }
        let _ = self.child.wait();
    }
}
