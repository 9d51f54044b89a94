//! How cells, interpreters and kernels end.

use crate::support::*;
use atoll_kernels::{Answer, CellErrorKind, Execute, KernelStatus, Language, RequestKind};
use atoll_types::{CellId, DeathKind, ErrorCode, KernelId};

const ENDLESS: &str = "open('begun', 'w').close()\nwhile True: pass";
/// One that no interrupt reaches.
const STUBBORN: &str = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nopen('begun', 'w').close()\nwhile True: pass";

fn begun(manager: &KernelManager) {
    let file = manager.folder.path().join("begun");
    eventually("the cell began", || file.exists());
    std::fs::remove_file(file).unwrap();
}

fn interrupt(manager: &mut KernelManager, kernel: KernelId, cell: Option<CellId>) {
    assert_eq!(manager.ask(RequestKind::Interrupt { kernel, cell }).unwrap(), Answer::Done);
}

#[test]
fn an_interrupt_ends_an_endless_loop_and_keeps_the_variables() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    manager.value(kernel, "x = 7");
    let endless = manager.queue(cell(kernel, ENDLESS));
    let behind = manager.queue(cell(kernel, "x + 1"));
    begun(&manager);
    interrupt(&mut manager, kernel, None);
    let report = manager.end_of(endless);
    assert!(report.interrupted && !report.success && !report.state_lost && !report.timed_out, "{report:?}");
    assert_eq!(report.error.unwrap().kind, CellErrorKind::Interrupted);
    assert_eq!(manager.end_of(behind).result.unwrap()["text/plain"], "8");
    // Nothing runs: nothing happens.
    interrupt(&mut manager, kernel, None);
    interrupt(&mut manager, kernel, Some(behind));
    assert_eq!(manager.value(kernel, "x"), "7");
    let error = manager.ask(RequestKind::Interrupt { kernel, cell: Some(CellId::random()) }).unwrap_err();
    assert_eq!((error.code, error.field.as_deref()), (ErrorCode::NotFound, Some("cell")));
}

#[test]
fn a_waiting_cell_can_be_interrupted_alone() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    let first = manager.queue(cell(
        kernel,
        "import os, time\nopen('begun', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)",
    ));
    let [second, third] = [(); 2].map(|()| manager.queue(cell(kernel, "'ran'")));
    begun(&manager);
    interrupt(&mut manager, kernel, Some(second));
    let report = manager.end_of(second);
    assert!(report.interrupted && report.execution_count == 0 && !report.state_lost, "{report:?}");
    std::fs::write(manager.folder.path().join("go"), "").unwrap();
    assert!(manager.end_of(first).success && manager.end_of(third).success);
    assert_eq!(manager.info(kernel).execution_count, 2);
}

#[test]
fn a_timeout_interrupts_and_keeps_the_variables() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    manager.value(kernel, "x = 7");
    let report = manager.run(Execute { timeout_ms: 300, ..cell(kernel, "print('a')\nwhile True: pass") });
    assert!(report.timed_out && !report.interrupted && !report.state_lost, "{report:?}");
    let error = report.error.unwrap();
    assert_eq!(error.kind, CellErrorKind::Timeout);
    assert!(error.message.starts_with("the cell ran longer than 0.3 s"), "{error:?}");
    assert_eq!((report.stdout.as_str(), manager.value(kernel, "x").as_str()), ("a\n", "7"));
}

#[test]
fn a_cell_that_will_not_be_interrupted_is_killed_and_the_kernel_begins_anew() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    manager.value(kernel, "x = 7");
    let before = manager.info(kernel).pid;
    // Long enough to begin.
    let stubborn = manager.queue(Execute { timeout_ms: 5000, ..cell(kernel, STUBBORN) });
    let behind = manager.queue(cell(kernel, "x"));
    begun(&manager);
    let report = manager.end_of(stubborn);
    assert!(report.timed_out && report.state_lost && report.restarted && !report.success, "{report:?}");
    assert_eq!(report.error.unwrap().kind, CellErrorKind::Timeout);
    assert_eq!(report.death.unwrap().signal, Some(9));
    // What waited counted on variables that are gone.
    let report = manager.end_of(behind);
    assert_eq!((report.error.unwrap().kind.as_str(), report.execution_count), ("KERNEL_DIED", 0));
    assert_eq!(manager.run(cell(kernel, "x")).error.unwrap().kind.as_str(), "NameError");
    let info = manager.info(kernel);
    assert!(info.pid != before && info.restarts == 1 && info.execution_count == 1, "{info:?}");
    let stubborn = manager.queue(cell(kernel, STUBBORN));
    begun(&manager);
    interrupt(&mut manager, kernel, Some(stubborn));
    let report = manager.end_of(stubborn);
    assert!(report.interrupted && report.state_lost && report.restarted, "{report:?}");
}

#[test]
fn an_interpreter_that_dies_is_told_and_can_be_restarted() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    let deaths = [
        ("import ctypes; ctypes.string_at(0)", DeathKind::Signal, Some(11), None, "segmentation fault"),
        (
            "import os; print('last words', flush=True); os._exit(3)",
            DeathKind::Exited,
            None,
            Some(3),
            "status 3",
        ),
        ("import os; os.kill(os.getpid(), 9)", DeathKind::Signal, Some(9), None, "SIGKILL"),
    ];
    for (round, (code, kind, signal, status, words)) in deaths.into_iter().enumerate() {
        let wait = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nos.remove('go')\n";
        let deadly = manager.queue(cell(kernel, &format!("{wait}{code}")));
        let behind = manager.queue(cell(kernel, "1"));
        std::fs::write(manager.folder.path().join("go"), "").unwrap();
        let report = manager.end_of(deadly);
        assert!(report.state_lost && !report.restarted && !report.success, "{report:?}");
        let (error, death) = (report.error.unwrap(), report.death.unwrap());
        assert!(error.kind == CellErrorKind::KernelDied && error.message.contains(words), "{error:?}");
        assert_eq!((death.kind, death.signal, death.exit_status), (kind, signal, status));
        assert_eq!(report.stdout, if status.is_some() { "last words\n" } else { "" });
        assert_eq!(manager.end_of(behind).error.unwrap().kind, CellErrorKind::KernelDied);
        let info = manager.info(kernel);
        assert_eq!((info.status, info.pid, info.death), (KernelStatus::Dead, None, Some(death)));
        let error = manager.ask(RequestKind::Execute(cell(kernel, "1"))).unwrap_err();
        assert!(error.code == ErrorCode::KernelDied && error.death.is_some(), "{error:?}");
        let info = manager.kernel(RequestKind::Restart { kernel }).unwrap();
        assert_eq!((info.status, info.restarts as usize, info.death), (KernelStatus::Idle, round + 1, None));
        assert_eq!(manager.value(kernel, "1 + 1"), "2");
    }
}

#[test]
fn a_death_between_cells_is_noticed() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    let pid = manager.info(kernel).pid.unwrap();
    std::process::Command::new("/bin/kill").args(["-9", &pid.to_string()]).status().unwrap();
    eventually("the death is seen", || manager.info(kernel).status == KernelStatus::Dead);
    assert_eq!(manager.info(kernel).death.unwrap().signal, Some(9));
}

#[test]
fn a_restart_ends_what_runs_and_what_waits() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    let running = manager.queue(cell(kernel, STUBBORN));
    let waiting = manager.queue(cell(kernel, "1"));
    begun(&manager);
    let info = manager.kernel(RequestKind::Restart { kernel }).unwrap();
    assert_eq!((info.status, info.restarts, info.execution_count), (KernelStatus::Idle, 1, 0));
    let report = manager.end_of(running);
    assert!(report.interrupted && report.state_lost && report.restarted, "{report:?}");
    let report = manager.end_of(waiting);
    assert!(report.interrupted && report.error.unwrap().message.contains("restarted"));
}

#[test]
fn a_deleted_kernel_takes_everything_along_and_leaves_the_others() {
    let mut manager = KernelManager::start();
    let (kernel, other) = (manager.python(), manager.python());
    let left = manager.printed(other, "import subprocess; print(subprocess.Popen(['sleep', '1000']).pid)");
    // A child; one that left its parent; one that left parent, group and session; one without the marker.
    let code = "import os, subprocess, time\n\
        run = lambda line, **o: subprocess.run(['bash', '-c', line], check=True, **o)\n\
        a = subprocess.Popen(['sleep', '1000']).pid\n\
        run('sleep 1001 > /dev/null & echo $! > b')\n\
        run('setsid bash -c \"sleep 1002 >/dev/null & echo \\$! > c\"')\n\
        run('sleep 1003 > /dev/null & echo $! > d', env={'TEST_MARK': os.environ['TEST_MARK']})\n\
        print(a, *[open(f).read().strip() for f in 'bcd'])";
    let report = manager.run(cell(kernel, code));
    assert!(report.success, "{report:?}");
    let pids: Vec<i32> = report.stdout.split_whitespace().map(|p| p.parse().unwrap()).collect();
    assert!(pids.len() == 4 && pids.iter().all(|pid| lives(*pid)), "{pids:?}");
    let endless = manager.queue(cell(kernel, ENDLESS));
    begun(&manager);
    assert_eq!(manager.ask(RequestKind::Delete { kernel }).unwrap(), Answer::Done);
    assert!(!pids.iter().any(|pid| lives(*pid)), "{pids:?}");
    assert!(manager.end_of(endless).interrupted);
    assert!(lives(left.trim().parse().unwrap()));
    assert_eq!(manager.value(other, "1 + 1"), "2");
    assert_eq!(manager.list().len(), 1);
    let error = manager.ask(RequestKind::Delete { kernel }).unwrap_err();
    assert_eq!((error.code, error.field.as_deref()), (ErrorCode::NotFound, Some("kernel")));
}

#[test]
fn a_missing_interpreter_is_named() {
    let mut manager = KernelManager::start_with("/nowhere");
    for (language, program) in [
        (Language::Python, "Python"),
        (Language::Node, "Node.js"),
        (Language::R, "R"),
        (Language::Bash, "bash"),
    ] {
        let start = manager.start_of(language);
        let error = manager.ask(RequestKind::Start(start)).unwrap_err();
        assert_eq!((error.code, error.field.as_deref()), (ErrorCode::Unsupported, Some("language")));
        assert!(error.message.starts_with(&format!("{program} is not in this image")), "{error:?}");
    }
    assert_eq!(manager.list(), []);
}

#[test]
fn fifty_kernels_live_at_once() {
    let mut manager = KernelManager::start();
    let starts: Vec<_> = (0..50).map(|_| manager.start_of(Language::Bash)).collect();
    let tags: Vec<_> = starts.iter().map(|start| manager.say(RequestKind::Start(start.clone()))).collect();
    for tag in tags {
        manager.answer(tag).unwrap();
    }
    let cells: Vec<CellId> =
        starts.iter().enumerate().map(|(n, s)| manager.queue(cell(s.kernel, &format!("x={n}")))).collect();
    for cell in cells {
        assert!(manager.end_of(cell).success);
    }
    for (n, start) in starts.iter().enumerate() {
        assert_eq!(manager.printed(start.kernel, "echo $x"), format!("{n}\n"));
    }
    let more: Vec<_> = (0..15).map(|_| manager.start_of(Language::Bash)).collect();
    let refused =
        more.into_iter().filter_map(|s| manager.ask(RequestKind::Start(s)).err()).collect::<Vec<_>>();
    assert_eq!((refused.len(), refused[0].code), (1, ErrorCode::LimitExceeded));
}

#[test]
fn paused_time_does_not_count_towards_a_cells_timeout() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    let code =
        "import os, time\nopen('begun', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)";
    let waiting = manager.queue(Execute { timeout_ms: 8000, ..cell(kernel, code) });
    begun(&manager);
    let signal = |name: &str| {
        std::process::Command::new("/bin/kill").args([name, &manager.pid().to_string()]).status().unwrap()
    };
    signal("-STOP");
    std::thread::sleep(std::time::Duration::from_secs(9));
    signal("-CONT");
    std::fs::write(manager.folder.path().join("go"), "").unwrap();
    let report = manager.end_of(waiting);
    assert!(report.success && !report.timed_out, "{report:?}");
}
