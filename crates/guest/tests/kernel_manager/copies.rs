//! Checkpoints, rolling back, and forks of a live interpreter.

use crate::support::*;
use atoll_kernels::{Answer, Fork, KernelStatus, Language, MOST_CHECKPOINTS, RequestKind};
use atoll_types::{CheckpointId, ErrorCode, KernelId};

fn back(manager: &mut KernelManager, kernel: KernelId, checkpoint: CheckpointId) {
    let info = manager.kernel(RequestKind::Rollback { kernel, checkpoint }).unwrap();
    assert_eq!((info.kernel, info.status), (kernel, KernelStatus::Idle));
}

#[test]
fn variables_come_back_as_often_as_wanted() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    manager.value(kernel, "x = [1]");
    let one = manager.checkpoint(kernel, "one");
    assert_eq!((one.name.as_str(), one.execution_count, one.threads_lost), ("one", 1, 0));
    manager.value(kernel, "x.append(2)");
    let two = manager.checkpoint(kernel, "two");
    for _ in 0..3 {
        manager.value(kernel, "x.clear(); y = 1");
        back(&mut manager, kernel, one.checkpoint);
        assert_eq!(manager.value(kernel, "x, 'y' in globals()"), "([1], False)");
        back(&mut manager, kernel, two.checkpoint);
        assert_eq!(manager.value(kernel, "x"), "[1, 2]");
        assert_eq!(manager.info(kernel).execution_count, 3);
    }
    let names: Vec<String> = manager.info(kernel).checkpoints.into_iter().map(|c| c.name).collect();
    assert_eq!(names, ["one", "two"]);
    // The interpreter that came back is a whole one.
    let report = manager.run(atoll_kernels::Execute { timeout_ms: 300, ..cell(kernel, "while True: pass") });
    assert!(report.timed_out && !report.state_lost, "{report:?}");
    assert_eq!(manager.value(kernel, "x"), "[1, 2]");
}

#[test]
fn a_rollback_ends_what_runs_and_what_waits() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    manager.value(kernel, "x = 1");
    let saved = manager.checkpoint(kernel, "");
    let code = "import subprocess\nx = 2\nprint(subprocess.Popen(['sleep', '1000']).pid, flush=True)\nopen('begun', 'w').close()\nwhile True: pass";
    let running = manager.queue(cell(kernel, code));
    let waiting = manager.queue(cell(kernel, "x"));
    let begun = manager.folder.path().join("begun");
    eventually("the cell began", || begun.exists());
    back(&mut manager, kernel, saved.checkpoint);
    let report = manager.end_of(running);
    assert!(report.interrupted && report.state_lost && !report.restarted, "{report:?}");
    assert!(!lives(report.stdout.trim().parse().unwrap()));
    assert!(manager.end_of(waiting).interrupted);
    assert_eq!(manager.value(kernel, "x"), "1");
}

#[test]
fn checkpoints_outlive_the_interpreter_that_they_were_made_of() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    manager.value(kernel, "x = 'old'");
    let saved = manager.checkpoint(kernel, "");
    manager.kernel(RequestKind::Restart { kernel }).unwrap();
    assert_eq!(manager.run(cell(kernel, "x")).error.unwrap().kind.as_str(), "NameError");
    back(&mut manager, kernel, saved.checkpoint);
    assert_eq!(manager.value(kernel, "x"), "'old'");
    assert!(manager.run(cell(kernel, "import os; os._exit(1)")).state_lost);
    assert_eq!(manager.info(kernel).status, KernelStatus::Dead);
    back(&mut manager, kernel, saved.checkpoint);
    assert_eq!(manager.value(kernel, "x"), "'old'");
    manager.value(kernel, "x = 'new'");
    let later = manager.checkpoint(kernel, "");
    manager.kernel(RequestKind::Restart { kernel }).unwrap();
    back(&mut manager, kernel, later.checkpoint);
    assert_eq!(manager.value(kernel, "x"), "'new'");
}

#[test]
fn a_fork_has_everything_and_goes_its_own_way() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    manager.value(kernel, "x = [1]");
    let saved = manager.checkpoint(kernel, "then");
    manager.value(kernel, "x.append(2)");
    let fork = manager.fork(kernel, None);
    assert_eq!((fork.parent, fork.status, fork.execution_count), (Some(kernel), KernelStatus::Idle, 2));
    // Asked for twice, it is one.
    let twice = Fork { kernel, checkpoint: None, new: KernelId::random() };
    let tags = [manager.say(RequestKind::Fork(twice.clone())), manager.say(RequestKind::Fork(twice.clone()))];
    for tag in tags {
        let Answer::Kernel(info) = manager.answer(tag).unwrap() else { panic!() };
        assert_eq!((info.kernel, info.status), (twice.new, KernelStatus::Idle));
    }
    assert_eq!(manager.kernel(RequestKind::Fork(twice.clone())).unwrap().kernel, twice.new);
    assert_eq!(manager.ask(RequestKind::Delete { kernel: twice.new }).unwrap(), Answer::Done);
    let earlier = manager.fork(kernel, Some(saved.checkpoint));
    assert_eq!((earlier.parent, earlier.execution_count), (Some(kernel), 1));
    manager.value(fork.kernel, "x.append('fork')");
    assert_eq!(manager.value(kernel, "x"), "[1, 2]");
    assert_eq!(manager.value(fork.kernel, "x"), "[1, 2, 'fork']");
    assert_eq!(manager.value(earlier.kernel, "x"), "[1]");
    assert_eq!(
        manager.printed(
            fork.kernel,
            "import os; print(os.environ['ATOLL_KERNEL'], flush=True); os.system('echo from a child');"
        ),
        format!("{}\nfrom a child\n", fork.kernel)
    );
    // An interrupt is for one of them.
    let begin = |name: &str| format!("open('{name}', 'w').close()\nwhile True: pass");
    let cells = [manager.queue(cell(kernel, &begin("a"))), manager.queue(cell(fork.kernel, &begin("b")))];
    let folder = manager.folder.path().to_owned();
    eventually("both began", || folder.join("a").exists() && folder.join("b").exists());
    manager.ask(RequestKind::Interrupt { kernel, cell: None }).unwrap();
    assert!(manager.end_of(cells[0]).interrupted);
    assert_eq!(manager.info(fork.kernel).running, Some(cells[1]));
    // The end of the first is not that of its copies.
    assert_eq!(manager.ask(RequestKind::Delete { kernel }).unwrap(), Answer::Done);
    manager.ask(RequestKind::Interrupt { kernel: fork.kernel, cell: None }).unwrap();
    assert!(!manager.end_of(cells[1]).state_lost);
    assert_eq!(manager.value(fork.kernel, "x"), "[1, 2, 'fork']");
    assert_eq!(manager.value(earlier.kernel, "x"), "[1]");
    // A fork can do all that the first could.
    let again = manager.checkpoint(fork.kernel, "");
    manager.value(fork.kernel, "x = None");
    back(&mut manager, fork.kernel, again.checkpoint);
    let third = manager.fork(fork.kernel, Some(again.checkpoint));
    assert_eq!(manager.value(third.kernel, "x"), "[1, 2, 'fork']");
    let info = manager.kernel(RequestKind::Restart { kernel: third.kernel }).unwrap();
    assert_eq!((info.execution_count, info.restarts), (0, 1));
    assert_eq!(manager.list().len(), 3);
}

#[test]
fn a_dropped_checkpoint_is_gone_with_its_process() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    let alone = manager.processes().len();
    let saved: Vec<_> = (0..MOST_CHECKPOINTS).map(|n| manager.checkpoint(kernel, &n.to_string())).collect();
    eventually("a process for each", || manager.processes().len() == alone + MOST_CHECKPOINTS);
    let ask = RequestKind::Checkpoint { kernel, checkpoint: CheckpointId::random(), name: String::new() };
    assert_eq!(manager.ask(ask).unwrap_err().code, ErrorCode::LimitExceeded);
    // Asked for again, it is the same.
    let again = RequestKind::Checkpoint { kernel, checkpoint: saved[3].checkpoint, name: String::new() };
    assert_eq!(manager.ask(again).unwrap(), Answer::Checkpoint(saved[3].clone()));
    for checkpoint in saved.iter().map(|c| c.checkpoint) {
        assert_eq!(manager.ask(RequestKind::DropCheckpoint { kernel, checkpoint }).unwrap(), Answer::Done);
        for ask in [
            RequestKind::DropCheckpoint { kernel, checkpoint },
            RequestKind::Rollback { kernel, checkpoint },
            RequestKind::Fork(Fork { kernel, checkpoint: Some(checkpoint), new: KernelId::random() }),
        ] {
            let error = manager.ask(ask).unwrap_err();
            assert_eq!((error.code, error.field.as_deref()), (ErrorCode::NotFound, Some("checkpoint")));
        }
    }
    eventually("their processes are gone", || manager.processes().len() == alone);
    assert_eq!(manager.value(kernel, "1 + 1"), "2");
    assert_eq!(manager.info(kernel).checkpoints, []);
}

#[test]
fn a_checkpoint_whose_process_was_killed_is_no_more() {
    let mut manager = KernelManager::start();
    let kernel = manager.python();
    let before = manager.processes();
    let saved = manager.checkpoint(kernel, "");
    let mut waiting: Vec<i32> = Vec::new();
    // The process that made the copy ends a moment later.
    eventually("one copy", || {
        waiting = manager.processes().into_iter().filter(|pid| !before.contains(pid)).collect();
        waiting.len() == 1
    });
    std::process::Command::new("/bin/kill").args(["-9", &waiting[0].to_string()]).status().unwrap();
    eventually("it is gone", || !lives(waiting[0]));
    let error = manager.ask(RequestKind::Rollback { kernel, checkpoint: saved.checkpoint }).unwrap_err();
    assert_eq!(error.code, ErrorCode::NotFound);
    assert_eq!(manager.value(kernel, "1 + 1"), "2");
}

#[test]
fn only_python_can_be_copied() {
    let mut manager = KernelManager::start();
    let kernel = manager.begin(Language::Bash);
    let checkpoint =
        RequestKind::Checkpoint { kernel, checkpoint: CheckpointId::random(), name: String::new() };
    let fork = RequestKind::Fork(Fork { kernel, checkpoint: None, new: KernelId::random() });
    for ask in [checkpoint, fork] {
        let error = manager.ask(ask).unwrap_err();
        assert_eq!((error.code, error.field.as_deref()), (ErrorCode::Unsupported, Some("kernel")));
    }
}
