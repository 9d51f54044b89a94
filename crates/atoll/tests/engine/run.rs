//! `atoll run`, as a person or a script uses it.

use super::fixture::{all_processes, assert_nothing_left, eventually, leftovers_of};
use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

fn atoll(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_atoll"));
    command.arg("run").arg("--data-dir").arg(data).args(arguments).stdin(Stdio::null());
    command
}

fn output(data: &Path, arguments: &[&str]) -> Output {
    atoll(data, arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_first_line_of_the_readme() {
    let data = tempfile::tempdir().unwrap();
    let ran = output(data.path(), &["--", "python3", "-c", "print(6*7)"]);
    assert_eq!(
        (ran.status.code(), text(&ran.stdout).as_str(), text(&ran.stderr).as_str()),
        (Some(0), "42\n", "")
    );
    assert_nothing_left(data.path());
}

#[test]
fn exit_codes_are_the_commands() {
    let data = tempfile::tempdir().unwrap();
    let code = |arguments: &[&str]| output(data.path(), arguments).status.code();
    assert_eq!(code(&["--", "sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["--", "sh", "-c", "kill -TERM $$"]), Some(143));
    assert_eq!(code(&["--timeout", "300ms", "--", "sleep", "1000"]), Some(124));
    let missing = output(data.path(), &["--", "no-such-program"]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(text(&missing.stderr).contains("no-such-program"), "{}", text(&missing.stderr));
    assert_eq!(code(&["--", "/etc"]), Some(126));
    let greedy = output(data.path(), &["--memory", "64m", "--", "python3", "-c", "x = bytearray(1 << 30)"]);
    // Refused by malloc or killed by the kernel: either way it failed and said why.
    assert!(matches!(greedy.status.code(), Some(1 | 137)), "{greedy:?}");
    assert!(!greedy.stderr.is_empty());
    assert_nothing_left(data.path());
}

#[test]
fn mistakes_are_explained() {
    let data = tempfile::tempdir().unwrap();
    for (arguments, word) in [
        (&["--profile", "nosuch", "--", "true"][..], "default, tools, root, build"),
        (&["--memory", "1k", "--", "true"][..], "memory_bytes"),
        (&["--memory", "much", "--", "true"][..], "much"),
        (&["--runtime", "nosuch", "--", "true"][..], "nosuch"),
        (&["--runtime", "/bin/sh", "--", "true"][..], "not a path"),
        (&["-e", "NOT_SET_ANYWHERE", "--", "true"][..], "NOT_SET_ANYWHERE"),
        (&["-w", "/nowhere", "--", "true"][..], "/nowhere"),
        (&["-u", "root", "--", "true"][..], "root"),
    ] {
        let ran = output(data.path(), arguments);
        assert!(matches!(ran.status.code(), Some(2 | 125)), "{arguments:?}: {ran:?}");
        assert!(text(&ran.stderr).contains(word), "{arguments:?}: {}", text(&ran.stderr));
    }
    // Only then may the folder go: a launcher that is still ending would write there.
    assert_nothing_left(data.path());
}

#[test]
fn input_output_and_environment_pass_through() {
    let data = tempfile::tempdir().unwrap();
    let mut child = atoll(data.path(), &["--", "sha256sum"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || (0..400).try_for_each(|_| stdin.write_all(&[b'a'; 50_000])));
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    writer.join().unwrap().unwrap();
    assert!(child.wait().unwrap().success());
    let expected =
        Command::new("sh").args(["-c", "head -c 20000000 /dev/zero | tr '\\0' a | sha256sum"]).output();
    assert_eq!(said, text(&expected.unwrap().stdout));

    let ran =
        output(data.path(), &["-e", "A=b c", "-w", "/tmp", "--", "sh", "-c", "echo $A; pwd; echo oops >&2"]);
    assert_eq!((text(&ran.stdout).as_str(), text(&ran.stderr).as_str()), ("b c\n/tmp\n", "oops\n"));
    assert_nothing_left(data.path());
}

#[test]
fn a_gigabyte_passes_and_a_closed_pipe_ends_it() {
    let data = tempfile::tempdir().unwrap();
    let mut child = atoll(data.path(), &["--memory", "64m", "--", "head", "-c", "1G", "/dev/zero"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let passed = std::io::copy(&mut child.stdout.take().unwrap(), &mut std::io::sink()).unwrap();
    assert_eq!((passed, child.wait().unwrap().code()), (1 << 30, Some(0)));
    let mut child = atoll(data.path(), &["--", "yes"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut some = [0; 100];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(141), "as with SIGPIPE");
    assert_nothing_left(data.path());
}

fn send(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn signals_reach_the_command() {
    let data = tempfile::tempdir().unwrap();
    let line =
        "trap 'echo got it; exit 5' INT; trap 'echo usr' USR1; echo ready; while :; do sleep 0.1; done";
    let mut child = atoll(data.path(), &["--", "bash", "-c", line]).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut ready = [0; 6];
    stdout.read_exact(&mut ready).unwrap();
    send(&child, "-USR1");
    let mut usr = [0; 4];
    stdout.read_exact(&mut usr).unwrap();
    send(&child, "-INT");
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!((&usr[..], rest.as_str(), child.wait().unwrap().code()), (&b"usr\n"[..], "got it\n", Some(5)));
    assert_nothing_left(data.path());
}

#[test]
fn killing_it_leaves_nothing() {
    let data = tempfile::tempdir().unwrap();
    // No other test's, on a machine where several run.
    let seconds = format!("98765{}", std::process::id());
    let mut child = atoll(data.path(), &["--", "sh", "-c", &format!("echo up; sleep {seconds}")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 3]).unwrap();
    send(&child, "-KILL");
    child.wait().unwrap();
    eventually("the end of its processes", || {
        all_processes()
            .iter()
            .all(|p| !fs::read_to_string(format!("/proc/{p}/cmdline")).unwrap_or_default().contains(&seconds))
    });
    assert_nothing_left(data.path());
}

#[test]
fn several_at_once_share_one_launcher() {
    let data = tempfile::tempdir().unwrap();
    let children: Vec<Child> = (0..6)
        .map(|n| {
            let line = format!("sleep 0.3; echo {n}");
            atoll(data.path(), &["--", "sh", "-c", &line])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for (n, child) in children.into_iter().enumerate() {
        let ran = child.wait_with_output().unwrap();
        assert_eq!((text(&ran.stdout), text(&ran.stderr)), (format!("{n}\n"), String::new()));
    }
    // And one after the other, each meeting the launcher of the last as it ends.
    for n in 0..10 {
        let ran = output(data.path(), &["--", "echo", "again"]);
        assert_eq!((n, text(&ran.stdout).as_str(), text(&ran.stderr).as_str()), (n, "again\n", ""));
    }
    assert_nothing_left(data.path());
}

/// Answers every request with one word, beside the machine's usual loopback address. Ends with the test.
fn serves_a_word() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            let _ =
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\nwithin");
        }
    });
    port
}

#[test]
fn only_what_a_preset_lists_is_reached() {
    let data = tempfile::tempdir().unwrap();
    let port = serves_a_word();
    let listed = format!(r#"{{"mine":["127.0.0.2:{port}"]}}"#);
    let asks = |arguments: &[&str]| {
        let line = format!("curl -s http://127.0.0.2:{port}/");
        let all: Vec<&str> = arguments.iter().copied().chain(["--", "sh", "-c", &line]).collect();
        let mut command = atoll(data.path(), &all);
        command.env("ATOLL_EGRESS_PRESETS", &listed).env("ATOLL_EGRESS_ASK_INDEXES", "false");
        text(&command.output().unwrap().stdout)
    };
    assert_eq!(asks(&["--preset", "mine"]), "within");
    assert!(!asks(&[]).contains("within"));
    let everything = asks(&["--network"]);
    assert!(everything.contains("127.0.0.2") && !everything.contains("within"), "{everything}");
    let wrong = output(data.path(), &["--preset", "pyhton", "--", "true"]);
    assert!(wrong.status.code() == Some(125) && text(&wrong.stderr).contains("pyhton"), "{wrong:?}");
    assert_nothing_left(data.path());
}

/// What is left of the launchers that runs with folders have for themselves.
fn runs(data: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(data.join("run")).into_iter().flatten().flatten().map(|entry| entry.path());
    found.filter(|path| path.is_dir()).collect()
}

#[test]
fn a_folder_of_the_machine_is_the_callers_inside_and_outside() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (own, others) = (folder.path().join("own"), folder.path().join("others"));
    fs::create_dir(&own).unwrap();
    fs::write(own.join("read"), "of the machine\n").unwrap();
    fs::write(&others, "x").unwrap();
    chown(&others, Some(4321), Some(4321)).unwrap();
    fs::set_permissions(&others, fs::Permissions::from_mode(0o600)).unwrap();
    symlink("/etc/hostname", own.join("link")).unwrap();
    let top = folder.path().display();
    let mounts = [
        format!("{top}/own:/workspace/in"),
        format!("{top}:/deep/below/all:ro"),
        format!("{top}/own:/mnt/x"),
    ];
    let line = "set -e; cat in/read; stat -c '%u %g' in in/read; mkdir in/made; echo written >in/made/file
        cat in/link; stat -c %u /deep/below/all/others; ! cat /deep/below/all/others 2>/dev/null
        cp /bin/true in/set-uid; chmod 4755 in/set-uid; cat /mnt/x/made/file; ls /mnt /usr/bin/env
        touch /deep/below/all/new 2>&1 || true; touch /deep/x 2>&1 || true";
    let arguments: Vec<&str> =
        mounts.iter().flat_map(|mount| ["--mount", mount]).chain(["--", "sh", "-c", line]).collect();
    let ran = output(data.path(), &arguments);
    let said = text(&ran.stdout);
    assert_eq!(ran.status.code(), Some(0), "{said}{}", text(&ran.stderr));
    let lines: Vec<&str> = said.lines().collect();
    let expected = [
        "of the machine",
        "1000 1000",
        "1000 1000",
        "sandbox",
        "65534",
        "written",
        "/usr/bin/env",
        "",
        "/mnt:",
        "x",
    ];
    assert_eq!(lines[..expected.len()], expected, "{said}");
    assert!(lines[expected.len()..].iter().all(|line| line.contains("Read-only file system")), "{said}");
    let made = fs::metadata(own.join("made/file")).unwrap();
    assert_eq!((made.uid(), made.gid()), (0, 0));
    assert!(!folder.path().join("new").exists());
    assert_eq!(runs(data.path()), Vec::<PathBuf>::new());
    assert_nothing_left(data.path());
}

#[test]
fn every_profile_can_have_a_folder_and_several_runs_at_once() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mount = format!("{}:/data", folder.path().display());
    let children = ["default", "tools", "root"].map(|profile| {
        let line = format!("echo {profile} >/data/{profile}; stat -c %u /data");
        let arguments = ["--profile", profile, "--mount", &mount, "--", "sh", "-c", &line];
        (
            profile,
            atoll(data.path(), &arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(),
        )
    });
    for ((profile, child), uid) in children.into_iter().zip(["1000\n", "65532\n", "0\n"]) {
        let ran = child.wait_with_output().unwrap();
        assert_eq!((text(&ran.stdout).as_str(), text(&ran.stderr).as_str()), (uid, ""));
        assert_eq!(fs::metadata(folder.path().join(profile)).unwrap().uid(), 0);
    }
    assert_eq!(runs(data.path()), Vec::<PathBuf>::new());
    assert_nothing_left(data.path());
}

#[test]
fn a_folder_that_cannot_be_mounted_is_explained() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let (folder, file) = (folder.path().display(), file.display());
    for (mount, word) in [
        ("/no/such/folder:/data".to_owned(), "/no/such/folder"),
        (format!("{file}:/data"), "it is not a folder"),
        (format!("{folder}:data"), "PATH is absolute"),
        (format!("{folder}"), "DIR:PATH"),
        (format!("{folder}:/proc"), "/proc"),
        (format!("{folder}:/sys/x"), "/sys/x"),
        (format!("{folder}:/dev"), "/dev"),
        (format!("{folder}:/mnt/../etc"), ".."),
        (format!("{folder}:/etc/passwd/x"), "/etc/passwd/x"),
    ] {
        let ran = output(data.path(), &["--mount", &mount, "--", "true"]);
        assert!(matches!(ran.status.code(), Some(2 | 125)), "{mount}: {ran:?}");
        assert!(text(&ran.stderr).contains(word), "{mount}: {}", text(&ran.stderr));
    }
    let hidden =
        output(data.path(), &["--profile", "tools", "--mount", &format!("{folder}:/tmp/x"), "--", "true"]);
    assert!(text(&hidden.stderr).contains("in memory"), "{hidden:?}");
    let gvisor =
        output(data.path(), &["--runtime", "runsc", "--mount", &format!("{folder}:/data"), "--", "true"]);
    assert!(text(&gvisor.stderr).contains("a kernel of its own"), "{gvisor:?}");
    assert_eq!(runs(data.path()), Vec::<PathBuf>::new());
    assert_nothing_left(data.path());
}

/// The program beside a launcher that first swaps a part of the path: after the caller's check, before the use.
#[test]
fn a_link_that_is_put_into_the_path_after_the_check_is_refused() {
    let program = Path::new(env!("CARGO_BIN_EXE_atoll"));
    let beside = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
    fs::hard_link(program, beside.path().join("atoll")).unwrap();
    let (launcher, wrapper) = (program.with_file_name("atoll-launch"), beside.path().join("atoll-launch"));
    let (data, folder, other) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir(other.path().join("b")).unwrap();
    for (name, part) in [("last", "a/b"), ("middle", "a")] {
        let top = folder.path().join(name);
        fs::create_dir_all(top.join("a/b")).unwrap();
        let (swapped, other) = (top.join(part), other.path().display());
        let (from, launcher) = (swapped.display(), launcher.display());
        let script =
            format!("#!/bin/sh -e\nmv {from} {from}.before\nln -s {other} {from}\nexec {launcher} \"$@\"\n");
        fs::write(&wrapper, script).unwrap();
        fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
        let mount = format!("{}:/data", top.join("a/b").display());
        let mut command = Command::new(beside.path().join("atoll"));
        command.arg("run").arg("--data-dir").arg(data.path()).stdin(Stdio::null());
        let ran = command.args(["--mount", &mount, "--", "echo", "started"]).output().unwrap();
        assert!(swapped.is_symlink(), "{name}: {ran:?}");
        assert_eq!((ran.status.code(), text(&ran.stdout).as_str()), (Some(125), ""), "{name}: {ran:?}");
        assert!(text(&ran.stderr).contains("a symbolic link was put into its path"), "{name}: {ran:?}");
    }
    assert_eq!(runs(data.path()), Vec::<PathBuf>::new());
    assert_nothing_left(data.path());
}

#[test]
fn what_a_killed_run_with_a_folder_left_is_ended_by_the_next() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mount = format!("{}:/data", folder.path().display());
    let mut child = atoll(data.path(), &["--mount", &mount, "--", "sh", "-c", "echo up; sleep 98764"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 3]).unwrap();
    let left = runs(data.path());
    assert_eq!(left.len(), 1);
    send(&child, "-KILL");
    child.wait().unwrap();
    eventually("the end of its launcher", || leftovers_of(&left[0].canonicalize().unwrap()).is_empty());
    assert_eq!(output(data.path(), &["--mount", &mount, "--", "true"]).status.code(), Some(0));
    assert_eq!(runs(data.path()), Vec::<PathBuf>::new());
    assert_nothing_left(data.path());
}
