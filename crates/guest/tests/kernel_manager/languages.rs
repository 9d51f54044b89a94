//! What holds in every language.

use crate::support::*;
use atoll_kernels::{CellErrorKind, Execute, KernelStatus, Language, RequestKind};

/// Code for: keeping a value, printing it, printing on stderr, failing, never ending, ending the interpreter.
struct Words {
    language: Language,
    keep: &'static str,
    print: &'static str,
    complain: &'static str,
    fail: &'static str,
    endless: &'static str,
    die: &'static str,
}

const ALL: [Words; 4] = [
    Words {
        language: Language::Python,
        keep: "x = 'ké漢🙂pt'",
        print: "print(x)",
        complain: "import sys; print('oh', file=sys.stderr)",
        fail: "undefined_name",
        endless: "while True: pass",
        die: "import os; os.kill(os.getpid(), 9)",
    },
    Words {
        language: Language::Node,
        keep: "const x = 'ké漢🙂pt'",
        print: "console.log(x)",
        complain: "console.error('oh')",
        fail: "undefined_name",
        endless: "while (true) {}",
        die: "process.kill(process.pid, 'SIGKILL')",
    },
    Words {
        language: Language::R,
        keep: "x <- 'ké漢🙂pt'",
        print: "cat(x, '\\n', sep = '')",
        complain: "cat('oh\\n', file = stderr())",
        fail: "undefined_name",
        endless: "while (TRUE) {}",
        die: "tools::pskill(Sys.getpid(), 9)",
    },
    Words {
        language: Language::Bash,
        keep: "x='ké漢🙂pt'",
        print: "echo \"$x\"",
        complain: "echo oh >&2",
        fail: "false",
        endless: "while :; do :; done",
        die: "kill -9 $$",
    },
];

#[test]
fn every_language_keeps_its_variables_and_ends_as_it_should() {
    let mut manager = KernelManager::start();
    for Words { language, keep, print, complain, fail, endless, die } in ALL {
        let about = language.name();
        let kernel = manager.begin(language);
        assert!(manager.run(cell(kernel, keep)).success, "{about}");
        assert_eq!(manager.printed(kernel, print), "ké漢🙂pt\n", "{about}");
        assert_eq!(manager.run(cell(kernel, complain)).stderr, "oh\n", "{about}");
        let failed = manager.run(cell(kernel, fail));
        assert!(!failed.success && failed.error.is_some() && !failed.state_lost, "{about}: {failed:?}");
        let report = manager.run(Execute { timeout_ms: 300, ..cell(kernel, endless) });
        assert!(report.timed_out && !report.state_lost, "{about}: {report:?}");
        assert_eq!(report.error.unwrap().kind, CellErrorKind::Timeout, "{about}");
        let running = manager.queue(cell(kernel, endless));
        eventually("it runs", || manager.info(kernel).running == Some(running));
        manager.ask(RequestKind::Interrupt { kernel, cell: Some(running) }).unwrap();
        let report = manager.end_of(running);
        assert!(report.interrupted && !report.state_lost, "{about}: {report:?}");
        assert_eq!(manager.printed(kernel, print), "ké漢🙂pt\n", "{about}");
        let report = manager.run(cell(kernel, die));
        assert_eq!(report.death.as_ref().map(|d| d.signal), Some(Some(9)), "{about}: {report:?}");
        let info = manager.kernel(RequestKind::Restart { kernel }).unwrap();
        assert_eq!((info.status, info.execution_count), (KernelStatus::Idle, 0), "{about}");
        let report = manager.run(cell(kernel, print));
        assert!(report.stdout.trim().is_empty(), "{about}: {report:?}");
    }
}
