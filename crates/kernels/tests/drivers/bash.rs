//! The driver for bash in a real bash.

use crate::pipes::{Interpreter, Kind, text};

fn bash() -> Interpreter {
    Interpreter::start(Kind::Bash)
}

#[test]
fn what_a_cell_sets_is_there_for_the_next() {
    let mut bash = bash();
    assert!(bash.name.starts_with("bash "), "{}", bash.name);
    bash.value("x=5; declare -A m=([a]=1); alias say='echo said'; f() { echo \"f $1\"; }\nshopt -s nullglob; cd /usr");
    bash.value("say $x ${m[a]}; f é; pwd; shopt -q nullglob && echo kept");
    assert_eq!(bash.stdout("kept\n"), "said 5 1\nf é\n/usr\n");
    for _ in 0..1000 {
        bash.value("(( ++n ))");
    }
    bash.value("echo $n cells");
    assert_eq!(bash.stdout(" cells\n"), "1000");
}

#[test]
fn an_interrupt_ends_the_cell_and_keeps_the_variables() {
    let mut bash = bash();
    bash.value("x=5; work() { echo running; while :; do :; done; }");
    for code in [
        "echo running; while :; do :; done\necho never",
        "echo running; sleep 1000; echo never\necho never",
        "work; echo never",
        "(work); echo never",
        "y=$(echo running >>/proc/$$/fd/1; sleep 1000); echo never",
        // All of it runs when its output comes: bash passes over an interrupt between its fork and a program's
        // start, and goes on where a program ends well in spite of one.
        "sh -c 'echo running; exec sleep 1000' | cat; echo never",
    ] {
        assert_eq!(bash.interrupted(code).error(), "Interrupt", "{code}");
    }
    bash.value("echo $x left");
    assert_eq!(bash.stdout(" left\n"), "5");
}

#[test]
fn a_stray_interrupt_does_nothing() {
    let mut bash = bash();
    for _ in 0..5 {
        bash.interrupt();
        bash.value(":");
    }
}

#[test]
fn a_status_is_the_cells_error() {
    let mut bash = bash();
    let cell = bash.cell("echo before; (exit 2)");
    assert_eq!((cell.error(), cell.message()), ("ExitStatus", "exit status 2"));
    assert_eq!(bash.cell("bash -c 'exit 130'").message(), "exit status 130");
    assert_eq!(bash.cell("nosuchcommand").message(), "exit status 127");
    bash.stderr("nosuchcommand: command not found\n");
    assert!(bash.cell("echo fine").done["error"].is_null());
}

#[test]
fn a_syntax_error_names_its_line() {
    let mut bash = bash();
    for code in ["echo a\nif then fi\necho c", "echo a\necho \"never closed"] {
        assert_eq!(bash.cell(code).error(), "ExitStatus");
        bash.stderr("line 2: ");
    }
    bash.value("# first\necho still at $LINENO");
    bash.stdout("still at 2\n");
    assert_eq!(bash.cell("(kill -9 $BASHPID); sleep 1000 & return 4").message(), "exit status 4");
    bash.value("echo quiet >&2");
    assert_eq!(bash.stderr("quiet\n").matches("tcsetattr").count(), 0);
}

#[test]
fn a_cell_under_errexit_ends_at_the_failure_and_the_shell_goes_on() {
    let mut bash = bash();
    let cell = bash.cell("set -euo pipefail\nx=5\nf() { false; echo never; }\nf\necho never");
    assert_eq!(cell.message(), "exit status 1");
    assert_eq!(bash.cell("(exit 3); echo never").message(), "exit status 3");
    assert_eq!(bash.cell("(false; echo never)\necho never").message(), "exit status 1");
    assert_eq!(bash.cell("if false; then :; fi\necho ${nosuch}\necho never").error(), "ExitStatus");
    bash.stderr("nosuch: unbound variable");
    assert_eq!(bash.cell("set -x; echo ${nosuch:?gone}; echo never").error(), "ExitStatus");
    bash.value("set +eux; false; echo $x ${nosuch}");
    assert_eq!(bash.stdout("5\n"), "");
    assert!(!bash.stderr("set +eux").contains("__atoll_failed"));
}

#[test]
fn exit_ends_the_kernel_with_its_status() {
    let mut bash = bash();
    bash.begin("exit 3");
    assert_eq!(bash.status().code(), Some(3));
}

#[test]
fn the_end_of_the_requests_is_the_end() {
    let mut bash = bash();
    bash.close();
    assert_eq!(bash.status().code(), Some(0));
}

#[test]
fn children_have_neither_input_nor_the_protocol() {
    let mut bash = bash();
    bash.value("sleep 1000 & read line || echo eof; cat; exec 3</dev/null 4<&3; exec 3<&- 4<&-");
    bash.value("ls -l /proc/self/fd; echo end");
    assert!(bash.stdout("total 0\n").starts_with("eof\n"));
    bash.assert_apart(&bash.stdout("end\n"));
}

#[test]
fn any_bytes_and_any_variables() {
    let mut bash = bash();
    bash.request("variables 0 18\nA=é \"b\"\nc\0HOME\0X\0".as_bytes());
    bash.value("printf '%s|' \"$A\" \"${HOME-none}\" '日本 😀'; env | grep -c ^A=");
    assert_eq!(bash.stdout("1\n"), "é \"b\"\nc|none|日本 😀|");
    bash.request(b"execute 2 25\nprintf '\xff\xfe' | od -An -tx1");
    assert_eq!(bash.stdout("\n"), " ff fe");
}

#[test]
fn display_shows_a_copy_of_a_file() {
    let mut bash = bash();
    let cell =
        bash.cell("echo '<b>é</b>' >page; display text/html page; echo piped | display text/plain; rm page");
    let shown: Vec<_> =
        cell.displays.iter().map(|each| (each["type"].as_str().unwrap(), text(each))).collect();
    assert_eq!(shown, [("text/html", "<b>é</b>\n".to_owned()), ("text/plain", "piped\n".to_owned())]);
    assert_eq!(bash.cell("display nonsense").message(), "exit status 2");
}

#[test]
fn much_output_comes_whole() {
    let mut bash = bash();
    bash.value("head -c 2097152 /dev/zero | tr '\\0' x; echo end");
    assert_eq!(bash.stdout("end\n").len(), 2 << 20);
}
