//! What runs: arguments, shells, environment, directory, user, and every way of not starting.

use crate::support::*;
use atoll_guest_proto::v1::{ConfigureRequest, ExecRequest, ExecState, HelloRequest, ListExecsRequest};
use atoll_types::ErrorCode;
use std::collections::HashMap;

#[tokio::test]
async fn both_sides_agree_on_a_protocol() {
    let mut guest = Guest::start().await;
    let hello = HelloRequest { min_protocol: 1, max_protocol: 9 };
    assert_eq!(guest.client.hello(hello).await.unwrap().into_inner().protocol, 1);
    let hello = HelloRequest { min_protocol: 7, max_protocol: 9 };
    assert_eq!(error(guest.client.hello(hello).await).code, ErrorCode::VersionMismatch);
}

#[tokio::test]
async fn arguments_arrive_as_they_are() {
    let guest = Guest::start().await;
    let seen = guest.run(argv(&["printf", "%s|", "a b", "", "$HOME", "é\n"])).await;
    assert_eq!(seen.stdout(), "a b||$HOME|é\n|");
    assert_eq!(seen.info().exit_code, Some(0));
    let started = seen.started.unwrap();
    assert_eq!(started.command, "printf '%s|' 'a b' '' '$HOME' 'é\n'");
    assert!(started.pid > 0);
}

#[tokio::test]
async fn shells_run_scripts_and_exit_codes_come_back() {
    let guest = Guest::start().await;
    assert_eq!(guest.output("[[ a == a ]] && echo $0").await, "/bin/bash");
    let seen = guest.run(sh("echo out; echo err >&2; exit 7")).await;
    assert_eq!((seen.stdout().as_str(), seen.stderr().as_str()), ("out\n", "err\n"));
    assert_eq!((seen.info().exit_code, seen.info().signal), (Some(7), None));
    let seen = guest.run(sh("kill -TERM $$")).await;
    assert_eq!((seen.info().exit_code, seen.info().signal), (None, Some(libc::SIGTERM)));
}

#[tokio::test]
async fn the_environment_is_ours_and_nothing_leaks() {
    let guest = Guest::start().await;
    let mut request = argv(&["/usr/bin/env"]);
    request.environment = HashMap::from([("MINE".into(), "1".into()), ("TERM".into(), "xterm".into())]);
    let text = guest.run(request).await.stdout();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "HOME=/home/user",
            "LANG=C.UTF-8",
            "LOGNAME=user",
            "MINE=1",
            "NPM_CONFIG_PREFIX=/home/user/.local",
            "PATH=/home/user/.local/bin:/home/user/.cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "PIP_BREAK_SYSTEM_PACKAGES=1",
            "SANDBOX=yes",
            "TERM=xterm",
            "USER=user",
            "UV_BREAK_SYSTEM_PACKAGES=1",
        ]
    );
}

#[tokio::test]
async fn configure_changes_later_commands() {
    let guest = Guest::start().await;
    let environment = HashMap::from([("NEW".into(), "2".into())]);
    let request =
        ConfigureRequest { set_environment: true, environment, open_files: 99, ..Default::default() };
    guest.client.clone().configure(request).await.unwrap();
    assert_eq!(guest.output("echo $NEW-$SANDBOX-$(ulimit -n)").await, "2--99");
    let environment = HashMap::from([("A=B".into(), "2".into())]);
    let request = ConfigureRequest { set_environment: true, environment, ..Default::default() };
    let error = error(guest.client.clone().configure(request).await);
    assert_eq!(error.field.as_deref(), Some("environment"));
}

#[tokio::test]
async fn directories_are_absolute_or_in_the_workspace() {
    let guest = Guest::start().await;
    assert_eq!(guest.output("pwd; mkdir sub").await, "/workspace");
    for (directory, seen) in [("sub", "/workspace/sub\n"), ("/tmp", "/tmp\n"), (".", "/workspace\n")] {
        let request = ExecRequest { working_directory: directory.into(), ..argv(&["/bin/pwd"]) };
        assert_eq!(guest.run(request).await.stdout(), seen);
    }
}

#[tokio::test]
async fn users_by_name_and_number() {
    let guest = Guest::start().await;
    let id = async |user: &str| {
        let request = ExecRequest { user: user.into(), ..sh("echo $(id -u):$(id -g):$(id -G):$HOME:$USER") };
        guest.run(request).await.stdout().trim_end().to_owned()
    };
    assert_eq!(id("").await, "1000:1000:1000 2000:/home/user:user");
    assert_eq!(id("user").await, "1000:1000:1000 2000:/home/user:user");
    assert_eq!(id("ann").await, "1234:1235:1235 2000 2001:/home/ann:ann");
    assert_eq!(id("1234").await, "1234:1235:1235:/home/ann:ann");
    assert_eq!(id("4000").await, "4000:4000:4000:/:4000");
    assert_eq!(id("4000:4001").await, "4000:4001:4001:/:4000");
}

#[tokio::test]
async fn nobody_becomes_root_in_an_ordinary_sandbox() {
    let guest = Guest::start().await;
    for user in ["root", "0", "0:0", "1000:0", "65534", "big", "1000:65534", "4294967295"] {
        let request = ExecRequest { user: user.into(), ..sh("id") };
        let error = error(guest.client.clone().exec(request).await.map(|_| ()));
        assert_eq!(
            (error.code, error.field.as_deref()),
            (ErrorCode::PermissionDenied, Some("user")),
            "{user}"
        );
    }
    let request = ExecRequest { user: "root".into(), ..sh("id -u") };
    assert_eq!(Guest::with(root_config()).await.run(request).await.stdout(), "0\n");
}

#[tokio::test]
async fn wrong_requests_name_their_field() {
    let guest = Guest::start().await;
    let with = |name: &str, value: &str| HashMap::from([(name.to_owned(), value.to_owned())]);
    let cases = [
        (ExecRequest { exec_id: "x".into(), ..sh("true") }, "exec_id"),
        (ExecRequest { program: None, ..sh("") }, "program"),
        (argv(&[]), "arguments"),
        (argv(&["a\0b"]), "arguments"),
        (sh("a\0b"), "shell"),
        (ExecRequest { environment: with("", "x"), ..sh("true") }, "environment"),
        (ExecRequest { environment: with("a=b", "x"), ..sh("true") }, "environment"),
        (ExecRequest { environment: with("a", "\0"), ..sh("true") }, "environment"),
        (ExecRequest { working_directory: "a\0".into(), ..sh("true") }, "working_directory"),
        (ExecRequest { user: "a:b".into(), ..sh("true") }, "user"),
    ];
    for (request, field) in cases {
        let error = error(guest.client.clone().start_exec(request).await);
        assert_eq!((error.code, error.field.as_deref()), (ErrorCode::InvalidArgument, Some(field)));
    }
}

#[tokio::test]
async fn each_stage_of_a_start_reports_its_failure() {
    let guest = Guest::start().await;
    guest.output("printf '#!/nosuch\n' >script; chmod 755 script; touch plain").await;
    let cases = [
        (argv(&["nosuchprogram"]), "exec", libc::ENOENT),
        (argv(&["/nosuch/program"]), "exec", libc::ENOENT),
        (argv(&[""]), "exec", libc::ENOENT),
        (argv(&["./plain"]), "exec", libc::EACCES),
        (argv(&["./script"]), "exec", libc::ENOENT),
        (argv(&["/workspace"]), "exec", libc::EACCES),
        (ExecRequest { working_directory: "missing".into(), ..sh("true") }, "workdir", libc::ENOENT),
        (ExecRequest { working_directory: "plain".into(), ..sh("true") }, "workdir", libc::ENOTDIR),
        (ExecRequest { working_directory: "/secret".into(), ..sh("true") }, "workdir", libc::EACCES),
        (ExecRequest { user: "nobodyhere".into(), ..sh("true") }, "user", 0),
    ];
    for (request, stage, errno) in cases {
        let id = request.exec_id.clone();
        let seen = guest.run(request).await;
        let failure = seen.info().failure.clone().unwrap();
        assert_eq!((failure.stage.as_str(), failure.errno), (stage, errno), "{failure:?}");
        assert!(!failure.message.is_empty());
        assert_eq!(seen.started.unwrap().failure, Some(failure));
        assert!(seen.outputs.is_empty());
        let info = guest.client.clone().get_exec(reference(&id)).await.unwrap().into_inner();
        assert_eq!((info.state(), info.exit_code, info.pid), (ExecState::Ended, None, 0));
    }
}

#[tokio::test]
async fn an_id_starts_once() {
    let guest = Guest::start().await;
    let request = sh("echo once >>count; echo done");
    let (first, second) = tokio::join!(guest.run(request.clone()), guest.run(request.clone()));
    let third = guest.run(request.clone()).await;
    for seen in [first, second, third] {
        assert_eq!(seen.stdout(), "done\n");
    }
    let info = guest.client.clone().start_exec(request).await.unwrap().into_inner();
    assert_eq!(info.state(), ExecState::Ended);
    assert_eq!(guest.output("cat count").await, "once");
}

#[tokio::test]
async fn fifty_at_once() {
    let guest = Guest::start().await;
    let runs = (0..50).map(|n| {
        let guest = &guest;
        async move {
            let seen = guest.run(sh(&format!("echo {n}; sleep 0.05; echo {n} >&2; exit {n}"))).await;
            assert_eq!((seen.stdout(), seen.stderr()), (format!("{n}\n"), format!("{n}\n")));
            assert_eq!(seen.info().exit_code, Some(n));
        }
    });
    futures_util::future::join_all(runs).await;
    let list = guest.client.clone().list_execs(ListExecsRequest {}).await.unwrap().into_inner();
    assert_eq!(list.execs.len(), 50);
}

#[tokio::test]
async fn ended_commands_are_forgotten() {
    let guest = Guest::with(atoll_guest_proto::GuestConfig { max_ended_execs: 3, ..config() }).await;
    let mut ids = Vec::new();
    for n in 0..5 {
        let request = sh(&format!("echo {n}; echo {n} >&2"));
        ids.push(request.exec_id.clone());
        guest.run(request).await;
    }
    let mut client = guest.client.clone();
    eventually("two are forgotten", async || {
        client.list_execs(ListExecsRequest {}).await.unwrap().into_inner().execs.len() == 3
    })
    .await;
    assert_eq!(error(client.get_exec(reference(&ids[0])).await).code, ErrorCode::NotFound);
    client.forget_exec(reference(&ids[4])).await.unwrap();
    assert_eq!(error(client.get_exec(reference(&ids[4])).await).code, ErrorCode::NotFound);
    let names =
        std::fs::read_dir(guest.spool()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut left: Vec<String> = names.map(|n| n[..32].to_owned()).collect();
    left.sort_unstable();
    left.dedup();
    ids.truncate(4);
    ids.drain(..2);
    ids.sort_unstable();
    assert_eq!(left, ids);
}

#[tokio::test]
async fn a_running_command_is_not_forgotten() {
    let guest = Guest::start().await;
    let request = sh("sleep 1000");
    let id = request.exec_id.clone();
    let mut client = guest.client.clone();
    client.start_exec(request).await.unwrap();
    assert_eq!(error(client.forget_exec(reference(&id)).await).code, ErrorCode::Conflict);
}

#[tokio::test]
async fn usage_and_memory_kills_are_reported() {
    let guest = Guest::start().await;
    let seen = guest.run(python("sum(range(2000000))")).await;
    let info = seen.info();
    assert!(info.cpu_user_us > 0 && info.max_rss_bytes > 1 << 20 && info.duration_us >= info.cpu_user_us / 4);
    assert!(info.started_unix_ms > 1_600_000_000_000);
    assert_eq!((info.oom_killed, info.oom_kills), (false, 0));
    // The counter rises while the command runs, and something kills it that is not us.
    let request = ExecRequest { stdin: true, ..sh("read x; kill -9 $$") };
    let id = request.exec_id.clone();
    let stream = guest.client.clone().exec(request).await.unwrap().into_inner();
    guest.set_oom_kills(2);
    crate::stdin::write(&guest, &id, &[b"\n"], false).await;
    let seen = collect(stream).await;
    assert_eq!((seen.info().oom_killed, seen.info().oom_kills), (true, 2));
    assert_eq!(seen.info().signal, Some(libc::SIGKILL));
}
