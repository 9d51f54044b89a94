//! Interpreters and cells that do what they should not: the kernel manager stays as it is.

use crate::support::*;
use atoll_kernels::{Answer, CellErrorKind, Execute, Fork, KernelStatus, OutputLimits, RequestKind};
use atoll_types::{CheckpointId, ErrorCode, KernelId};
use std::fs;

/// A driver that is told by each cell what to say: `say` writes to the events, `id` is the request's.
const FAKE: &str = r#"#!/usr/bin/python3
import json, os, time, sys
requests = os.fdopen(3, 'rb')
requests.read(int(requests.readline()))
def say(data):
    while data: data = data[os.write(4, data):]
def done(number, **more):
    say(json.dumps({'event': 'done', 'id': number, 'result': {'text/plain': 'ok'}, 'error': None, **more}).encode() + b'\n')
if os.path.exists('early'): exec(open('early').read())
say(b'{"event":"ready","interpreter":"Fake\\u0001 1.0"}\n')
for line in requests:
    request = json.loads(line)
    id = request.get('id')
    exec(request.get('code') or open(request['op'] + '.py').read() if request['op'] != 'variables' else '')
"#;

fn fake() -> (KernelManager, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    program(folder.path(), "python3", FAKE);
    (KernelManager::start_with(folder.path().to_str().unwrap()), folder)
}

/// The most memory that the kernel manager ever had, in MiB.
fn peak(manager: &KernelManager) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", manager.pid())).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024
}

#[test]
fn a_driver_that_says_nonsense_is_passed_over() {
    let (mut manager, _programs) = fake();
    let kernel = manager.python();
    assert_eq!(manager.info(kernel).interpreter, "Fake 1.0");
    let nonsense = [
        r#"say(b'\n\n[]\n{}\nnull\n\xff\x00\n{"event":7}\n{"event":"done"}\n')"#,
        // Other numbers than the one that was asked for, and things that nobody asked for.
        "done(0); done(id + 1); done(id - 1); done(2**64); done(-1)",
        r#"say(b'{"event":"ready","interpreter":"again","pid":1}\n{"event":"restored","pid":1,"checkpoint":1}\n')"#,
        r#"say(b'{"event":"checkpoint","id":%d,"pid":1}\n{"event":"forked","id":%d,"pid":1}\n' % (id, id))"#,
        r#"say(b'{"event":"display","type":"a\\nb","data":"x"}\n{"event":"display","type":"image/png"}\n')"#,
        "say(b'{\"event\":\"done\",\"id\":%d,\"result\":{%s}}\\n' % (id, b','.join(b'\"a/%d\":\"\"' % n for n in range(99))))",
        // A flood.
        "for _ in range(200): say(b'x\\n' * 10000)",
        "for _ in range(200): say(b'{\"event\":\"display\",\"type\":\"text/plain\",\"data\":\"' + b'y' * 100000 + b'\"}\\n')",
    ];
    for code in nonsense {
        let report = manager.run(cell(kernel, &format!("{code}\ndone(id)")));
        assert!(report.success && report.result.unwrap()["text/plain"] == "ok", "{code}");
    }
    // A file that is none, or none that may be read, is told as left out; nobody waits for a pipe.
    let code = "os.mkfifo('pipe'); os.symlink('/etc/passwd', 'link')\n\
        for name in ('pipe', 'link', '/dev/zero', '/proc/self/mem', '.', 'missing', ''):\n\
        \x20   say(json.dumps({'event': 'display', 'type': 'text/plain', 'file': name}).encode() + b'\\n')\n\
        done(id)";
    let report = manager.run(cell(kernel, code));
    assert!(
        report.success && report.display_outputs.iter().all(|d| d.data.contains("left out")),
        "{report:?}"
    );
    // Half a line and then its end.
    let report = manager.run(cell(kernel, "say(b'{\"event\":\"do'); os._exit(0)"));
    assert_eq!(report.error.unwrap().kind, CellErrorKind::KernelDied);
    assert!(peak(&manager) < 100, "{} MiB", peak(&manager));
}

#[test]
fn a_line_without_an_end_is_never_held() {
    let (mut manager, _programs) = fake();
    let kernel = manager.python();
    let report =
        manager.run(cell(kernel, "for _ in range(300): say(b'x' * (1 << 20))\nsay(b'\\n'); done(id)"));
    assert!(report.success, "{report:?}");
    // And the longest that is one: of so large a value the rest is left out.
    let big = "say(b'{\"event\":\"done\",\"id\":%d,\"result\":{\"text/plain\":\"' % id + b'z' * (15 << 20) + b'\"}}\\n')";
    let report = manager.run(cell(kernel, big));
    let text = report.result.unwrap()["text/plain"].clone();
    assert!(report.truncated && text.contains("… [truncated: 15728640 characters, "));
    assert!(peak(&manager) < 150, "{} MiB", peak(&manager));
    // As much as is said to be allowed fits into one line.
    let limits = OutputLimits {
        stdout: u32::MAX,
        stderr: u32::MAX,
        result: u32::MAX,
        traceback: u32::MAX,
        display_bytes: u32::MAX,
        displays_bytes: u32::MAX,
        displays: u32::MAX,
    };
    let code = "text = '\\x01' * 400_000\nos.write(1, text[:60000].encode()); os.write(2, text[:60000].encode())\n\
        for _ in range(1100): say(b'{\"event\":\"display\",\"type\":\"text/plain\",\"data\":\"' + b'd' * 20000 + b'\"}\\n')\n\
        say(json.dumps({'event': 'done', 'id': id, 'error': {'type': text, 'message': text, 'traceback': text}}).encode() + b'\\n')";
    let report = manager.run(Execute { limits, ..cell(kernel, code) });
    let line = serde_json::to_vec(&report).unwrap().len();
    assert!(report.truncated && line < atoll_kernels::LONGEST_LINE && line > 12 << 20, "{line}");
}

#[test]
fn a_driver_that_closes_its_pipes_is_given_up() {
    let (mut manager, _programs) = fake();
    let kernel = manager.python();
    let report = manager.run(cell(kernel, "os.close(1); os.close(2); done(id)"));
    assert!(report.success);
    let report = manager.run(cell(kernel, "os.close(4); time.sleep(1000)"));
    let error = report.error.unwrap();
    assert!(
        error.kind == CellErrorKind::KernelDied && error.message.contains("closed its pipe"),
        "{error:?}"
    );
    assert_eq!(manager.info(kernel).status, KernelStatus::Dead);
    assert!(manager.kernel(RequestKind::Restart { kernel }).is_ok());
    // One that reads nothing any more, though much is sent to it.
    let report = manager.run(cell(kernel, "done(id); time.sleep(1000)"));
    assert!(report.success);
    let deaf = Execute { timeout_ms: 200, ..cell(kernel, &format!("#{}", "x".repeat(1 << 19))) };
    let report = manager.run(deaf);
    assert!(!report.success && report.state_lost, "{report:?}");
}

#[test]
fn one_that_never_begins_is_no_kernel() {
    let (mut manager, _programs) = fake();
    let early = manager.folder.path().join("early");
    for (code, words) in [
        (
            "print('no such module', file=sys.stderr, flush=True); sys.exit(4)",
            ["exited with status 4", "no such module"],
        ),
        ("os.kill(os.getpid(), 11)", ["segmentation fault", "did not start"]),
        ("os.close(4); time.sleep(1000)", ["closed its pipe", "did not start"]),
    ] {
        fs::write(&early, code).unwrap();
        let start = manager.start_of(atoll_kernels::Language::Python);
        let error = manager.ask(RequestKind::Start(start)).unwrap_err();
        assert_eq!(error.code, ErrorCode::ExecFailed);
        assert!(words.iter().all(|word| error.message.contains(word)), "{error:?}");
        assert_eq!(manager.list(), []);
    }
    // Nor one that is deleted before.
    fs::write(&early, "time.sleep(1000)").unwrap();
    let start = manager.start_of(atoll_kernels::Language::Python);
    let kernel = start.kernel;
    let tag = manager.say(RequestKind::Start(start));
    assert_eq!(manager.ask(RequestKind::Delete { kernel }).unwrap(), Answer::Done);
    assert_eq!(manager.answer(tag).unwrap_err().code, ErrorCode::NotFound);
}

#[test]
fn forged_copies_harm_nobody() {
    let (mut manager, _programs) = fake();
    let kernel = manager.python();
    let folder = manager.folder.path().to_owned();
    let mut other = std::process::Command::new("/bin/sleep").arg("1000").spawn().unwrap();
    let ask = || RequestKind::Checkpoint { kernel, checkpoint: CheckpointId::random(), name: String::new() };
    // The kernel manager itself, this test, PID 1, no process, the interpreter itself.
    for pid in [
        manager.pid().to_string(),
        "1".into(),
        "-1".into(),
        "0".into(),
        "99999999".into(),
        "os.getpid()".into(),
    ] {
        let event =
            format!("say(json.dumps({{'event': 'checkpoint', 'id': id, 'pid': {pid}}}).encode() + b'\\n')");
        fs::write(folder.join("checkpoint.py"), event).unwrap();
        assert_eq!(manager.ask(ask()).unwrap_err().code, ErrorCode::Conflict, "{pid}");
        let event =
            format!("say(json.dumps({{'event': 'forked', 'id': id, 'pid': {pid}}}).encode() + b'\\n')");
        fs::write(folder.join("fork.py"), event).unwrap();
        let fork = RequestKind::Fork(Fork { kernel, checkpoint: None, new: KernelId::random() });
        let error = manager.ask(fork).unwrap_err();
        assert!(matches!(error.code, ErrorCode::Conflict | ErrorCode::ExecFailed), "{error:?}");
    }
    let event = "say(json.dumps({'event': 'checkpoint', 'id': id, 'error': 'no\\nway'}).encode() + b'\\n')";
    fs::write(folder.join("checkpoint.py"), event).unwrap();
    assert_eq!(manager.ask(ask()).unwrap_err().message, "the interpreter could not be checkpointed: noway");
    assert!(other.try_wait().unwrap().is_none());
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(manager.run(cell(kernel, "done(id)")).success);
}

#[test]
fn a_quarter_of_a_gibibyte_is_counted_and_not_held() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    let report = manager.run(cell(kernel, "import os\nfor _ in range(256): os.write(1, b'x' * (1 << 20))"));
    assert!(report.stdout.contains("… [truncated: 268435456 characters, "), "{report:?}");
    assert!(peak(&manager) < 64, "{} MiB", peak(&manager));
}

#[test]
fn a_host_that_does_not_read_makes_cells_wait_and_nothing_grow() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    let tags = manager.while_deaf(|manager| {
        let code = "class H:\n    def _repr_html_(self): return 'x' * (5 << 20)\ndisplay(H()); display(H())";
        let cells: Vec<_> = (0..30).map(|_| cell(kernel, code)).collect();
        for execute in &cells {
            manager.say(RequestKind::Execute(execute.clone()));
        }
        std::thread::sleep(std::time::Duration::from_secs(2));
        cells
    });
    for execute in tags {
        assert!(manager.end_of(execute.cell).success);
    }
    assert!(peak(&manager) < 200, "{} MiB", peak(&manager));
}

#[test]
fn requests_that_are_none_are_passed_over() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    manager.raw(b"\n{}\nnonsense\n\xff\xfe\n{\"tag\":\"x\",\"ask\":\"list\"}\n");
    for _ in 0..20 {
        manager.raw(&[b'a'; 1 << 20]);
    }
    manager.raw(b"\n");
    assert_eq!(manager.value(kernel, "1 + 1"), "2");
    assert!(peak(&manager) < 100, "{} MiB", peak(&manager));
}
