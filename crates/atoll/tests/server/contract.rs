//! The API's description, by programs that others wrote: it is valid, and clients that are made of it work.
//! `make test` installs them into folders beside the build.

use super::fixture::{KEY, Server};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn target() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_atoll")).ancestors().nth(2).unwrap().to_owned()
}

fn docs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

/// Runs a program to its end, which must be a good one, and returns all that it said.
fn run(command: &mut Command) -> String {
    let ran = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}; `make python contract-tools`"));
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{command:?}: {said}");
    said
}

fn python(program: &str) -> Command {
    Command::new(target().join("python-contract/bin").join(program))
}

const PROGRAM: &str = r#"
import io, sys
from atoll_client import AuthenticatedClient
from atoll_client.api.exec_ import exec_exec
from atoll_client.api.files import files_download, files_list, files_upload
from atoll_client.api.sandboxes import sandboxes_create, sandboxes_destroy, sandboxes_get, sandboxes_list
from atoll_client.models import CreateBody, Error, ExecBody, ExecResult, Sandbox, SandboxStatus
from atoll_client.types import File

client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2])
made = sandboxes_create.sync(client=client, body=CreateBody(memory_mb=256, idle_timeout_seconds=60.5))
assert isinstance(made, Sandbox) and made.status is SandboxStatus.RUNNING, made
assert (made.memory_mb, made.profile, made.idle_timeout_seconds) == (256, "default", 61), made
assert made.created_at.tzinfo is not None
ran = exec_exec.sync(made.id, client=client, body=ExecBody(command="echo $((6*7)) | tee out.txt", timeout_seconds=9.5))
assert isinstance(ran, ExecResult) and (ran.exit_code, ran.stdout) == (0, "42\n"), ran
assert [(f.path, f.action.value) for f in ran.files_changed] == [("out.txt", "created")], ran
wrote = files_upload.sync_detailed(made.id, "in/data.bin", client=client, body=File(payload=io.BytesIO(b"\x00\xff")))
assert wrote.status_code == 204, wrote
read = files_download.sync(made.id, "in/data.bin", client=client)
assert read.payload.read() == b"\x00\xff"
assert [(f.name, f.is_directory) for f in files_list.sync(made.id, client=client)] == [("in", True), ("out.txt", False)]
assert sandboxes_list.sync(client=client).total == 1
gone = sandboxes_destroy.sync_detailed(made.id, client=client)
assert gone.status_code == 204, gone
missing = exec_exec.sync(made.id, client=client, body=ExecBody(command="true"))
assert isinstance(missing, Error) and missing.error.code.value == "not_running", missing
stranger = AuthenticatedClient(base_url=sys.argv[1], token="nothing")
assert sandboxes_get.sync_detailed(made.id, client=stranger).status_code == 401
print("all of it")
"#;

#[test]
fn the_document_is_valid_and_a_python_client_that_is_made_of_it_works() {
    let said = run(python("openapi-spec-validator").arg(docs("openapi.json")));
    assert!(said.contains("OK"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let said = run(python("openapi-python-client")
        .current_dir(folder.path())
        .args(["generate", "--meta", "none", "--output-path", "atoll_client", "--path"])
        .arg(docs("openapi.json"))
        .arg("--config")
        .arg(docs("openapi-python-client.yaml")));
    assert!(!said.to_lowercase().contains("warning"), "{said}");
    let server = Server::start();
    let said = run(python("python")
        .current_dir(folder.path())
        .args(["-c", PROGRAM, &format!("http://{}", server.address), KEY])
        .env("PYTHONDONTWRITEBYTECODE", "1"));
    assert_eq!(said, "all of it\n");
}

/// What a program in TypeScript may count on.
const TYPES: &str = r#"
import type { components, operations, paths } from "./api";
type Sandbox = components["schemas"]["Sandbox"];
const status: Sandbox["status"] = "running";
const body: NonNullable<operations["sandboxes_create"]["requestBody"]>["content"]["application/json"] = { memory_mb: 256 };
type Refused = paths["/api/v1/sandboxes"]["post"]["responses"][422]["content"]["application/json"];
export const first = (refused: Refused): string | undefined => refused.detail[0]?.loc.join(".");
export const all: [Sandbox["status"], typeof body] = [status, body];
// @ts-expect-error: a status that there is not.
export const wrong: Sandbox["status"] = "flying";
"#;

#[test]
fn typescript_that_is_made_of_the_document_is_sound() {
    let bin = target().join("contract-node/node_modules/.bin");
    let folder = tempfile::tempdir().unwrap();
    let types = folder.path().join("api.ts");
    let said =
        run(Command::new(bin.join("openapi-typescript")).arg(docs("openapi.json")).arg("-o").arg(&types));
    assert!(!said.to_lowercase().contains("warn"), "{said}");
    fs::write(folder.path().join("use.ts"), TYPES).unwrap();
    run(Command::new(bin.join("tsc"))
        .args([
            "--strict",
            "--noEmit",
            "--target",
            "es2022",
            "--moduleResolution",
            "bundler",
            "--module",
            "esnext",
        ])
        .args(["use.ts", "api.ts"])
        .current_dir(folder.path()));
}
