//! Packages: at creation and later, on the volume, and nothing that is not a name.

use super::{super::installs::must_be_there, Server, python, run, value};
use serde_json::{Value, json};

fn install(server: &Server, sandbox: &str, body: &Value) -> Value {
    let answer = server.ask("POST", &format!("{sandbox}/dependencies"), &body.to_string());
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    answer.json()
}

const PYTHON: &str = r#""egress":{"mode":"allowlist","presets":["python"]}"#;

#[test]
fn python_packages_come_at_creation_and_later_and_stay() {
    must_be_there("/usr/bin/pip3");
    let server = Server::start();
    let sandbox =
        server.create(&format!(r#"{{{PYTHON},"dependencies":{{"python":{{"iniconfig":"2.0.0"}}}}}}"#));
    assert_eq!(
        value(&python(&server, &sandbox, "import importlib.metadata as m; m.version('iniconfig')")),
        "'2.0.0'"
    );
    // A kernel that runs already finds what is installed now.
    let made = install(&server, &sandbox, &json!({ "language": "python", "packages": { "toposort": "" } }));
    assert_eq!(made["success"], true, "{made}");
    assert_eq!(value(&python(&server, &sandbox, "import toposort; toposort.__name__")), "'toposort'");
    for act in ["stop", "resume"] {
        assert_eq!(server.ask("POST", &format!("{sandbox}/{act}"), "").status, 200);
    }
    assert_eq!(value(&python(&server, &sandbox, "import toposort, iniconfig; 'both'")), "'both'");
    let missing = install(&server, &sandbox, &json!({ "packages": { "no-such-package-of-atoll": "" } }));
    assert_eq!(missing["success"], false, "{missing}");
    assert!(missing["stderr"].as_str().unwrap().contains("no-such-package-of-atoll"), "{missing}");
}

#[test]
fn node_packages_are_found_from_everywhere() {
    must_be_there("/usr/bin/npm");
    let server = Server::start();
    let sandbox = server.create(r#"{"egress":{"mode":"allowlist","presets":["node"]}}"#);
    assert_eq!(run(&server, &sandbox, "node", "1")["success"], true);
    let made = install(&server, &sandbox, &json!({ "language": "node", "packages": { "ms": "2.1.3" } }));
    assert_eq!(made["success"], true, "{made}");
    assert_eq!(value(&run(&server, &sandbox, "node", "require('ms')(60000)")), "'1m'");
    assert_eq!(server.says(&sandbox, "cd /tmp && node -p \"require('ms')(60000)\""), "1m");
}

#[test]
fn pip_works_as_people_type_it() {
    must_be_there("/usr/bin/pip3");
    let server = Server::start();
    let sandbox = server.create(&format!("{{{PYTHON}}}"));
    let ran = server.exec(&sandbox, "pip install -q iniconfig && python3 -c 'import iniconfig'");
    assert_eq!(ran["exit_code"], 0, "{ran}");
    // A program that it brings is found, and a venv is none of this.
    assert_eq!(server.exec(&sandbox, "pip install -q pyjokes && pyjokes >/dev/null")["exit_code"], 0);
    let venv = "python3 -m venv --without-pip v && v/bin/python -c 'import sys; print(sys.prefix)'";
    assert_eq!(server.says(&sandbox, venv), "/workspace/v");
    let in_cell = |code: &str| {
        let report = python(&server, &sandbox, code);
        assert_eq!(report["success"], true, "{report}");
    };
    in_cell("import IPython");
    in_cell("!pip install -q toposort");
    in_cell("%pip install -q ordered-set");
    in_cell("import toposort, ordered_set");
}

#[test]
fn programs_that_are_installed_for_the_user_are_found() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let put = r#"for d in .local/bin .cargo/bin; do
        mkdir -p ~/$d; f=~/$d/tool-$(echo $d | tr -d ./); printf '#!/bin/sh\necho from %s\n' $d >$f; chmod +x $f
    done"#;
    assert_eq!(server.exec(&sandbox, put)["exit_code"], 0);
    for (tool, from) in [("tool-localbin", "from .local/bin"), ("tool-cargobin", "from .cargo/bin")] {
        assert_eq!(server.says(&sandbox, tool), from);
        assert_eq!(server.says(&sandbox, &format!("bash -lc {tool}")), from);
        assert_eq!(run(&server, &sandbox, "bash", tool)["stdout"], format!("{from}\n"));
    }
    must_be_there("/usr/bin/npm");
    assert_eq!(server.says(&sandbox, "npm prefix -g"), server.says(&sandbox, "echo ~/.local"));
}

#[test]
fn what_cannot_be_installed_fails_no_creation() {
    let server = Server::start();
    let answer = server.ask("POST", "/api/v1/sandboxes", r#"{"dependencies":{"python":{"iniconfig":""}}}"#);
    assert_eq!(answer.status, 201, "{}", String::from_utf8_lossy(&answer.body));
    let made = answer.json();
    assert!(made["stderr"].as_str().unwrap().contains("--preset python"), "{made}");
    assert_eq!(made["status"], "running");
    let path = format!("/api/v1/sandboxes/{}", made["id"].as_str().unwrap());
    assert_eq!(value(&python(&server, &path, "1 + 1")), "2");
    assert!(server.ask("GET", &path, "").json()["stderr"].is_null());
}

#[test]
fn r_packages_land_in_the_users_library() {
    must_be_there("/usr/bin/Rscript");
    let (_served, port) = crate::server::installs::served_package();
    let server = Server::start();
    // As a machine's own repository comes in.
    let repository = format!("http://127.0.0.2:{port}");
    let wanted = json!({
        "egress": { "mode": "allowlist", "allow": [format!("127.0.0.2:{port}")] },
        "env_vars": { "ATOLL_R_REPOSITORY": repository },
    });
    let sandbox = server.create(&wanted.to_string());
    let set = run(&server, &sandbox, "r", "getOption(\"repos\")[[\"CRAN\"]]");
    assert_eq!(value(&set), format!("[1] {repository:?}"));
    let made = install(&server, &sandbox, &json!({ "language": "R", "packages": { "tiny": "" } }));
    assert_eq!(made["success"], true, "{made}");
    assert_eq!(value(&run(&server, &sandbox, "r", "library(tiny); tiny()")), "[1] \"works\"");
    let missing =
        install(&server, &sandbox, &json!({ "language": "r", "packages": { "nosuchpackage": "" } }));
    assert_eq!(missing["success"], false, "{missing}");
}
