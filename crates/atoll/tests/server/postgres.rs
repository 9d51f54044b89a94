//! A server whose records are in PostgreSQL: everything that a caller does, a crash, a second server, and moving to the
//! file of the data folder and back.

use super::fixture::Server;
use crate::engine::fixture::data_folder;
use serde_json::json;
use std::{path::Path, process::Command};

#[path = "../../../store-postgres/tests/cluster.rs"]
mod cluster;

const PASSWORD: &str = "hush-hush-and-never-shown";

/// The address, with a password that the server of the tests does not ask for.
fn url(database: &str) -> String {
    cluster::shared().url(database).replace("postgres@", &format!("postgres:{PASSWORD}@"))
}

fn atoll(server: &Server, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_atoll"));
    let ran = command.args(arguments).arg("--data-dir").arg(server.data()).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    assert!(!said.contains(PASSWORD), "{said}");
    (ran.status.code(), said)
}

/// What a server says that does not start.
pub(super) fn refused(data: &Path, variables: &[(&str, &str)]) -> String {
    let started = Command::new(env!("CARGO_BIN_EXE_atoll"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(data)
        .env("ATOLL_GRPC_LISTEN", "")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&started.stderr).into_owned();
    assert!(!started.status.success() && !said.contains(PASSWORD), "{said}");
    said
}

/// What a new command says, by a sandbox's path.
fn works(server: &Server, sandbox: &str) {
    assert_eq!(server.says(sandbox, "cat kept; echo $((6 * 7))"), "here\n42");
}

#[test]
fn a_server_on_postgres_does_what_one_on_a_file_does() {
    let database = cluster::shared().database();
    let mut server = Server::start_in("info", &[], &[("ATOLL_DATABASE_URL", &url(&database))]);
    let sandbox = server.create(&json!({ "labels": { "team": "a" } }).to_string());
    server.exec(&sandbox, "echo here > kept");
    works(&server, &sandbox);
    assert!(!server.data().join("server/atoll.db").exists());

    // Another server, with a data folder of its own, is told who has the database.
    let folder = data_folder(&std::env::temp_dir());
    let said = refused(folder.path(), &[("ATOLL_DATABASE_URL", &url(&database))]);
    assert!(said.contains("another server has this database: atoll, process"), "{said}");
    let down = ["down", "--purge", "--data-dir", &folder.path().display().to_string()].map(str::to_owned);
    Command::new(env!("CARGO_BIN_EXE_atoll")).args(down).output().unwrap();

    // A crash, and the same sandbox.
    server.kill();
    server.restart();
    works(&server, &sandbox);
    let verified = server.ask("GET", "/api/v1/audit/verify", "");
    assert!(verified.status == 200 && verified.json()["sound"] == true, "{verified:?}");
    let (code, said) = atoll(&server, &["audit", "verify"]);
    assert_eq!(code, Some(0), "{said}");

    // Not while a server has it.
    let address = cluster::shared().url(&database);
    let (code, said) = atoll(&server, &["store", "copy", "--from", &address, "--to", "sqlite"]);
    assert!(code != Some(0) && said.contains("another server runs on this data folder"), "{said}");

    server.kill();
    let (code, said) = atoll(&server, &["store", "copy", "--from", &url(&database), "--to", "sqlite"]);
    assert!(code == Some(0) && said.contains("sound before and after"), "{said}");
    server.set_variables(&[]);
    server.restart();
    works(&server, &sandbox);
    let (code, said) = atoll(&server, &["audit", "verify"]);
    assert_eq!(code, Some(0), "{said}");

    // And back, into an empty one; one with records is refused.
    server.kill();
    let (code, said) = atoll(&server, &["store", "copy", "--from", "sqlite", "--to", &url(&database)]);
    assert!(code != Some(0) && said.contains("the target has records"), "{said}");
    let other = cluster::shared().database();
    let (code, said) = atoll(&server, &["store", "copy", "--from", "sqlite", "--to", &url(&other)]);
    assert_eq!(code, Some(0), "{said}");
    // The file is an old one now: a server that was not told where the records are does not take it, nor an empty database.
    let said = refused(server.data(), &[]);
    assert!(said.contains("name it with database_url"), "{said}");
    let said = refused(server.data(), &[("ATOLL_DATABASE_URL", &url(&cluster::shared().database()))]);
    assert!(said.contains("records are elsewhere"), "{said}");
    // By the names of the reference system, as a user who is asked for the password.
    let user = format!("{other}_user");
    cluster::shared().add_user(&user, PASSWORD);
    let socket = cluster::shared().url(&other).split_once("host=").unwrap().1.to_owned();
    let variables = [
        ("POSTGRES_HOST", socket.as_str()),
        ("POSTGRES_PORT", "5432"),
        ("POSTGRES_USER", user.as_str()),
        ("POSTGRES_PASSWORD", PASSWORD),
        ("POSTGRES_DB", other.as_str()),
    ];
    for (at, wrong) in [(0, "/nowhere"), (1, "5433"), (2, "nobody-here"), (3, "wrong"), (4, "nothing_here")] {
        let mut changed = variables;
        changed[at].1 = wrong;
        let said = refused(server.data(), &changed);
        assert!(said.contains("database"), "{changed:?}: {said}");
    }
    server.set_variables(&variables);
    server.restart();
    works(&server, &sandbox);
    assert!(!server.logged().contains(PASSWORD), "{}", server.logged());
}
