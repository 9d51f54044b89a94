//! The driver for Node in a real Node.

use crate::pipes::{Interpreter, Kind, text};
use serde_json::{Value, json};

fn node() -> Interpreter {
    Interpreter::start(Kind::Node)
}

#[test]
fn what_a_cell_declares_is_there_for_the_next() {
    let mut node = node();
    assert!(node.name.starts_with("Node.js v"), "{}", node.name);
    node.value("const a = 1; let b = 2; class C { x = 3 }; function f() { return 4 }; var v = 5");
    assert_eq!(node.value("[a, b, new C().x, f(), v]"), "[ 1, 2, 3, 4, 5 ]");
    assert_eq!(node.value("undefined"), "");
    assert_eq!(node.value("let n = 0; 'é日本😀'"), "'é日本😀'");
    for _ in 0..1000 {
        node.value("n += 1; const again = n");
    }
    assert_eq!(node.value("again"), "1000");
}

#[test]
fn a_name_can_be_declared_again_in_any_way() {
    let mut node = node();
    let ways = [
        "const x = 1",
        "let x = 1",
        "var x = 1",
        "class x {}",
        "function x() {}",
        "const { y: [x] } = { y: [1] }",
        "const x = await 1",
    ];
    for first in ways {
        let name = format!("v{}", first.len());
        for then in ways {
            node.value(&first.replace('x', &name));
            node.value(&format!("{}; typeof {name}", then.replace('x', &name)));
        }
    }
    assert_eq!(node.value("const process = 1, Buffer = 2, JSON = 3, Object = 4; process + Object"), "5");
    assert_eq!(node.value("hoisted(); function hoisted() { return 'up' }; hoisted()"), "'up'");
}

#[test]
fn promises_are_awaited_and_their_rejections_are_errors() {
    let mut node = node();
    assert_eq!(node.value("const later = await new Promise(go => setTimeout(go, 5, 7)); later * 2"), "14");
    assert_eq!(node.value("Promise.resolve({ a: later })"), "{ a: 7 }");
    assert_eq!(node.value("let total = 0; for await (const each of [1, 2]) total += each; total"), "3");
    let cell = node.cell("Promise.reject(new RangeError('far'))");
    assert_eq!((cell.error(), cell.message()), ("RangeError", "far"));
    assert_eq!(node.cell("await Promise.reject(5)").message(), "5");
}

#[test]
fn imports_survive_and_modules_are_found() {
    let mut node = node();
    let at = |path: &str, text: &str| {
        let path = node.folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    at("node_modules/near/index.js", "exports.where = 'near'");
    at(".node_modules/far/index.js", "exports.where = 'far'");
    at(".node_modules/modern/package.json", r#"{"type":"module","exports":{".":{"import":"./m.js"}}}"#);
    at(".node_modules/modern/m.js", "export default 'modern'; export const two = 2");
    at("local.mjs", "export const local = import.meta.url.endsWith('/local.mjs')");
    node.value("import fs, { readFileSync as read } from 'fs'\nimport * as path from 'node:path';\nimport {\n  join,\n} from 'path'");
    assert_eq!(
        node.value("[typeof fs.statSync, typeof read, join('a', 'b') === path.join('a', 'b')]"),
        "[ 'function', 'function', true ]"
    );
    assert_eq!(
        node.value("[require('near').where, require('far').where, (await import('far')).where]"),
        "[ 'near', 'far', 'far' ]"
    );
    assert_eq!(
        node.value(
            "import modern, { two } from 'modern'; import { local } from './local.mjs'; [modern, two, local]"
        ),
        "[ 'modern', 2, true ]"
    );
    assert_eq!(node.value("process.chdir('node_modules'); typeof require('./near') + typeof (await import('./near/index.js'))"), "'objectobject'");
    assert_eq!(node.cell("import { nosuch } from 'fs'").error(), "SyntaxError");
    assert!(node.cell("require('nosuch')").message().contains("nosuch"));
    assert_eq!(node.value("export const shown = 'import x from \"y\"'; shown"), "'import x from \"y\"'");
}

#[test]
fn a_traceback_points_at_the_cells_lines() {
    let mut node = node();
    let cell = node.cell("function boom() {\n  throw new TypeError('bad')\n}\nconst x = 1\nboom()");
    assert_eq!((cell.error(), cell.message()), ("TypeError", "bad"));
    assert_eq!(cell.traceback(), "TypeError: bad\n    at boom (<cell 1>:2:9)\n    at <cell 1>:5:1");
    let cell = node.cell("1\nlet y = foo bar");
    assert_eq!(cell.error(), "SyntaxError");
    assert!(cell.traceback().contains("<cell 2>:2:13"), "{}", cell.traceback());
    let cell = node.cell("require('fs').readFileSync('/nosuch')");
    assert!(cell.traceback().contains("<cell 3>:1:15") && cell.traceback().contains("code: 'ENOENT'"));
    assert!(!cell.traceback().contains("atoll-driver"), "{}", cell.traceback());
}

#[test]
fn an_interrupt_ends_the_cell_and_keeps_the_variables() {
    let mut node = node();
    node.value("let kept = 1; const say = () => console.log('running')");
    for code in [
        "say(); while (true) kept++",
        "say(); await new Promise(() => {})",
        "await 1; say(); while (true) kept++",
        "setTimeout(() => { say(); while (true) kept++ }, 1); await new Promise(() => {})",
        "say(); Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)",
        "new Proxy({}, { get() { say(); while (true) kept++ } })",
        "try { say(); while (true) kept++ } finally { kept++ }",
    ] {
        assert_eq!(node.interrupted(code).error(), "Interrupt", "{code}");
    }
    assert!(!node.interrupted("say(); require('child_process').execSync('sleep 1000')").error().is_empty());
    assert_eq!(node.value("kept > 1"), "true");
}

#[test]
fn a_stray_interrupt_does_nothing() {
    let mut node = node();
    for _ in 0..5 {
        node.interrupt();
        assert_eq!(node.value("await new Promise(go => setTimeout(go, 1)); 1"), "1");
        node.interrupt();
    }
}

#[test]
fn what_fails_on_its_own_is_told_and_the_kernel_goes_on() {
    let mut node = node();
    node.value("setTimeout(() => { throw new Error('from a timer') }, 1); Promise.reject(new Error('from a promise')); 1");
    node.stderr("from a promise");
    node.stderr("from a timer");
    let cell = node.cell("process.exit(3)");
    assert_eq!(cell.error(), "ProcessExit");
    assert_eq!(node.cell("(function deep() { deep() })()").error(), "RangeError");
    assert_eq!(node.cell("({ toHtml() { throw new Error('no') } })").error(), "Error");
    assert_eq!(node.value(&format!("const sum = {}1; sum", "1 + ".repeat(100_000))), "100001");
    node.value("process.removeAllListeners(); setTimeout(() => { throw new Error('alone') }, 20); 1");
    node.stderr("alone");
    assert_eq!(node.interrupted("console.log('running'); while (true);").error(), "Interrupt");
    assert_eq!(node.value("'half \\ud800, \\\\ud800'"), "'half \\ud800, \\\\ud800'");
    assert_eq!(node.cell("throw new Error('half \\ud800')").message(), "half \u{fffd}");
    assert_eq!(node.value("1 + 1"), "2");
}

#[test]
fn displays_come_in_order() {
    let mut node = node();
    let cell = node.cell(
        "display.html('<b>'); display.png(Buffer.from([1, 2, 3])); display.image(new Uint8Array([4]), 'image/jpeg')\n\
         display.svg('<svg/>'); display.json({ a: 1 }); display.markdown('# x'); display({ toHtml: () => '<i>' }); display([1]);\n\
         ({ [Symbol.for('Jupyter.display')]: () => ({ 'text/plain': 'p', 'text/html': '<u>' }) })",
    );
    let shown: Vec<_> = cell.displays.iter().map(|each| json!([each["type"], text(each)])).collect();
    let wanted = json!([
        ["text/html", "<b>"],
        ["image/png", "AQID"],
        ["image/jpeg", "BA=="],
        ["image/svg+xml", "<svg/>"],
        ["application/json", "{\"a\":1}"],
        ["text/markdown", "# x"],
        ["text/html", "<i>"],
        ["text/plain", "[ 1 ]"],
        ["text/html", "<u>"]
    ]);
    assert_eq!(Value::from(shown), wanted);
    let cell = node.cell("display.html('x'.repeat(20e6))");
    assert_eq!(cell.displays[0]["type"], "text/plain");
}

#[test]
fn long_results_are_cut_and_their_length_is_told() {
    let mut node = node();
    let cell = node.cell("'x'.repeat(2e6)");
    assert_eq!(cell.text().len(), 1 << 20);
    assert_eq!(cell.done["lengths"]["result"], 2_000_002);
    let cell = node.cell("throw new Error('\\u0001'.repeat(3e6))");
    assert_eq!(cell.done["lengths"]["message"], 3_000_000);
    node.value("for (let i = 0; i < 32768; i++) console.log('x'.repeat(63)); console.log('end')");
    assert_eq!(node.stdout("end\n").len(), 2 << 20);
}

#[test]
fn children_have_neither_input_nor_the_protocol() {
    let mut node = node();
    node.value(
        "require('child_process').spawnSync('ls', ['-l', '/proc/self/fd'], { stdio: 'inherit' }).status",
    );
    node.value("console.log('end')");
    node.assert_apart(&node.stdout("end\n"));
    assert_eq!(node.value("require('fs').readFileSync(0, 'utf8')"), "''");
    node.value("require('child_process').spawn('sleep', ['1000']); 1");
    node.request(b"{\"op\":\"variables\",\"set\":{\"A\":\"b\"},\"unset\":[\"HOME\"]}\n");
    assert_eq!(node.value("[process.env.A, process.env.HOME]"), "[ 'b', undefined ]");
    node.close();
    assert_eq!(node.status().code(), Some(0));
}

#[test]
fn objects_of_modules_are_of_the_cells_kind() {
    let mut node = node();
    node.value("let caught; try { require('fs').readFileSync('/nosuch') } catch (error) { caught = error }");
    assert_eq!(
        node.value("[caught instanceof Error, Buffer.from('a') instanceof Uint8Array, [] instanceof Array]"),
        "[ true, true, true ]"
    );
}
