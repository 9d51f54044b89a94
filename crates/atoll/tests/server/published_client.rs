//! The published client of this API, as its users have it: `mcpgateway-sdk` 0.30.0, with its defaults.
//! `make test` installs it into a folder beside the build.

use super::fixture::{KEY, Server};
use std::process::Command;

const PROGRAM: &str = r#"
import asyncio, sys
from mcpgateway_sdk import MCPGateway

async def main():
    client = MCPGateway(url=sys.argv[1], api_key=sys.argv[2], check_version=False)
    box = client.sandboxes
    one = await box.create()
    assert one.status == "running", one
    same = await box.acquire_or_create("thread-1")
    again = await box.acquire_or_create("thread-1")
    assert same.id == again.id and same.id != one.id
    ran = await box.exec(one.id, "python3 -c 'print(6*7)'")
    assert (ran.exit_code, ran.stdout) == (0, "42\n"), ran
    await box.upload_file(one.id, "/workspace/in/data.csv", b"a,b\n1,2\n")
    assert await box.download_file(one.id, "in/data.csv") == b"a,b\n1,2\n"
    files = await box.list_files(one.id)
    assert [(f.name, f.is_directory) for f in files] == [("in", True)], files
    await box.stop(one.id)
    assert (await box.get(one.id)).status == "stopped"
    assert (await box.resume(one.id)).status == "running"
    assert (await box.exec(one.id, "cat in/data.csv")).stdout.startswith("a,b")
    assert {s.id for s in await box.list()} == {one.id, same.id}
    assert len(await box.activity(one.id)) >= 5
    await box.update(one.id, idle_timeout_seconds=60)
    await box.destroy(one.id)
    print("all of it")

asyncio.run(main())
"#;

#[test]
fn it_works_with_its_defaults() {
    let python = std::env::var("ATOLL_TEST_PYTHON").unwrap_or_else(|_| {
        let target = std::path::Path::new(env!("CARGO_BIN_EXE_atoll")).ancestors().nth(2).unwrap();
        target.join("python/bin/python").display().to_string()
    });
    let server = Server::start();
    let ran = Command::new(&python)
        .args(["-c", PROGRAM, &format!("http://{}", server.address), KEY])
        .output()
        .unwrap_or_else(|e| panic!("{python}: {e}; `make test` installs it"));
    assert_eq!(
        String::from_utf8_lossy(&ran.stdout),
        "all of it\n",
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}
