//! A web app with hot reload, as people make them, in a real browser: by a name of its own below `localhost`,
//! which a server on loopback has without being told.

use super::{
    browser::Browser,
    fixture::{KEY, Server},
};
use crate::engine::fixture::eventually;
use std::{path::Path, process::Command};

const CONFIG: &str = "import react from '@vitejs/plugin-react';\nexport default { plugins: [react()] };\n";
const INDEX: &str =
    r#"<!doctype html><div id="root"></div><script type="module" src="/src/main.jsx"></script>"#;
const MAIN: &str = "import { createRoot } from 'react-dom/client';\nimport App from './App';\n\
    createRoot(document.getElementById('root')).render(<App />);\n";

fn app(text: &str) -> String {
    format!("export default function App() {{ return <h1>{text}</h1>; }}\n")
}

/// Waits until the page shows a text.
fn shows(browser: &mut Browser, text: &str) {
    let script = format!(
        "new Promise(done => {{ const look = () => document.body?.innerText.includes('{text}') ? done(true) \
         : setTimeout(look, 50); look(); }})"
    );
    assert_eq!(browser.evaluate(&script), true, "{text}");
}

#[test]
fn a_vite_app_reloads_itself_without_a_setting() {
    let server = Server::start();
    let sandbox = server.create(r#"{"memory_mb":1024,"disk_mb":512,"cpu_cores":2}"#);
    let target = Path::new(env!("CARGO_BIN_EXE_atoll")).ancestors().nth(2).unwrap().join("vite-app");
    let packed =
        Command::new("tar").arg("-C").arg(&target).args(["-cf", "-", "node_modules"]).output().unwrap();
    assert!(packed.status.success(), "`make contract-tools` installs it: {packed:?}");
    let unpacked = super::http::request(
        server.address,
        "PUT",
        &format!("{sandbox}/fs/tar?path=app"),
        &[("Authorization", &format!("Bearer {KEY}"))],
        &packed.stdout,
    );
    assert_eq!(unpacked.unwrap().status, 200);
    let put = |path: &str, text: &str| {
        assert_eq!(server.ask("PUT", &format!("{sandbox}/files/app/{path}"), text).status, 204, "{path}");
    };
    put("package.json", r#"{"type":"module"}"#);
    put("vite.config.js", CONFIG);
    put("index.html", INDEX);
    put("src/main.jsx", MAIN);
    put("src/App.jsx", &app("the first"));
    let serve = r#"{"command":"cd app && exec node node_modules/vite/bin/vite.js --host 127.0.0.1","background":true}"#;
    assert_eq!(server.ask("POST", &format!("{sandbox}/exec"), serve).status, 202);
    eventually("the dev server", || {
        server.ask("GET", &format!("{sandbox}/ports"), "").json().to_string().contains("5173")
    });
    let id = sandbox.rsplit('/').next().unwrap();
    let printed = Command::new(env!("CARGO_BIN_EXE_atoll"))
        .args(["preview", id, "5173"])
        .env("ATOLL_URL", format!("http://{}", server.address))
        .env("ATOLL_API_KEY", KEY)
        .output()
        .unwrap();
    let address = String::from_utf8(printed.stdout).unwrap();
    let (name, port) = (format!("http://5173-{}.localhost", id.replace('-', "")), server.address.port());
    assert!(address.starts_with(&format!("{name}:{port}/")), "{address}");
    let mut browser = Browser::start();
    browser.open(address.trim());
    shows(&mut browser, "the first");
    browser.evaluate("window.stayed = 'yes'");
    put("src/App.jsx", &app("the second"));
    shows(&mut browser, "the second");
    assert_eq!(browser.evaluate("window.stayed"), "yes", "the page was changed in place");
}
