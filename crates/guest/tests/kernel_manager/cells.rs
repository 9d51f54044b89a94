//! Cells: state, order, output, and what is told of them.

use crate::support::*;
use atoll_kernels::{
    Answer, CellEvent, CellStream, Execute, KernelStatus, Language, OutputLimits, RequestKind,
};
use atoll_types::{CellId, ErrorCode, KernelId};
use base64::Engine;
use std::collections::BTreeMap;

#[test]
fn a_cell_has_a_value_and_keeps_its_variables() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    let report = manager.run(cell(kernel, "x = 41\nprint('hello')\nx + 1"));
    assert_eq!(report.result.unwrap()["text/plain"], "42");
    assert_eq!((report.stdout.as_str(), report.execution_count, report.success), ("hello\n", 1, true));
    assert_eq!(manager.value(kernel, "x * 2"), "82");
    let info = manager.info(kernel);
    assert_eq!((info.status, info.execution_count, info.restarts), (KernelStatus::Idle, 2, 0));
    assert!(info.interpreter.starts_with("Python 3."), "{info:?}");
    assert_eq!(manager.value(kernel, "import os; os.getpid()"), info.pid.unwrap().to_string());
    let report = manager.run(cell(kernel, "1 / 0"));
    let error = report.error.unwrap();
    assert_eq!((error.kind.as_str(), report.success, report.state_lost), ("ZeroDivisionError", false, false));
}

#[test]
fn a_thousand_cells_keep_a_counter() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    manager.value(kernel, "n = 0");
    for _ in 0..1000 {
        assert!(manager.run(cell(kernel, "n += 1")).success);
    }
    assert_eq!(manager.value(kernel, "n"), "1000");
    assert_eq!(manager.info(kernel).execution_count, 1002);
}

#[test]
fn cells_of_one_kernel_run_in_the_order_they_came() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    let first = manager.queue(cell(
        kernel,
        "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nsaid = ['first']",
    ));
    let rest: Vec<CellId> =
        (0..20).map(|n| manager.queue(cell(kernel, &format!("said.append({n})")))).collect();
    let info = manager.info(kernel);
    assert!(info.queued > 0 && info.running.is_some() && info.status == KernelStatus::Busy, "{info:?}");
    std::fs::write(manager.folder.path().join("go"), "").unwrap();
    for cell in [vec![first], rest].concat() {
        assert!(manager.end_of(cell).success);
    }
    assert_eq!(manager.value(kernel, "said == ['first'] + list(range(20))"), "True");
}

#[test]
fn kernels_run_side_by_side() {
    let mut manager = KernelManager::start();
    let (one, two) = (manager.python(), manager.python());
    // Each waits for the other's file, so neither ends unless both run.
    let wait = |mine: &str, theirs: &str| {
        format!(
            "import os, time\nopen('{mine}', 'w').close()\nwhile not os.path.exists('{theirs}'): time.sleep(0.01)"
        )
    };
    let cells = [manager.queue(cell(one, &wait("a", "b"))), manager.queue(cell(two, &wait("b", "a")))];
    for cell in cells {
        assert!(manager.end_of(cell).success);
    }
    manager.value(one, "x = 1");
    assert_eq!(manager.run(cell(two, "x")).error.unwrap().kind.as_str(), "NameError");
}

#[test]
fn much_output_is_cut_and_says_so() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    let report = manager.run(cell(kernel, "print('ä' * (2 << 20), end='')"));
    let notice = "\n… [truncated: 2097152 characters, the first 40000 and the last 10000 shown] …\n";
    assert!(report.truncated && report.success);
    assert_eq!(report.stdout, ["ä".repeat(40_000), notice.into(), "ä".repeat(10_000)].concat());
    let limits = OutputLimits { stdout: 5, stderr: 6, result: 7, traceback: 80, ..OutputLimits::default() };
    let code = "import sys\nprint('12345678')\nprint('abcdefghij', file=sys.stderr)\n'0123456789'";
    let report = manager.run(Execute { limits, ..cell(kernel, code) });
    assert_eq!(report.stdout, "1234\n… [truncated: 9 characters, the first 4 and the last 1 shown] …\n\n");
    assert_eq!(report.stderr, "abcde\n… [truncated: 11 characters, the first 5 and the last 1 shown] …\n\n");
    assert_eq!(
        report.result.unwrap()["text/plain"],
        "'01234\n… [truncated: 12 characters, the first 6 and the last 1 shown] …\n'"
    );
    let report = manager.run(Execute { limits, ..cell(kernel, "raise ValueError('x' * 1000)") });
    let error = report.error.unwrap();
    let notice = "\n… [truncated: 1000 characters, the first 64 and the last 16 shown] …\n";
    assert_eq!(error.message, ["x".repeat(64), notice.into(), "x".repeat(16)].concat());
    assert!(report.truncated && error.traceback.unwrap().contains("the first 64 and the last 16 shown]"));
}

#[test]
fn characters_that_are_printed_in_pieces_stay_whole_and_bytes_are_marked() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    let code = "import os, time\nfor b in 'aé漢🙂'.encode():\n    os.write(1, bytes([b])); time.sleep(0.01)";
    let streamed = manager.queue(Execute { stream: true, ..cell(kernel, code) });
    let events = manager.events(streamed);
    let pieces: String = events.iter().filter_map(output).collect();
    assert_eq!(pieces, "aé漢🙂");
    assert_eq!(manager.printed(kernel, "os.write(1, b'\\xff\\x00\\xc3')"), "\u{fffd}\0\u{fffd}");
    let report = manager.run(cell(kernel, "os.write(2, bytes(range(256)) * 100)"));
    assert!(report.success && report.stderr.contains('\u{fffd}') && !report.truncated);
}

fn output(event: &CellEvent) -> Option<&str> {
    match event {
        CellEvent::Output { text, .. } => Some(text),
        _ => None,
    }
}

#[test]
fn displays_come_as_data_and_from_files() {
    let mut manager = KernelManager::start();
    let tmp = manager.folder.path().join("tmp");
    std::fs::create_dir(&tmp).unwrap();
    let variables = BTreeMap::from([("TMPDIR".into(), tmp.to_str().unwrap().into())]);
    let start = atoll_kernels::Start { variables, ..manager.start_of(Language::Bash) };
    let kernel = manager.kernel(RequestKind::Start(start)).unwrap().kernel;
    let code = "head -c 3000 /dev/zero > zeros; display application/octet-stream zeros; echo '<b>é</b>' | display text/html";
    let report = manager.run(cell(kernel, code));
    let zeros = base64::engine::general_purpose::STANDARD.encode([0; 3000]);
    let expected = [("application/octet-stream", zeros.as_str()), ("text/html", "<b>é</b>\n")];
    let shown: Vec<(&str, &str)> =
        report.display_outputs.iter().map(|d| (d.mime.as_str(), d.data.as_str())).collect();
    assert_eq!(shown, expected);
    // Too large, too many, too much in all.
    let limits = OutputLimits { display_bytes: 100, displays: 2, ..OutputLimits::default() };
    let code = "display image/png zeros; for i in 1 2 3; do echo $i | display text/plain; done";
    let report = manager.run(Execute { limits, ..cell(kernel, code) });
    assert!(report.truncated);
    let shown: Vec<&str> = report.display_outputs.iter().map(|d| d.data.as_str()).collect();
    let notice = "[image/png of 3000 bytes left out: at most 100 are shown]";
    assert_eq!(shown, [notice, "1\n", "[2 more displays left out]"]);
    let limits = OutputLimits { displays_bytes: 5000, ..OutputLimits::default() };
    let report =
        manager.run(Execute { limits, ..cell(kernel, "for i in 1 2 3; do display image/png zeros; done") });
    assert_eq!(report.display_outputs[1].data, "[2 more displays left out]");
    let left: Vec<_> = std::fs::read_dir(manager.folder.path().join("tmp")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_stream_tells_everything_as_it_comes() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    let code = "import sys, time\nprint('out')\ntime.sleep(0.2)\nprint('err', file=sys.stderr)\ntime.sleep(0.2)\nprint('more')\n7";
    let streamed = manager.queue(Execute { stream: true, ..cell(kernel, code) });
    let events = manager.events(streamed);
    assert_eq!(events[0], CellEvent::Began { execution_count: 1 });
    let said = |wanted: CellStream| -> String {
        let of = |event: &CellEvent| match event {
            CellEvent::Output { stream, text } if *stream == wanted => Some(text.clone()),
            _ => None,
        };
        events.iter().filter_map(of).collect()
    };
    assert_eq!(
        (said(CellStream::Stdout).as_str(), said(CellStream::Stderr).as_str()),
        ("out\nmore\n", "err\n")
    );
    let Some(CellEvent::Ended(report)) = events.last() else { panic!("{events:?}") };
    assert_eq!((report.stdout.as_str(), report.stderr.as_str()), ("out\nmore\n", "err\n"));
    // One that is not streamed tells its end only.
    let whole = manager.queue(cell(kernel, "print('x')"));
    assert_eq!(manager.events(whole).len(), 1);
    // And can be asked for again, all of it.
    for ask in [
        RequestKind::Follow { cell: streamed, end_only: false },
        RequestKind::Execute(Execute { cell: streamed, stream: true, ..cell(kernel, "") }),
    ] {
        assert_eq!(manager.ask(ask).unwrap(), Answer::Queued { joined: true });
        let again = manager.events(streamed);
        let all = |events: &[CellEvent]| events.iter().filter_map(output).collect::<String>();
        assert_eq!((all(&again), again.last()), (all(&events), events.last()));
    }
    // Or its end alone, by a host that missed some of it.
    let end = RequestKind::Follow { cell: streamed, end_only: true };
    assert_eq!(manager.ask(end).unwrap(), Answer::Queued { joined: true });
    let again = manager.events(streamed);
    assert_eq!((again.len(), again.last()), (1, events.last()));
    let error = manager.ask(RequestKind::Follow { cell: CellId::random(), end_only: false }).unwrap_err();
    assert_eq!((error.code, error.field.as_deref()), (ErrorCode::NotFound, Some("cell")));
}

#[test]
fn a_running_cell_is_followed_from_its_beginning() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    let code = "import os, time\nprint('one')\nopen('begun', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('two')";
    let running = manager.queue(cell(kernel, code));
    let begun = manager.folder.path().join("begun");
    eventually("the cell began", || begun.exists());
    assert_eq!(
        manager.ask(RequestKind::Follow { cell: running, end_only: false }).unwrap(),
        Answer::Queued { joined: true }
    );
    assert_eq!(manager.event(running), CellEvent::Began { execution_count: 1 });
    let mut first = String::new();
    while !first.ends_with('\n') {
        first += output(&manager.event(running)).unwrap();
    }
    assert_eq!(first, "one\n");
    std::fs::write(manager.folder.path().join("go"), "").unwrap();
    let rest = manager.events(running);
    assert_eq!(rest.iter().filter_map(output).collect::<String>(), "two\n");
}

#[test]
fn a_cell_that_is_asked_for_again_runs_once() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    manager.value(kernel, "runs = 0");
    let execute = cell(kernel, "import time; time.sleep(0.3); runs += 1");
    manager.queue(execute.clone());
    for _ in 0..3 {
        assert_eq!(
            manager.ask(RequestKind::Execute(execute.clone())).unwrap(),
            Answer::Queued { joined: true }
        );
    }
    assert!(manager.end_of(execute.cell).success);
    assert_eq!(manager.ask(RequestKind::Execute(execute.clone())).unwrap(), Answer::Queued { joined: true });
    assert!(manager.end_of(execute.cell).success);
    assert_eq!(manager.value(kernel, "runs"), "1");
}

#[test]
fn what_is_printed_between_cells_comes_with_the_next() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    let code = "import threading, os\ndef late():\n    while not os.path.exists('now'): pass\n    os.write(1, b'late ')\n    open('said', 'w').close()\nthreading.Thread(target=late).start()";
    manager.value(kernel, code);
    std::fs::write(manager.folder.path().join("now"), "").unwrap();
    let said = manager.folder.path().join("said");
    eventually("the thread spoke", || said.exists());
    assert_eq!(manager.printed(kernel, "print('next')"), "late next\n");
}

#[test]
fn the_default_kernel_of_a_language_is_one() {
    let mut manager = KernelManager::start();
    let start = |id| atoll_kernels::Start { kernel: id, default: true, ..manager.start_of(Language::Bash) };
    let [one, two] = [KernelId::random(), KernelId::random()].map(start);
    let tags = [manager.say(RequestKind::Start(one.clone())), manager.say(RequestKind::Start(two))];
    for tag in tags {
        let Answer::Kernel(info) = manager.answer(tag).unwrap() else { panic!() };
        assert_eq!((info.kernel, info.default, info.status), (one.kernel, true, KernelStatus::Idle));
    }
    assert_eq!(manager.kernel(RequestKind::Start(one.clone())).unwrap().kernel, one.kernel);
    assert_eq!(manager.list().len(), 1);
}

#[test]
fn variables_and_folder_are_the_kernels_own() {
    let mut manager = KernelManager::start();
    std::fs::create_dir(manager.folder.path().join("sub")).unwrap();
    let mut start = manager.start_of(Language::Python);
    start.working_directory += "/sub";
    start.variables = BTreeMap::from([("OWN".into(), "mine".into())]);
    let kernel = manager.kernel(RequestKind::Start(start.clone())).unwrap().kernel;
    let all = "import os; [os.environ.get(n) for n in ('SANDBOX', 'OWN', 'NEW', 'ATOLL_KERNEL')]";
    assert_eq!(manager.value(kernel, all), format!("['yes', 'mine', None, '{kernel}']"));
    assert!(manager.value(kernel, "os.getcwd()").ends_with("/sub'"));
    let configure = |pairs: &[(&str, &str)]| RequestKind::Configure {
        variables: pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
    };
    assert_eq!(
        manager.ask(configure(&[("NEW", "1"), ("OWN", "theirs"), ("SANDBOX", "no")])).unwrap(),
        Answer::Done
    );
    assert_eq!(manager.value(kernel, all), format!("['no', 'mine', '1', '{kernel}']"));
    let later = manager.begin(Language::Bash);
    assert_eq!(manager.printed(later, "echo $NEW $SANDBOX $OWN"), "1 no theirs\n");
    assert_eq!(manager.ask(configure(&[])).unwrap(), Answer::Done);
    assert_eq!(manager.value(kernel, all), format!("['yes', 'mine', None, '{kernel}']"));
    assert_eq!(manager.printed(later, "echo ${NEW-none} $SANDBOX ${OWN-none}"), "none yes none\n");
    for (bad, field) in [
        (atoll_kernels::Start { working_directory: "/no/such".into(), ..start.clone() }, "working_directory"),
        (
            atoll_kernels::Start { variables: BTreeMap::from([("A=".into(), String::new())]), ..start },
            "variables",
        ),
    ] {
        let bad = atoll_kernels::Start { kernel: KernelId::random(), ..bad };
        assert_eq!(manager.ask(RequestKind::Start(bad)).unwrap_err().field.as_deref(), Some(field));
    }
}

#[test]
fn code_of_any_size_up_to_the_longest_runs() {
    let mut manager = KernelManager::start();
    for (language, code) in [(Language::Python, "len('"), (Language::Bash, "x='")] {
        let kernel = manager.begin(language);
        let end = if language == Language::Python { "')" } else { "'; echo ${#x}" };
        let filler = "é".repeat((atoll_kernels::LONGEST_CODE - code.len() - end.len()) / 2);
        let report = manager.run(cell(kernel, &format!("{code}{filler}{end}")));
        assert!(report.success, "{:?}", report.error);
        let said = report.result.map_or(report.stdout, |forms| forms["text/plain"].clone());
        assert_eq!(said.trim(), filler.chars().count().to_string());
        let long = cell(kernel, &" ".repeat(atoll_kernels::LONGEST_CODE + 1));
        assert_eq!(manager.ask(RequestKind::Execute(long)).unwrap_err().field.as_deref(), Some("code"));
    }
    let unknown = manager.ask(RequestKind::Execute(cell(KernelId::random(), "1"))).unwrap_err();
    assert_eq!((unknown.code, unknown.field.as_deref()), (ErrorCode::NotFound, Some("kernel")));
}
