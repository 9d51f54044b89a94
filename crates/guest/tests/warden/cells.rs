//! Cells: state, order, output, and what is told of them.

use crate::support::*;
use atoll_kernels::{
    Answer, Ask, CellEvent, CellStream, Execute, KernelStatus, Language, OutputLimits, Start,
};
use atoll_types::{CellId, ErrorCode, KernelId};

#[test]
fn a_cell_has_a_value_and_keeps_its_variables() {
    let mut warden = Warden::start();
    let kernel = warden.python();
    let report = warden.run(cell(kernel, "x = 41\nprint('hello')\nx + 1"));
    assert_eq!(report.result.unwrap()["text/plain"], "42");
    assert_eq!((report.stdout.as_str(), report.execution_count, report.success), ("hello\n", 1, true));
    assert_eq!(warden.value(kernel, "x * 2"), "82");
    let info = warden.info(kernel);
    assert_eq!((info.status, info.execution_count, info.restarts), (KernelStatus::Idle, 2, 0));
    assert!(info.interpreter.starts_with("Python 3."), "{info:?}");
    assert_eq!(warden.value(kernel, "import os; os.getpid()"), info.pid.unwrap().to_string());
}

#[test]
fn a_thousand_cells_keep_a_counter() {
    let mut warden = Warden::start();
    let kernel = warden.python();
    warden.value(kernel, "n = 0");
    for _ in 0..1000 {
        assert!(warden.run(cell(kernel, "n += 1")).success);
    }
    assert_eq!(warden.value(kernel, "n"), "1000");
    assert_eq!(warden.info(kernel).execution_count, 1002);
}
