//! Commands, files and limits, over the guest stream.

use super::{Outcome, ensure, same, says, shell, spec, with};
use crate::{ChangeReport, Command, ContainerSpec, FileAction, Provider, TerminalSize, WriteOptions};
use atoll_types::{ExecId, Limits, StartStage};
use bytes::Bytes;
use futures_util::stream;
use std::{collections::BTreeMap, time::Duration};

pub(super) async fn exit_codes_signals_and_outputs_are_the_commands(provider: &dyn Provider) -> Outcome {
    with(provider, spec(), async |container| {
        let finished = shell(&container, "echo out; echo err >&2; exit 7").await?;
        same("exit code", finished.report.exit_code, Some(7))?;
        same("stdout", &finished.stdout[..], b"out\n")?;
        same("stderr", &finished.stderr[..], b"err\n")?;
        let finished = shell(&container, "kill -SEGV $$").await?;
        same("signal", (finished.report.exit_code, finished.report.signal), (None, Some(11)))?;
        let missing = container.guest().run(&Command::new(["/no/such/program"])).await;
        let missing = missing.map_err(|e| e.to_string())?.report;
        same("stage", missing.failure.map(|f| (f.stage, f.errno)), Some((StartStage::Exec, 2)))
    })
    .await
}

pub(super) async fn a_timeout_ends_the_whole_tree(provider: &dyn Provider) -> Outcome {
    with(provider, spec(), async |container| {
        let line = "for i in 1 2 3; do (setsid sleep 4321 & ) ; done; sleep 4321";
        let command = Command { timeout: Some(Duration::from_millis(500)), ..Command::shell(line) };
        let finished = container.guest().run(&command).await.map_err(|e| e.to_string())?;
        ensure(finished.report.timed_out, || format!("no timeout: {:?}", finished.report))?;
        same("left behind", says(&container, "pgrep -fc '[s]leep 4321'").await?, "0".into())
    })
    .await
}

pub(super) async fn input_reaches_the_command(provider: &dyn Provider) -> Outcome {
    with(provider, spec(), async |container| {
        let guest = container.guest();
        let id = ExecId::random();
        let command = Command { stdin: true, ..Command::new(["wc", "-c"]) };
        let mut events = guest.exec(id, &command).await.map_err(|e| e.to_string())?;
        let chunks = (0..16).map(|_| Bytes::from(vec![b'x'; 10_000]));
        let sent = guest.write_stdin(id, stream::iter(chunks)).await.map_err(|e| e.to_string())?;
        same("sent", sent, 160_000)?;
        let mut printed = Vec::new();
        while let Some(event) = events.next().await.map_err(|e| e.to_string())? {
            if let crate::ExecEvent::Output { data, .. } = event {
                printed.extend_from_slice(&data);
            }
        }
        same("counted", String::from_utf8_lossy(&printed).trim(), "160000")
    })
    .await
}

pub(super) async fn a_terminal_is_one_and_changes_its_size(provider: &dyn Provider) -> Outcome {
    with(provider, spec(), async |container| {
        let guest = container.guest();
        let (id, size) = (ExecId::random(), TerminalSize { rows: 30, columns: 100 });
        let line = "test -t 0 && test -t 1 && test -t 2 && stty size; read x; stty size; echo got-$x";
        let command = Command { terminal: Some(size), ..Command::shell(line) };
        let mut events = guest.exec(id, &command).await.map_err(|e| e.to_string())?;
        let mut printed = String::new();
        let mut asked = false;
        while let Some(event) = events.next().await.map_err(|e| e.to_string())? {
            if let crate::ExecEvent::Output { data, .. } = event {
                printed.push_str(&String::from_utf8_lossy(&data));
            }
            if printed.contains("30 100") && !asked {
                asked = true;
                let smaller = TerminalSize { rows: 3, columns: 40 };
                guest.resize(id, smaller).await.map_err(|e| e.to_string())?;
                let typed = stream::iter([Bytes::from_static(b"it\n")]);
                guest.add_stdin(id, typed).await.map_err(|e| e.to_string())?;
            }
        }
        ensure(printed.contains("3 40\r\ngot-it\r\n"), || format!("the terminal shows {printed:?}"))
    })
    .await
}

pub(super) async fn the_environment_is_the_specs_and_the_commands(provider: &dyn Provider) -> Outcome {
    let environment = [("A".to_string(), "spec".to_string()), ("B".to_string(), "spec".to_string())].into();
    with(provider, ContainerSpec { environment, ..spec() }, async |container| {
        let environment = [("B".to_string(), "command".to_string())].into();
        let command = Command {
            environment,
            working_directory: "/tmp".into(),
            ..Command::shell("echo $A $B $HOME $PWD; env | grep -ci atoll")
        };
        let finished = container.guest().run(&command).await.map_err(|e| e.to_string())?;
        let said = String::from_utf8_lossy(&finished.stdout).into_owned();
        same("variables", said.as_str(), "spec command /home/user /tmp\n0\n")
    })
    .await
}

pub(super) async fn files_go_in_and_come_out(provider: &dyn Provider) -> Outcome {
    with(provider, spec(), async |container| {
        let guest = container.guest();
        let body = vec![7u8; 3_000_000];
        let chunks: Vec<_> = body.chunks(100_000).map(|c| Ok(Bytes::copy_from_slice(c))).collect();
        let options = WriteOptions { create_parents: true, ..WriteOptions::default() };
        let entry =
            guest.write_file("a/b", options, stream::iter(chunks)).await.map_err(|e| e.to_string())?;
        same("size", (entry.name.as_str(), entry.size, entry.uid), ("b", 3_000_000, 1000))?;
        let reader = guest.read_file("/workspace/a/b", 10, 100).await.map_err(|e| e.to_string())?;
        same("range", reader.collect(1000).await.map_err(|e| e.to_string())?, vec![7u8; 100])?;
        same("inside", says(&container, "stat -c %s /workspace/a/b").await?, "3000000".into())?;
        let escape = guest.read_file("../etc/passwd", 0, 0).await;
        ensure(escape.is_err(), || "a path with .. was read".into())?;
        guest.remove("a", true).await.map_err(|e| e.to_string())?;
        same("removed", guest.list_dir("/workspace").await.map_err(|e| e.to_string())?.len(), 0)
    })
    .await
}

pub(super) async fn limits_change_while_it_runs(provider: &dyn Provider) -> Outcome {
    with(provider, spec(), async |container| {
        let Some(power) = container.live_limits() else { return Ok(()) };
        let many = "for i in $(seq 60); do sleep 5 & done 2>/dev/null; jobs -p | wc -l; kill $(jobs -p)";
        same("before", says(&container, many).await?, "60".into())?;
        let fewer = Limits { processes: 20, open_files: 64, ..Limits::default() };
        power.set_limits(fewer).await.map_err(|e| format!("set: {e}"))?;
        let after = shell(&container, "ulimit -n; for i in $(seq 60); do sleep 5 & done; wait").await?;
        same("open files", String::from_utf8_lossy(&after.stdout).trim(), "64")?;
        ensure(!after.stderr.is_empty(), || "60 processes fit into a limit of 20".into())?;
        let wrong = power.set_limits(Limits { cpu_millis: 0, ..fewer }).await;
        same("a wrong one", wrong.err().and_then(|e| e.field), Some("cpu_millis".into()))
    })
    .await
}

/// More than a container with a small disk limit can hold.
const MUCH: usize = 20 << 20;

pub(super) async fn a_container_made_ahead_is_handed_over(provider: &dyn Provider) -> Outcome {
    let small = Limits { disk_bytes: 16 << 20, ..Limits::default() };
    let nobodys = ContainerSpec { limits: small, environment: BTreeMap::new(), ..spec() };
    with(provider, nobodys, async |container| {
        let Some(power) = container.claimable() else { return Ok(()) };
        same("current", power.current().await.map_err(|e| format!("current: {e}"))?, true)?;
        let limits = Limits { open_files: 77, ..Limits::default() };
        let environment = BTreeMap::from([("WHOSE".to_owned(), "mine".to_owned())]);
        power.claim(limits, environment).await.map_err(|e| format!("claim: {e}"))?;
        same("environment", says(&container, "echo $WHOSE; ulimit -n").await?, "mine\n77".into())?;
        let written = format!("head -c {MUCH} /dev/zero >f; stat -c %s f; rm f");
        same("disk", says(&container, &written).await?, MUCH.to_string())?;
        let printed = shell(&container, &format!("head -c {MUCH} /dev/zero")).await?;
        same("output", printed.stdout.len(), MUCH)
    })
    .await
}

pub(super) async fn changes_are_told_once(provider: &dyn Provider) -> Outcome {
    with(provider, spec(), async |container| {
        let Some(power) = container.changes() else { return Ok(()) };
        let take = async || {
            let ChangeReport { sequence, changed } = power.take().await.map_err(|e| format!("take: {e}"))?;
            power.acknowledge(sequence);
            ensure(!changed.truncated, || "something was not seen".into())?;
            let mut files: Vec<_> =
                changed.files.into_iter().map(|f| (f.path, f.action, f.size_bytes)).collect();
            files.sort_by(|a, b| a.0.cmp(&b.0));
            Ok::<_, String>(files)
        };
        same("at first", take().await?, vec![])?;
        says(&container, "mkdir d; echo one > d/a; echo two > b; echo gone > c; rm c; touch /tmp/elsewhere")
            .await?;
        let made = vec![("b".to_owned(), FileAction::Created, 4), ("d/a".to_owned(), FileAction::Created, 4)];
        same("made", take().await?, made)?;
        same("told once", take().await?, vec![])?;
        says(&container, "echo more >> b; mv d e; chmod 600 b").await?;
        let moved = vec![
            ("b".to_owned(), FileAction::Modified, 9),
            ("d/a".to_owned(), FileAction::Deleted, 0),
            ("e/a".to_owned(), FileAction::Created, 4),
        ];
        same("moved", take().await?, moved)
    })
    .await
}
