//! The Python driver in real interpreters: with whatever the machine has, and with nothing but Python itself.

use crate::harness::{Cell, Flavour, Kernel, has};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;

const BOTH: [Flavour; 2] = [Flavour::System, Flavour::Plain];

#[allow(clippy::unwrap_used)]
fn png_size(display: &serde_json::Value) -> (u32, u32) {
    assert_eq!(display["type"], "image/png");
    let bytes = STANDARD.decode(display["data"].as_str().unwrap()).unwrap();
    assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n");
    assert_eq!(&bytes[12..16], b"IHDR");
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    (number(16), number(20))
}

#[allow(clippy::unwrap_used)]
fn types(cell: &Cell) -> Vec<&str> {
    cell.displays.iter().map(|display| display["type"].as_str().unwrap()).collect()
}

#[test]
fn values_survive_and_the_last_one_is_the_result() {
    for flavour in BOTH {
        let mut kernel = Kernel::start(flavour);
        let name = kernel.ready["interpreter"].as_str().unwrap();
        assert!(name.starts_with("Python 3."), "{name}");
        assert!(flavour == Flavour::System || !name.contains("IPython"), "{name}");
        for (code, text) in [
            ("x = 20", ""),
            ("x + 1", "21"),
            ("_ + 1", "22"),
            ("x;", ""),
            ("(x); # quiet", ""),
            ("None", ""),
            ("", ""),
            ("__name__", "'__main__'"),
            ("import __main__; __main__.x", "20"),
            ("import pickle\nclass A: pass\ntype(pickle.loads(pickle.dumps(A()))) is A", "True"),
            ("from __future__ import annotations", ""),
            ("def f(x: nothing): pass\nf.__annotations__", "{'x': 'nothing'}"),
            ("'é😀\\0\\ud800'", "'é😀\\x00\\ud800'"),
        ] {
            assert_eq!(kernel.run(code).text(), text, "{code} with {flavour:?}");
        }
        assert!(kernel.end(), "{flavour:?}");
    }
}

#[test]
fn a_thousand_cells_keep_their_variables() {
    let mut kernel = Kernel::start(Flavour::Plain);
    kernel.run("n = 0");
    for _ in 0..1000 {
        assert_eq!(kernel.run("n += 1").text(), "");
    }
    assert_eq!(kernel.run("n").text(), "1000");
}

#[test]
fn what_is_awaited_shares_one_loop() {
    for flavour in BOTH {
        let mut kernel = Kernel::start(flavour);
        for (code, text) in [
            ("import asyncio\nasync def f(n):\n    await asyncio.sleep(0)\n    return n", ""),
            ("await f(1)", "1"),
            ("f(2)", "2"),
            ("task = asyncio.get_event_loop().create_task(f(3))", ""),
            ("await task", "3"),
            ("asyncio.run(f(4))", "4"),
            ("[n async for n in (m for m in ()) ] if False else await f(5)", "5"),
        ] {
            assert_eq!(kernel.run(code).text(), text, "{code} with {flavour:?}");
        }
    }
}

#[test]
fn errors_point_at_the_cells_own_lines() {
    for flavour in BOTH {
        let mut kernel = Kernel::start(flavour);
        kernel.run("def f(n):\n    return 1 / n");
        let cell = kernel.run("x = 1\nf(0)");
        let (kind, message, trace) = cell.error();
        assert_eq!((kind, message), ("ZeroDivisionError", "division by zero"));
        for part in
            ["File \"<cell 2>\", line 2", "    f(0)\n", "File \"<cell 1>\", line 2, in f", "return 1 / n"]
        {
            assert!(trace.contains(part), "{trace}");
        }
        let cell = kernel.run("async def g():\n    f(0)\nawait g()");
        assert!(
            cell.error().2.starts_with("Traceback (most recent call last):\n  File \"<cell 3>\", line 3")
        );
        let cell = kernel.run("try:\n    f(0)\nexcept Exception as e:\n    raise KeyError('k') from e");
        assert!(cell.error().2.contains("direct cause"), "{cell:?}");
        let cell = kernel.run("x = (\n    1 2\n)");
        assert_eq!(cell.error().0, "SyntaxError");
        assert!(cell.error().2.starts_with("  File \"<cell 5>\", line 2\n    1 2\n    ^"), "{cell:?}");
        let cell = kernel.run("return 1");
        assert!(cell.error().2.contains("    return 1\n"), "{cell:?}");
        let cell = kernel.run("import sys; sys.setrecursionlimit(100_000)\ndef a(): b()\ndef b(): a()\na()");
        assert_eq!(cell.error().0, "RecursionError");
        assert!(cell.error().2.len() < 300_000);
        let cell = kernel.run("raise ValueError('x' * 10_000_000)");
        assert_eq!(cell.done["lengths"]["message"], 10_000_000);
        assert!(cell.done.to_string().len() < 1 << 20);
        for code in ["f(0)", "import asyncio\nawait asyncio.sleep('x')", "display(1, 2)\n1 / 0"] {
            let cell = kernel.run(code);
            assert!(!cell.error().2.contains("atoll") && !cell.error().2.contains('\x1b'), "{cell:?}");
        }
    }
}

#[test]
fn nobody_answers_input() {
    for flavour in BOTH {
        let mut kernel = Kernel::start(flavour);
        for code in ["input('name? ')", "import getpass\ngetpass.getpass()"] {
            let cell = kernel.run(code);
            assert_eq!(cell.error().0, "StdinNotImplementedError");
            assert!(cell.error().1.starts_with("input() is not available"), "{cell:?}");
        }
        assert_eq!(kernel.run("breakpoint()").error().0, "StdinNotImplementedError");
        assert_eq!(kernel.run("import sys; sys.stdin.read()").text(), "''");
    }
}

#[test]
fn what_is_printed_is_seen_in_order() {
    for flavour in BOTH {
        let mut kernel = Kernel::start(flavour);
        let cell = kernel.run("import os\nprint('a', end='')\nos.system('echo b')\nprint('é\\ud800')\nx = 1");
        assert_eq!(cell.stdout, "ab\né\\ud800\n");
        let cell = kernel.run("import sys\nprint('oops', file=sys.stderr)");
        assert_eq!((cell.stdout.as_str(), cell.stderr.as_str()), ("", "oops\n"));
        kernel.begin("print('now', end='')\nimport time\nwhile True: time.sleep(1)");
        kernel.wait_for_output("now");
        kernel.interrupt_and_finish();
        // Whatever was done to the streams, the next cell can print.
        for code in ["os.close(1)", "sys.stdout.close()", "sys.stdout = None", "sys.stdout = sys.__stdout__"]
        {
            kernel.run(code);
            assert_eq!(kernel.run("print('here')").stdout, "here\n", "after {code}");
        }
    }
}

#[test]
fn a_cell_that_leaves_or_forks_leaves_the_kernel() {
    for flavour in BOTH {
        let mut kernel = Kernel::start(flavour);
        kernel.run("import os, sys");
        assert_eq!(kernel.run("sys.exit(3)").error().0, "SystemExit");
        assert_eq!(kernel.run("exit()").error().0, "SystemExit");
        let cell = kernel.run("pid = os.fork()\nif pid:\n    os.waitpid(pid, 0)\nprint('twice')\n'value'");
        assert_eq!((cell.text(), cell.stdout.as_str()), ("'value'", "twice\ntwice\n"));
        let code =
            "pid = os.fork()\nif not pid:\n    1 / 0\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])";
        let cell = kernel.run(code);
        assert_eq!(cell.text(), "1");
        assert!(cell.stderr.contains("ZeroDivisionError"), "{cell:?}");
        let code = "import multiprocessing\ndef square(n): return n * n\n\
                    with multiprocessing.get_context('fork').Pool(2) as pool: r = pool.map(square, [1, 2, 3])\nr";
        assert_eq!(kernel.run(code).text(), "[1, 4, 9]");
    }
}

#[test]
fn children_get_none_of_our_descriptors() {
    let mut kernel = Kernel::start(Flavour::Plain);
    let code = "import os, subprocess\n\
                names = subprocess.run(['ls', '/proc/self/fd'], close_fds=False, stdout=-1).stdout.split()\n\
                sorted({4, 5, 100, 101, 102, 103, 104} & set(map(int, names)))";
    assert_eq!(kernel.run(code).text(), "[]");
    let code = "r, w = os.pipe()\npid = os.fork()\nif not pid:\n    \
                os.write(w, repr([os.readlink(f'/proc/self/fd/{n}') for n in (100, 101, 102) \
                if os.path.exists(f'/proc/self/fd/{n}')]).encode())\n    os._exit(0)\n\
                os.waitpid(pid, 0)\nos.read(r, 1000).decode()";
    assert_eq!(kernel.run(code).text(), "\"['/dev/null']\"");
}

#[test]
fn nothing_is_taken_from_the_working_folder_for_ourselves() {
    for flavour in BOTH {
        let names =
            "json signal io types traceback linecache asyncio select socket enum re random subprocess ast";
        let mut kernel = Kernel::start_with(flavour, |folder| {
            for name in names.split(' ') {
                std::fs::write(folder.join(format!("{name}.py")), "raise RuntimeError('taken')").unwrap();
            }
            std::fs::write(folder.join("mine.py"), "value = 5").unwrap();
        });
        assert_eq!(kernel.run("1 / 0").error().0, "ZeroDivisionError");
        assert_eq!(kernel.run("async def f(): return 2\nf()").text(), "2");
        let (checkpoint, _) = kernel.checkpoint();
        kernel.fork(None);
        kernel.roll_back(checkpoint);
        assert_eq!(kernel.run("import mine; mine.value").text(), "5");
        assert_eq!(kernel.run("import json").error().1, "taken");
    }
}

#[test]
fn an_interrupt_ends_the_cell_and_nothing_else() {
    for flavour in BOTH {
        let mut kernel = Kernel::start(flavour);
        kernel.run("import time, asyncio, signal\nx = 7");
        for body in [
            "while True: pass",
            "time.sleep(1000)",
            "await asyncio.sleep(1000)",
            "async def f():\n    while True: pass\nawait f()",
            "import subprocess; subprocess.run(['sleep', '1000'])",
            "signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGINT, \
             signal.default_int_handler)\nwhile True: pass",
            "class R:\n    def __repr__(self):\n        while True: pass\nR()",
        ] {
            kernel.begin(&format!("print('go')\n{body}"));
            kernel.wait_for_output("go");
            let cell = kernel.interrupt_and_finish();
            assert_eq!(cell.error().0, "KeyboardInterrupt", "{body}");
        }
        kernel.run("signal.signal(signal.SIGINT, signal.SIG_DFL)");
        for _ in 0..20 {
            kernel.interrupt();
            let cell = kernel.run("x");
            assert!(cell.done["error"].is_null() || cell.error().0 == "KeyboardInterrupt", "{cell:?}");
        }
        assert_eq!(kernel.run("x").text(), "7");
    }
}

#[test]
fn an_interrupt_leaves_displays_whole() {
    let mut kernel = Kernel::start(Flavour::Plain);
    kernel.run("class H:\n    def _repr_html_(self): return 'x' * 4_000_000");
    for _ in 0..5 {
        kernel.begin("print('go')\nwhile True: display(H())");
        kernel.wait_for_output("go");
        let cell = kernel.interrupt_and_finish();
        assert_eq!(cell.error().0, "KeyboardInterrupt");
        assert!(cell.displays.iter().all(|display| display["data"].as_str().unwrap().len() == 4_000_000));
    }
}

#[test]
fn objects_show_themselves() {
    for flavour in BOTH {
        let mut kernel = Kernel::start(flavour);
        let define = "class R:\n    def __init__(self, **forms): self.forms = forms\n    \
                      def __repr__(self): return 'R!'\n    def _repr_mimebundle_(self, **_): return \
                      {k.replace('_', '/'): v for k, v in self.forms.items()}";
        kernel.run(define);
        let cell = kernel.run("R(image_png=b'\\x89PNG', text_html='<b>', application_json={'a': 1})");
        assert_eq!((cell.text(), types(&cell)), ("R!", vec!["text/html"]));
        let cell = kernel.run("R(image_jpeg=b'jpeg', audio_wav=b'wav')");
        assert_eq!(cell.displays[0]["data"], STANDARD.encode("jpeg"));
        let cell =
            kernel.run("display(R(audio_ogg=b'o'), R(text_plain='only'), 5)\nR(application_json={'a': [1]})");
        assert_eq!(types(&cell), ["audio/ogg", "application/json"]);
        assert_eq!(cell.stdout, "R!\n5\n");
        let json: serde_json::Value =
            serde_json::from_str(cell.displays[1]["data"].as_str().unwrap()).unwrap();
        assert_eq!(json, json!({"a": [1]}));
        kernel.run(
            "class S:\n    def _repr_svg_(self): return '<svg/>'\n    def _repr_html_(self): return None",
        );
        assert_eq!(types(&kernel.run("S()")), ["image/svg+xml"]);
        assert!(kernel.run("S").displays.is_empty());
        assert!(kernel.run("from unittest.mock import MagicMock\nMagicMock()").displays.is_empty());

        let cell = kernel.run("class B:\n    def __repr__(self): 1 / 0\n    _repr_html_ = __repr__\nB()");
        assert_eq!(cell.text(), "<B object: its repr failed: ZeroDivisionError>");
        assert!(cell.stderr.contains("line 2, in __repr__"), "{cell:?}");
        assert!(kernel.run("[B()]").text().contains("repr failed"));

        let cell = kernel.run("'a' * 5_000_000");
        assert_eq!((cell.text().len(), &cell.done["lengths"]), (1 << 20, &json!({"result": 5_000_002})));
        let cell = kernel.run("R(text_html='x' * (17 << 20))");
        assert_eq!(types(&cell), ["text/plain"]);
        assert!(cell.displays[0]["data"].as_str().unwrap().contains("left out"));
        assert_eq!(kernel.run("1").text(), "1");
    }
}

#[test]
fn the_environment_can_be_changed() {
    let mut kernel = Kernel::start(Flavour::Plain);
    kernel.send(&json!({"op": "variables", "set": {"A": "b", "C=": "never"}, "unset": ["HOME", "NOTHING"]}));
    let code = "import os, subprocess\n(subprocess.getoutput('echo $A'), 'HOME' in os.environ)";
    assert_eq!(kernel.run(code).text(), "('b', False)");
}

#[test]
fn variables_come_back_as_they_were() {
    for flavour in BOTH {
        let mut kernel = Kernel::start(flavour);
        kernel.run("import asyncio, os, random, threading, time\nx = [1]\nnumbers = []");
        kernel.run("threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()");
        kernel.run("task = asyncio.get_event_loop().create_task(asyncio.sleep(1000))");
        let (checkpoint, made) = kernel.checkpoint();
        assert_eq!((&made["threads_lost"], &made["tasks_lost"]), (&json!(1), &json!(1)));
        let drawn = kernel.run("x.append(2)\nrandom.random()").done["result"].clone();
        // A running cell, a request that nobody read, and half of another.
        kernel.begin("print('go')\ntime.sleep(1000)");
        kernel.wait_for_output("go");
        kernel.send(&json!({"op": "execute", "id": 99, "code": "x.append(3)"}));
        let checkpoint = kernel.roll_back(checkpoint);
        assert_eq!(kernel.run("x").text(), "[1]");
        assert_eq!(kernel.run("random.random()").done["result"], drawn);
        assert_eq!(kernel.run("os.getpid() == os.getpgrp()").text(), "True");
        assert_eq!(kernel.run("os.wait()").error().0, "ChildProcessError");
        assert_eq!(kernel.run("os.system('exit 3') >> 8").text(), "3");
        assert_eq!(kernel.run("await asyncio.sleep(0)\nawait task").error().0, "RuntimeError");
        let code = "import multiprocessing\ndef square(n): return n * n\n\
                    with multiprocessing.get_context('fork').Pool(2) as pool: r = pool.map(square, [3])\nr";
        assert_eq!(kernel.run(code).text(), "[9]");
        kernel.begin("print('go')\nwhile True: pass");
        kernel.wait_for_output("go");
        assert_eq!(kernel.interrupt_and_finish().error().0, "KeyboardInterrupt");
        kernel.run("x = 'gone'");
        kernel.roll_back(checkpoint);
        assert_eq!(kernel.run("x").text(), "[1]");
    }
}

#[test]
fn a_kernel_can_be_forked_now_or_as_it_was() {
    for flavour in BOTH {
        let mut kernel = Kernel::start(flavour);
        kernel.run("x = 'then'");
        let (checkpoint, _) = kernel.checkpoint();
        kernel.run("x = 'now'");
        let mut now = kernel.fork(None);
        let mut then = kernel.fork(Some(checkpoint));
        let mut again = kernel.fork(Some(checkpoint));
        assert_eq!(now.ready["interpreter"], kernel.ready["interpreter"]);
        for (other, text) in [(&mut now, "now"), (&mut then, "then"), (&mut again, "then")] {
            assert_eq!(other.run("print(x)\nimport os\nx = os.getpid()").stdout, format!("{text}\n"));
            assert_eq!(other.run("x == os.getpid() == os.getpgrp()").text(), "True");
        }
        let (of_fork, _) = then.checkpoint();
        then.run("x = 0");
        then.roll_back(of_fork);
        assert_eq!(then.run("x == 0").text(), "False");
        kernel.roll_back(checkpoint);
        assert_eq!(kernel.run("print(x)").stdout, "then\n");
        assert!(now.end() && again.end() && then.end());
    }
}

#[test]
fn magics_and_the_shell_work_where_ipython_is() {
    if !has("IPython") {
        return;
    }
    let mut kernel = Kernel::start(Flavour::System);
    assert!(kernel.ready["interpreter"].as_str().unwrap().contains(", IPython "));
    let cell = kernel.run("name = 'you'\n!echo hello $name; echo oops >&2; exit 3");
    assert_eq!((cell.stdout.as_str(), cell.stderr.as_str()), ("hello you\n", "oops\n"));
    assert_eq!(kernel.run("_exit_code").text(), "3");
    assert_eq!(kernel.run("lines = !printf 'a\\nb'\nlist(lines)").text(), "['a', 'b']");
    assert!(kernel.run("pwd").text().contains("work"));
    assert!(kernel.run("%%time\nsum(range(10))").stdout.contains("Wall time"));
    assert_eq!(kernel.run("%%bash\necho from bash").stdout, "from bash\n");
    assert!(kernel.run("len?").stdout.contains("Return the number of items"));
    assert_eq!(kernel.run("%nothing").error().0, "UsageError");
    assert_eq!(kernel.run("1 +").error().0, "SyntaxError");
    assert_eq!(kernel.run("exit()").error().0, "SystemExit");
    let cell = kernel
        .run("from IPython.display import HTML, SVG, Audio, display\ndisplay(HTML('<i>'))\nSVG('<svg/>')");
    assert_eq!(types(&cell), ["text/html", "image/svg+xml"]);
    let cell = kernel.run("Audio([0, 1] * 100, rate=8000)");
    assert!(cell.displays[0]["data"].as_str().unwrap().contains("data:audio/wav;base64,"));
    assert_eq!(kernel.run("await __import__('asyncio').sleep(0)\nget_ipython() is not None").text(), "True");
    kernel.begin("print('go')\n!sleep 1000");
    kernel.wait_for_output("go");
    assert_eq!(kernel.interrupt_and_finish().error().0, "KeyboardInterrupt");
    // The folder of the user's packages, and nothing of IPython's.
    assert_eq!(kernel.run("import os; os.listdir(os.environ['HOME'])").text(), "['.local']");
}

#[test]
fn without_ipython_a_magic_says_what_is_missing() {
    let mut kernel = Kernel::start(Flavour::Plain);
    for code in ["%time 1", "x = 1\n!ls"] {
        let cell = kernel.run(code);
        assert_eq!(cell.error().0, "SyntaxError");
        assert!(cell.error().1.contains("need IPython"), "{cell:?}");
    }
}

#[test]
fn what_user_code_does_to_the_interpreter_ends_with_the_cell() {
    for flavour in BOTH {
        let mut kernel = Kernel::start(flavour);
        kernel.run("import signal");
        for code in [
            "globals().clear()",
            "import sys; sys.settrace(lambda *_: 1 / 0)",
            "import builtins; builtins.repr = builtins.print = None",
            "import os; os.write = os.read = os.getpid = None",
            "import sys; sys.path.clear(); sys.modules.pop('os', None)",
            "raise GeneratorExit",
            "class E(Exception):\n    def __str__(self): 1 / 0\nraise E",
            "'\0'",
        ] {
            kernel.run(code);
            assert_eq!(
                kernel.run("__name__, 1 + 1").text(),
                "('__main__', 2)",
                "after {code} with {flavour:?}"
            );
        }
        // A handler that raises while nothing runs.
        let handler = "import signal\ndef f(*_): raise KeyError('late')\nsignal.signal(signal.SIGUSR1, f)";
        assert!(kernel.run(handler).done["error"].is_null());
        rustix::process::kill_process(kernel.pid, rustix::process::Signal::USR1).unwrap();
        let late = kernel.run("3");
        assert!(late.text() == "3" || late.error().0 == "KeyError", "{late:?}");
        assert_eq!(kernel.run("4").text(), "4");
    }
}

#[test]
fn figures_are_shown_once_and_closed() {
    if !has("matplotlib") {
        return;
    }
    let mut kernel = Kernel::start(Flavour::System);
    assert_eq!(kernel.run("import sys\n'matplotlib' in sys.modules").text(), "False");
    let cell = kernel
        .run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.figure(figsize=(3, 2))\nplt.plot([1])");
    assert_eq!(cell.displays.len(), 2);
    let (width, height) = png_size(&cell.displays[0]);
    assert!(width > 400 && height > 300, "{width}×{height}");
    assert!(png_size(&cell.displays[1]).0 < 400);
    assert_eq!(kernel.run("plt.get_fignums()").text(), "[]");
    let cell = kernel.run("for n in range(2):\n    plt.plot([n])\n    plt.show()");
    assert_eq!((types(&cell), cell.stderr.as_str()), (vec!["image/png"; 2], ""));
    let cell = kernel.run("figure, axes = plt.subplots()\nfigure");
    assert_eq!(types(&cell), ["image/png"]);
    assert_eq!(types(&kernel.run("figure")), ["image/png"]);
    let cell = kernel.run("plt.plot([1])\n1 / 0");
    assert_eq!((cell.error().0, types(&cell)), ("ZeroDivisionError", vec!["image/png"]));
}

#[test]
fn frames_images_and_charts_are_shown() {
    let mut kernel = Kernel::start(Flavour::System);
    if has("pandas") {
        let cell = kernel.run("import pandas\npandas.DataFrame({'a': [1, 2]})");
        assert!(cell.text().contains('a'));
        assert!(cell.displays[0]["data"].as_str().unwrap().contains("<table"));
        assert_eq!(types(&cell), ["text/html"]);
    }
    if has("PIL") {
        let cell = kernel.run("from PIL import Image\nImage.new('RGB', (20, 10))");
        assert_eq!(png_size(&cell.displays[0]), (20, 10));
    }
    if has("plotly") {
        let cell = kernel
            .run("import plotly.graph_objects as go\nchart = go.Figure(go.Bar(y=[1]))\nchart.show()\nchart");
        assert_eq!(types(&cell), ["text/html"; 2]);
        for display in &cell.displays {
            let page = display["data"].as_str().unwrap();
            assert!(page.len() > 1 << 20 && page.len() < 6 << 20, "{}", page.len());
            assert!(page.contains("<html") && !page.contains("<script src="), "{}", &page[..300]);
        }
    }
}
