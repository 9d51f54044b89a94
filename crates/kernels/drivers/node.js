// The driver for Node. A cell is evaluated as a debugger's console does it, by V8's own inspector in its REPL
// mode: `await` at the top, names that live on and can be declared again. It runs in the main context, so
// that an Error, an Array or a Uint8Array that a module hands out is one of the cell's own kind; the
// driver keeps nothing there but `require`, `display` and `$mport`, which stands for `import`.
//
// SIGINT cannot reach JavaScript that does not come to rest, so a second thread waits for it and asks V8,
// again by the inspector, to give up what runs. What is left to the cell then is nothing; its variables stay.
(function (builtin, load) {
  'use strict';
  // A cell may declare these names for itself; the driver keeps its own.
  const {
    process, Buffer, JSON, Object, Array, String, Number, BigInt, Symbol, Set, Error, SyntaxError, TypeError,
    Atomics, SharedArrayBuffer, Int32Array, ArrayBuffer,
  } = globalThis;
  const global = globalThis;
  const fs = builtin('fs');
  const net = builtin('net');
  const util = builtin('util');
  const path = builtin('path');
  const { createRequire } = builtin('module');
  const { pathToFileURL } = builtin('url');
  const { Session } = builtin('inspector');
  const { Worker } = builtin('worker_threads');

  const LONGEST_TEXT = 1 << 20;
  const LONGEST_MESSAGE = 1 << 16;
  const LONGEST_DISPLAY = 8 << 20;
  const INTERRUPT = { type: 'Interrupt', message: 'the cell was interrupted' };

  // ---- The protocol ----

  function write(fd, bytes) {
    for (let at = 0; at < bytes.length;) {
      try {
        at += fs.writeSync(fd, bytes, at);
      } catch (error) {
        if (error.code !== 'EAGAIN') throw error;
        Atomics.wait(shared, 3, 0, 1);
      }
    }
  }
  // Half a character (a lone surrogate) is a string to JavaScript and no text to anybody else.
  const whole = json => json.replace(/\\(?:\\|u(d[89a-f][0-9a-f]{2}))/g, (all, half) => half ? '\\ufffd' : all);
  const send = event => write(4, Buffer.from(whole(JSON.stringify(event)) + '\n'));
  const complain = text => { try { write(2, Buffer.from(text + '\n')); } catch { /* the kernel manager is gone */ } };

  function cut(text, longest, lengths, field) {
    if (text.length <= longest) return text;
    lengths[field] = text.length;
    return text.slice(0, longest);
  }

  const requests = new net.Socket({ fd: 3, readable: true, writable: false });
  let pieces = [];
  requests.on('data', chunk => {
    for (let end; (end = chunk.indexOf(10)) >= 0; chunk = chunk.subarray(end + 1)) {
      pieces.push(chunk.subarray(0, end));
      const line = Buffer.concat(pieces).toString();
      pieces = [];
      take(line);
    }
    if (chunk.length) pieces.push(chunk);
  });
  requests.on('close', () => process.reallyExit(0));
  requests.on('error', () => process.reallyExit(0));

  function take(line) {
    let request;
    try { request = JSON.parse(line); } catch { return; }
    if (request?.op === 'execute') execute(request.id, String(request.code));
    else if (request?.op === 'complete') complete(request.id, String(request.code));
    else if (request?.op === 'variables') {
      for (const name of request.unset ?? []) delete process.env[name];
      for (const [name, value] of Object.entries(request.set ?? {})) process.env[name] = value;
    }
  }

  // ---- Cells ----

  const session = new Session();
  session.connect();
  let current = null;
  let turn = 0;

  function execute(id, code) {
    guard();
    current = { id, turn: ++turn };
    Atomics.store(shared, 0, turn);
    evaluate(current, prepare(code));
  }

  function evaluate(cell, code, again) {
    const expression = `${code}\n//# sourceURL=<cell-${cell.id}>`;
    const how = { expression, replMode: true, awaitPromise: true, silent: true, objectGroup: 'cell' };
    session.post('Runtime.evaluate', how, (fault, reply) => {
      if (fault) return finish(cell, { error: INTERRUPT });
      const value = real(reply.result);
      if (!reply.exceptionDetails) return settle(cell, value);
      if (!again && value?.name === 'SyntaxError' && /has already been declared/.test(value.message)) {
        const other = prepare(code, true);
        if (other !== code) return evaluate(cell, other, true);
      }
      finish(cell, { thrown: value, details: reply.exceptionDetails });
    });
  }

  // A promise is waited for. What is only like one is left alone: waiting may start something.
  function settle(cell, value) {
    if (!util.types.isPromise(value)) return finish(cell, { value });
    value.then(inner => finish(cell, { value: inner }), thrown => finish(cell, { thrown }));
  }

  function finish(cell, outcome) {
    if (current !== cell) return;
    const done = { event: 'done', id: cell.id, result: null, error: outcome.error ?? null };
    const lengths = {};
    try {
      if ('thrown' in outcome) done.error = describe(cell.id, outcome, lengths);
      else if (outcome.value !== undefined) {
        richly(outcome.value);
        done.result = { 'text/plain': cut(inspect(outcome.value), LONGEST_TEXT, lengths, 'result') };
      }
    } catch (error) {
      done.error ??= { type: 'Error', message: `the value cannot be shown: ${String(error?.message)}` };
    }
    if (Object.keys(lengths).length) done.lengths = lengths;
    current = null;
    Atomics.store(shared, 0, 0);
    guard();
    session.post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
    session.post('Runtime.discardConsoleEntries');
    flushed(process.stdout, () => flushed(process.stderr, () => send(done)));
  }

  // Pipes are written at once on Linux, unless the cell put something else in place of the stream.
  function flushed(stream, then) {
    if (!stream.writableLength || stream.destroyed) return then();
    stream.write('', () => then());
  }

  const inspect = value => util.inspect(value, { maxStringLength: 4 << 20 });

  // An error with its stack, less what is the driver's and Node's own of it.
  const FRAME = /\n\s+at [^\n]*?(?= \{(?:\n|$)|\n|$)/g;
  const OURS = /atoll-driver\.js|\[eval\]|node:(?:inspector|events|net|vm|internal\/)/;
  const theirs = text => text.replace(FRAME, line => OURS.test(line) ? '' : line);
  const story = error => theirs(inspect(error)).replace(/<cell-(\d+)>/g, '<cell $1>');

  function describe(id, { thrown, details }, lengths) {
    const error = util.types.isNativeError(thrown) || (thrown instanceof Error);
    if (!error) {
      const text = cut(inspect(thrown), LONGEST_MESSAGE, lengths, 'message');
      return { type: thrown?.constructor?.name ?? typeof thrown, message: text, traceback: `Uncaught ${text}` };
    }
    let text = story(thrown);
    if (details && thrown.name === 'SyntaxError' && !text.includes('<cell ')) {
      text += `\n    at <cell ${id}>:${details.lineNumber + 1}:${details.columnNumber + 1}`;
    }
    return {
      type: String(thrown.name ?? 'Error').slice(0, 256),
      message: cut(String(thrown.message), LONGEST_MESSAGE, lengths, 'message'),
      traceback: cut(text, LONGEST_TEXT, lengths, 'traceback'),
    };
  }

  // What the inspector calls an object, as the object.
  let caught;
  const hook = value => { caught = value; };
  let hookId;
  global.$mport = hook;
  session.post('Runtime.evaluate', { expression: '$mport' }, (_, reply) => { hookId = reply.result.objectId; });
  function real(remote) {
    if (remote.objectId) {
      const functionDeclaration = 'function (value) { this(value) }';
      const given = [{ objectId: remote.objectId }];
      session.post('Runtime.callFunctionOn', { functionDeclaration, objectId: hookId, arguments: given, silent: true });
      const value = caught;
      caught = undefined;
      return value;
    }
    const odd = remote.unserializableValue;
    if (odd === undefined) return remote.value;
    return odd.endsWith('n') ? BigInt(odd.slice(0, -1)) : Number(odd);
  }

  // ---- Names and modules ----

  // `const` at the top becomes `let`, so that a later cell may declare the name again with either; `import`
  // becomes a call. Each word keeps its place, so that positions in a traceback are the cell's. `clash` holds
  // V8's complaint: what was a variable of the global object must stay one, and what was not cannot become one.
  function prepare(code, clash) {
    if (!clash && !/\b(const|import|export)\b/.test(code)) return code;
    try {
      return rewrite(code, clash);
    } catch {
      return code; // V8 says what is wrong with it, if anything is
    }
  }

  function rewrite(code, clash) {
    const { parse } = builtin('internal/deps/acorn/acorn/dist/acorn');
    const anywhere = { allowImportExportEverywhere: true, allowAwaitOutsideFunction: true, allowHashBang: true };
    const tree = parse(code, { ecmaVersion: 'latest', ...anywhere });
    const edits = [];
    const edit = (start, end, text) => edits.push({ start, end, text });
    const lexical = clash ? lexicalNames() : null;
    for (const node of tree.body) top(node, code, lexical, edit);
    (function walk(node) {
      const meta = node.type === 'MetaProperty' && node.meta.name === 'import';
      if (meta || node.type === 'ImportExpression') edit(node.start, node.start + 6, '$mport');
      for (const child of Object.values(node)) {
        if (Array.isArray(child)) child.forEach(each => each?.type && walk(each));
        else if (child?.type) walk(child);
      }
    })(tree);
    edits.sort((a, b) => b.start - a.start);
    return edits.reduce((text, { start, end, text: into }) => text.slice(0, start) + into + text.slice(end), code);
  }

  function top(node, code, lexical, edit) {
    if (node.type === 'ExportNamedDeclaration' && node.declaration) {
      edit(node.start, node.start + 6, ' '.repeat(6));
      top(node.declaration, code, lexical, edit);
    } else if (node.type === 'ImportDeclaration') {
      const lines = code.slice(node.start, node.end).split('\n').length - 1;
      edit(node.start, node.end, bindings(node) + '\n'.repeat(lines));
    } else if (lexical) {
      again(node, code, lexical, edit);
    } else if (node.type === 'VariableDeclaration' && node.kind === 'const') {
      edit(node.start, node.start + 5, 'let  ');
    }
  }

  // The same declarations, each by the word that what is there already allows.
  function again(node, code, lexical, edit) {
    const fixed = name => Object.getOwnPropertyDescriptor(global, name)?.configurable === false;
    const word = (name, usual) => lexical.has(name) ? 'let' : fixed(name) ? 'var' : usual;
    if (node.type === 'VariableDeclaration') {
      const usual = node.kind === 'var' ? 'var' : 'let';
      node.declarations.forEach((each, index) => {
        const use = names(each.id).map(name => word(name, null)).find(Boolean) ?? usual;
        if (index === 0) return edit(node.start, node.start + node.kind.length, use.padEnd(node.kind.length));
        const before = node.declarations[index - 1].end;
        edit(before, each.start, code.slice(before, each.start).replace(',', `;${use} `));
      });
    } else if (node.type === 'FunctionDeclaration' && word(node.id.name, 'var') === 'let') {
      edit(node.start, node.start, `let ${node.id.name} = `);
    } else if (node.type === 'ClassDeclaration' && word(node.id.name, 'let') === 'var') {
      edit(node.start, node.start, `var ${node.id.name} = `);
      edit(node.end, node.end, ';');
    }
  }

  function names(pattern) {
    if (pattern === null) return [];
    if (pattern.type === 'Identifier') return [pattern.name];
    const inner = pattern.properties ?? pattern.elements ?? [pattern.argument ?? pattern.left ?? pattern.value];
    return inner.flatMap(each => names(each?.type === 'Property' ? each.value : each ?? null));
  }

  function lexicalNames() {
    let found = [];
    session.post('Runtime.globalLexicalScopeNames', (_, reply) => { found = reply?.names ?? []; });
    return new Set(found);
  }

  function bindings(node) {
    const names = [];
    let whole = null;
    for (const each of node.specifiers) {
      if (each.type === 'ImportNamespaceSpecifier') whole = each.local.name;
      else names.push([each.imported ? each.imported.name ?? each.imported.value : 'default', each.local.name]);
    }
    const wanted = JSON.stringify(names.map(([name]) => name));
    const attributes = node.attributes ?? [];
    const given = Object.fromEntries(attributes.map(each => [each.key.name ?? each.key.value, each.value.value]));
    const options = attributes.length ? JSON.stringify({ with: given, assert: given }) : 'undefined';
    const call = `await $mport(${JSON.stringify(node.source.value)}, ${options}, ${wanted})`;
    const parts = names.map(([name, local]) => `${JSON.stringify(name)}: ${local}`).join(', ');
    if (whole) return `let ${whole} = ${call}${parts ? `, {${parts}} = ${whole}` : ''};`;
    return parts ? `let {${parts}} = ${call};` : `${call};`;
  }

  // ---- For a person who types ----

  // How a text could go on. Nothing of the cell's is called for it: what an expression stands for is asked of V8,
  // which refuses where finding out would change something.
  function complete(id, code) {
    const answer = { event: 'completion', id, prefix: '', matches: [], status: status(code) };
    const [typed] = /[\w$][\w$.]*$|$/.exec(code);
    try {
      if (typed) Object.assign(answer, { prefix: typed, matches: matching(typed) });
    } catch { /* an object that cannot be looked at has nothing to offer */ }
    send(answer);
  }

  function matching(typed) {
    const dot = typed.lastIndexOf('.');
    const [owner, start] = [typed.slice(0, Math.max(dot, 0)), typed.slice(dot + 1)];
    const found = dot < 0 ? [...lexicalNames(), ...namesOf(global)] : namesOf(valueOf(owner));
    const fits = name => name.startsWith(start) && /^[A-Za-z_$][\w$]*$/.test(name) && name.length < 200;
    const all = [...new Set(found.filter(fits))].sort().slice(0, 1000);
    return all.map(name => owner ? `${owner}.${name}` : name);
  }

  function valueOf(expression) {
    let value;
    const how = { expression, silent: true, throwOnSideEffect: true, timeout: 500, objectGroup: 'cell' };
    session.post('Runtime.evaluate', how, (fault, reply) => {
      if (!fault && !reply.exceptionDetails) value = real(reply.result);
    });
    return value;
  }

  function namesOf(value) {
    const found = [];
    for (let owner = value, depth = 0; owner !== null && owner !== undefined && depth < 20; depth++) {
      owner = Object(owner);
      found.push(...Object.getOwnPropertyNames(owner));
      owner = Object.getPrototypeOf(owner);
    }
    return found;
  }

  // Whether a text is whole, as Node's own prompt decides it: one that only lacks its end goes on.
  function status(code) {
    try {
      const { parse } = builtin('internal/deps/acorn/acorn/dist/acorn');
      const anywhere = { allowImportExportEverywhere: true, allowAwaitOutsideFunction: true, allowHashBang: true };
      try {
        parse(code, { ecmaVersion: 'latest', ...anywhere });
        return 'complete';
      } catch (error) {
        const open = /^Unterminated (template|comment)/.test(error.message);
        const ended = /^Unexpected token/.test(error.message) && error.pos >= code.trimEnd().length;
        return open || ended || /\\$/.test(code) ? 'incomplete' : 'invalid';
      }
    } catch {
      return 'unknown';
    }
  }

  // Modules are looked for from the working directory, wherever that is by now, then in $HOME/.node_modules.
  const here = () => createRequire(path.join(process.cwd(), 'cell.js'));
  function require(name) { return here()(name); }
  require.resolve = (name, options) => here().resolve(name, options);
  require.resolve.paths = name => here().resolve.paths(name);
  require.cache = builtin.cache;
  require.extensions = builtin.extensions;
  require.main = undefined;

  async function $mport(name, options, wanted) {
    const module = await find(String(name), options);
    if (!wanted || wanted.every(each => each in module)) return module;
    const known = { ...module.default, ...module };
    const missing = wanted.find(each => !(each in known));
    if (missing === undefined) return known;
    throw new SyntaxError(`The requested module '${name}' does not provide an export named '${missing}'`);
  }

  async function find(name, options) {
    if (/^\.{0,2}\//.test(name)) return load(pathToFileURL(path.resolve(name)).href, options);
    try {
      return await load(name, options);
    } catch (error) {
      const file = error?.code === 'ERR_MODULE_NOT_FOUND' ? atHome(name) : null;
      if (!file) throw error;
      return load(pathToFileURL(file).href, options);
    }
  }

  function atHome(name) {
    try { return here().resolve(name); } catch { /* made for import only, perhaps */ }
    const folder = path.join(process.env.HOME ?? '/', '.node_modules', name);
    try {
      let entry = JSON.parse(fs.readFileSync(path.join(folder, 'package.json'), 'utf8')).exports;
      while (entry && typeof entry === 'object') entry = entry['.'] ?? entry.node ?? entry.import ?? entry.default;
      return typeof entry === 'string' ? path.join(folder, entry) : null;
    } catch {
      return null;
    }
  }
  Object.defineProperty($mport, 'meta', { get: () => {
    const dirname = process.cwd();
    const filename = path.join(dirname, 'cell.js');
    const resolve = name => pathToFileURL(here().resolve(name)).href;
    return { filename, dirname, url: pathToFileURL(filename).href, resolve };
  } });

  // ---- Displays ----

  // The best first.
  const RICH = [
    'text/html', 'image/svg+xml', 'image/png', 'image/jpeg', 'audio/wav', 'audio/mpeg', 'audio/ogg', 'video/mp4',
    'text/markdown', 'application/json',
  ];
  const isText = type => type.startsWith('text/') || type === 'image/svg+xml' || type === 'application/json';

  function show(type, data) {
    let text = data;
    if (ArrayBuffer.isView(data)) text = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
    else if (util.types.isAnyArrayBuffer(data)) text = Buffer.from(data);
    if (Buffer.isBuffer(text)) text = text.toString(isText(type) ? 'utf8' : 'base64');
    if (typeof text !== 'string') text = JSON.stringify(text);
    if (text === undefined) throw new TypeError('there is nothing to display');
    if (text.length > LONGEST_DISPLAY) {
      type = 'text/plain';
      text = `[a display of ${text.length} characters was left out: it is too large]`;
    }
    send({ event: 'display', type, data: text });
  }

  // Shows the best of the forms that an object knows of itself; true if there was one.
  function richly(value) {
    if (value === null || typeof value !== 'object') return false;
    const way = value[Symbol.for('Jupyter.display')];
    let forms = null;
    if (typeof way === 'function') forms = way.call(value);
    else if (typeof value.toHtml === 'function') forms = { 'text/html': value.toHtml() };
    if (util.types.isPromise(forms) || forms === null || typeof forms !== 'object') return false;
    const type = RICH.find(each => forms[each] !== undefined) ?? Object.keys(forms)[0];
    if (type === undefined || forms[type] === undefined || util.types.isPromise(forms[type])) return false;
    show(type, forms[type]);
    return true;
  }

  function display(value) {
    if (!richly(value)) show('text/plain', typeof value === 'string' ? value : inspect(value));
  }
  display.html = text => show('text/html', String(text));
  display.svg = text => show('image/svg+xml', String(text));
  display.markdown = text => show('text/markdown', String(text));
  display.json = value => show('application/json', JSON.stringify(value));
  display.image = (data, type = 'image/png') => show(String(type), data);
  display.png = data => show('image/png', data);

  // ---- The process ----

  class ProcessExit extends Error {}
  ProcessExit.prototype.name = 'ProcessExit';
  process.exit = code => { throw new ProcessExit(`process.exit(${code ?? ''}) was called; the kernel goes on`); };
  const stray = (kind, error) => complain(`Uncaught (${kind}) ${story(error)}`);
  const listeners = {
    uncaughtException: error => stray('in a callback', error),
    unhandledRejection: error => stray('in a promise', error),
    SIGINT: () => {},
  };
  // A cell may have taken them away. With SIGINT's went the watcher's, which has to take it up again.
  function guard() {
    for (const name of Object.keys(listeners)) {
      if (process.listeners(name).includes(listeners[name])) continue;
      process.on(name, listeners[name]);
      if (name !== 'SIGINT') continue;
      Atomics.store(shared, 2, 1);
      Atomics.notify(shared, 2);
    }
  }

  // Shared with the thread that waits for SIGINT: which turn runs (0: none), the last ping answered, and
  // whether that thread has to begin anew.
  const shared = new Int32Array(new SharedArrayBuffer(16));
  function startWatcher() {
    const watcher = new Worker(`(${watch})()`, { eval: true, execArgv: [], env: {}, workerData: shared });
    watcher.unref();
    watcher.on('error', error => complain(`interrupts no longer work: ${error?.message}`));
    watcher.on('message', ([ping, turn]) => {
      Atomics.store(shared, 1, ping);
      Atomics.notify(shared, 1);
      if (current?.turn === turn) finish(current, { error: INTERRUPT });
    });
  }

  // Runs in the second thread. The inner script is broken by the first SIGINT; the outer one keeps the
  // signal's handler in place meanwhile. A main thread that rests answers and gives up the cell itself; one
  // that does not is in an endless loop.
  function watch() {
    const { workerData: shared, parentPort } = require('worker_threads');
    const { Session } = require('inspector');
    const { runInThisContext } = require('vm');
    const session = new Session();
    session.connectToMainThread();
    let ping = 0;
    globalThis.wait = () => { while (Atomics.load(shared, 2) === 0) Atomics.wait(shared, 2, 0); };
    globalThis.turns = () => {
      for (;;) {
        try { return runInThisContext('wait()', { breakOnSigint: true }); } catch { /* SIGINT */ }
        parentPort.postMessage([++ping, Atomics.load(shared, 0)]);
        const answered = () => Atomics.load(shared, 1) === ping;
        for (let tries = 0; tries < 10 && !answered(); tries++) Atomics.wait(shared, 1, Atomics.load(shared, 1), 10);
        if (!answered()) session.post('Runtime.terminateExecution');
      }
    };
    for (;;) {
      Atomics.store(shared, 2, 0);
      try { runInThisContext('turns()', { breakOnSigint: true }); } catch { /* SIGINT between two waits */ }
    }
  }

  Error.stackTraceLimit = 30;
  process.execArgv = [];
  for (const [name, value] of Object.entries({ require, display, $mport })) {
    Object.defineProperty(global, name, { value, configurable: true, writable: true, enumerable: false });
  }
  guard();
  Atomics.store(shared, 2, 0);
  startWatcher();
  send({ event: 'ready', interpreter: `Node.js ${process.version}` });
})
