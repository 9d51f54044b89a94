//! Interpreters that are there before anybody asks.

use super::{Server, kernels, python, value};
use crate::engine::fixture::eventually;
use serde_json::json;

fn keeping(count: u32, languages: &str) -> Server {
    let sizes = [format!("pool.min={count}"), format!("pool.max={count}")];
    let languages = format!("pool.kernels={languages}");
    let mut arguments = vec!["--set", "warm_pool_enabled=true", "--set", &languages];
    sizes.iter().for_each(|size| arguments.extend(["--set", size]));
    let server = Server::start_with(&arguments);
    eventually("a full pool", || key(&server)["ready"] == count);
    server
}

fn key(server: &Server) -> serde_json::Value {
    server.ask("GET", "/api/v1/pool", "").json()["keys"][0].clone()
}

#[test]
fn the_first_cell_of_a_claimed_sandbox_starts_no_interpreter() {
    let server = keeping(1, r#"["python","bash"]"#);
    assert_eq!(server.ask("GET", "/api/v1/pool", "").json()["kernels"], json!(["python", "bash"]));
    assert_eq!(key(&server)["kernels"], 2);
    let sandbox = server.create(r#"{"env_vars":{"MINE":"yes"},"secrets":{"HIDDEN":"s3cret"}}"#);
    assert_eq!(key(&server)["hits"], 1);
    let waiting = kernels(&server, &sandbox);
    assert_eq!(waiting.len(), 2, "{waiting:?}");
    assert!(waiting.iter().all(|k| k["default"] == true && k["execution_count"] == 0), "{waiting:?}");
    let ran =
        python(&server, &sandbox, "import os; (os.getpid(), os.environ['MINE'], len(os.environ['HIDDEN']))");
    assert_eq!(value(&ran), format!("({}, 'yes', 6)", waiting[0]["pid"]), "{ran}");
    assert_eq!((&ran["kernel_id"], &ran["execution_count"]), (&waiting[0]["kernel_id"], &1.into()));
    assert_eq!(super::run(&server, &sandbox, "bash", "echo $MINE")["stdout"], "yes\n");
    // A fresh interpreter has them as well.
    let kernel = super::start(&server, &sandbox, &json!({}));
    assert_eq!(value(&super::execute(&server, &kernel, "import os; os.environ['MINE']")), "'yes'");
}

#[test]
fn another_setting_makes_the_pool_anew() {
    let server = keeping(1, "[]");
    assert_eq!(key(&server)["kernels"], 0);
    let patched =
        server.ask("PATCH", "/api/v1/settings/sandbox", r#"{"atoll":{"pool":{"kernels":["bash"]}}}"#);
    assert_eq!(patched.status, 200, "{patched:?}");
    eventually("another", || key(&server)["kernels"] == 1 && key(&server)["ready"] == 1);
    let wrong =
        server.ask("PATCH", "/api/v1/settings/sandbox", r#"{"atoll":{"pool":{"kernels":["cobol"]}}}"#);
    assert_eq!(wrong.json()["detail"][0]["loc"], json!(["body", "atoll", "pool", "kernels"]), "{wrong:?}");
}
