"""Runs cells inside a Python interpreter, for the warden. README.md beside this file is the protocol.

Here is what every cell needs: descriptors, events, interrupts, running, the loop. The rest is in the files of
`python/`, which come with this one and are compiled when they are first needed: `show` (pictures, HTML), `errors`
(tracebacks), `ipython` (magics), `copy` (checkpoints and forks). A kernel that only adds numbers starts in the time
that Python itself needs.

Two invariants. User code runs only below `enter`, and only there can an interrupt end it. And nothing is imported
from the working directory for the driver's own sake: see `hidden`.
"""
import sys

# `-c` put the working directory first. It comes back before the first cell.
sys.path[:] = [entry for entry in sys.path if entry]

import _ast  # noqa: E402
import _signal  # noqa: E402  (The C half of `signal`, without its enums: it is a tenth of our start.)
import _thread
import builtins
import io
import os
import types

# Of a value's text, an error's message and a traceback, in characters. The warden cuts further.
MOST_TEXT, MOST_MESSAGE, MOST_TRACEBACK = 1 << 20, 1 << 16, 1 << 18
LONGEST_LINE = 16 << 20
# Of the cells' text that tracebacks can quote, in characters.
MOST_SOURCE = 8 << 20
# Where our own descriptors live: out of the way of user code, and closed in whatever it starts.
REQUESTS, EVENTS, FORKS, OUT, ERR = range(100, 105)
TOP_LEVEL_AWAIT, ONLY_TREE, COROUTINE = 0x2000, 0x400, 0x80
MAIN = sys.modules["__main__"]


async def _coroutine():
    pass


class State:
    """What changes. There is one."""

    pid = os.getpid()
    count = 0
    buffer = b""
    lock = _thread.allocate_lock()
    pending = deferred = False  # an interrupt that came before user code began, or inside an event
    copying = None  # the thread that makes a copy of this process
    loop = None  # asyncio's, from its first use on
    flags = 0  # `from __future__ import …` holds for later cells too
    sources, source_size = {}, 0
    shown = [None, None, None]  # what `_`, `__` and `___` were set to
    shell = None
    ipython = None  # its version, where it can be had


S = State


def part(name):
    """Compiles a part of the driver that was not needed before."""
    code = PARTS.pop(name, None)  # noqa: F821  (the boot line gives it)
    if code is not None:
        exec(compile(code, "<atoll>", "exec"), globals())
        raise_deferred()


def hidden(name):
    """Imports a module of Python itself, whatever files lie in the working directory."""
    if name not in sys.modules:
        kept = sys.path[:]
        here = os.getcwd() if name else ""
        sys.path[:] = [entry for entry in kept if entry not in ("", ".", here)]
        try:
            __import__(name)
        finally:
            sys.path[:] = kept
    return sys.modules[name]


# -- JSON, without `json`, whose regular expressions are a quarter of our start.

def _json_reader():
    try:
        from _json import make_scanner
    except ImportError:
        return hidden("json").loads
    settings = types.SimpleNamespace(
        strict=False, object_hook=None, object_pairs_hook=None,
        parse_float=float, parse_int=int, parse_constant=float, memo={})
    scan = make_scanner(settings)
    return lambda text: scan(text, 0)[0]


try:
    from _json import encode_basestring as quote
except ImportError:
    quote = hidden("json.encoder").encode_basestring
read_json = _json_reader()


def write_json(value):
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "{" + ",".join(quote(key) + ":" + write_json(item) for key, item in value.items()) + "}"
    return quote(value) if isinstance(value, str) else str(int(value))


def whole_characters(text):
    """Half a surrogate pair is no text; it is shown as an escape."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()


# -- Events and interrupts.

def emit(**event):
    line = write_json(event)
    try:
        line = line.encode()
    except UnicodeEncodeError:
        line = line.encode("utf-8", "replace")
    write_line(line + b"\n")


def write_line(line):
    """Half a line would swallow the next one, so that an interrupt waits: see `WHOLE`."""
    rest = memoryview(line)
    with S.lock:
        while rest:
            rest = rest[os.write(EVENTS, rest):]
    raise_deferred()


def raise_deferred():
    if S.deferred and _thread.get_ident() == MAIN_THREAD:
        S.deferred = False
        raise KeyboardInterrupt


def enter(function, *arguments):
    """Everything below this frame is the user's and can be interrupted; nothing else can."""
    if S.pending:
        S.pending = False
        raise KeyboardInterrupt
    return function(*arguments)


def on_interrupt(_number, frame):
    # Which frame was interrupted tells for sure where we are; a flag would be set a moment too early or too late.
    whole = False
    while frame is not None:
        if frame.f_code in WHOLE:
            whole = True
        elif frame.f_code is enter.__code__:
            if not whole:
                raise KeyboardInterrupt
            S.deferred = True
            return
        frame = frame.f_back
    S.pending = True


# What is done whole or not at all: an interrupt ends the cell directly after it.
WHOLE = {write_line.__code__, part.__code__}


def after_user_fork():
    """A child that a cell forked speaks to nobody in our name."""
    if S.copying == _thread.get_ident():
        return
    for descriptor in (REQUESTS, EVENTS, FORKS, OUT, ERR):
        try:
            os.close(descriptor)
        except OSError:
            pass
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), EVENTS, inheritable=False)
    except OSError:
        pass
    S.lock = _thread.allocate_lock()


# -- What user code finds.

class Stream(io.TextIOWrapper):
    """Seen at once, and in order with what child processes print."""

    def write(self, text):
        count = super().write(text)
        self.flush()
        return count


def open_streams():
    for name, descriptor, kept in (("stdout", 1, OUT), ("stderr", 2, ERR)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.dup2(kept, descriptor)
        stream = getattr(sys, name, None)
        if stream is None or getattr(stream, "closed", False) or S.count == 0:
            raw = io.BufferedWriter(io.FileIO(descriptor, "wb", closefd=False))
            stream = Stream(raw, "utf-8", "backslashreplace", newline="\n")
            stream.mode = "w"
            setattr(sys, name, stream)
            setattr(sys, "__" + name + "__", stream)


def flush():
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            stream.flush()
        except BaseException:  # whatever a user put there
            pass


class StdinNotImplementedError(RuntimeError):
    __module__ = "builtins"  # so that a traceback names it without naming us


def no_input(prompt="", *_arguments, **_options):
    raise StdinNotImplementedError(
        "input() is not available: nobody answers here. Give the value in the code, in a file or in a variable.")


def leave(code=None):
    raise SystemExit(*([] if code is None else [code]))


def display(*objects, **_options):
    """Shows objects: as pictures or HTML where they can, else as text."""
    part("show")
    for thing in objects:
        show(thing)  # noqa: F821


class AfterImport:
    """Adjusts a few modules when, and only if, user code imports them."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        hook = HOOKS.get(name)
        if hook is None:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find and finder is not AfterImport else None
            if spec is not None:
                break
        else:
            return None
        run = getattr(spec.loader, "exec_module", None)
        if run is not None:
            def exec_module(module):
                run(module)
                hook(module)
            try:
                spec.loader.exec_module = exec_module
            except AttributeError:
                pass
        return spec


def on_getpass(module):
    module.getpass = module.unix_getpass = module.fallback_getpass = no_input


def on_linecache(module):
    for name, lines in S.sources.items():
        module.cache[name] = (sum(map(len, lines)), None, lines, name)


def on_asyncio(_module):
    event_loop()


def on_pyplot(module):
    part("show")
    module.show = show_figures  # noqa: F821


def on_plotly(module):
    part("show")
    module.BaseFigure.show = module.BaseFigure._ipython_display_ = lambda figure, *_a, **_o: display(figure)


HOOKS = {"getpass": on_getpass, "linecache": on_linecache, "asyncio": on_asyncio, "matplotlib.pyplot": on_pyplot,
         "plotly.basedatatypes": on_plotly}


def event_loop():
    """One for all cells, so that a task of one can be awaited in another. It turns only while a cell awaits."""
    asyncio = hidden("asyncio")
    if S.loop is None or S.loop.is_closed():
        S.loop = asyncio.new_event_loop()
    asyncio.set_event_loop(S.loop)
    return S.loop


# -- A cell.

def remember(name, code):
    lines = [line + "\n" for line in code.split("\n")]
    S.sources[name] = lines
    S.source_size += len(code) + 1
    while S.source_size > MOST_SOURCE and len(S.sources) > 1:
        oldest = next(iter(S.sources))
        S.source_size -= sum(map(len, S.sources.pop(oldest)))
        if "linecache" in sys.modules:
            sys.modules["linecache"].cache.pop(oldest, None)
    if "linecache" in sys.modules:
        sys.modules["linecache"].cache[name] = (len(code), None, lines, name)


def undefined_word(code):
    """Whether the cell is one line like `ls -l`: IPython takes it for a magic where nothing has that name."""
    code = code.strip()
    end = next((at for at, letter in enumerate(code) if not (letter.isalnum() or letter == "_")), len(code))
    word = code[:end]
    return ("\n" not in code and word.isidentifier() and code[end:end + 1] not in ("(", ".", "[")
            and word not in MAIN.__dict__ and not hasattr(builtins, word))


def parse(code, name):
    return compile(code, name, "exec", ONLY_TREE | TOP_LEVEL_AWAIT | S.flags, True)


def read_cell(code, name):
    """The cell's tree and text. IPython reads it where Python cannot, so that it is loaded for those who use it."""
    wanted = S.ipython is not None
    if wanted and S.shell is None and ("IPython" in code or "get_ipython" in code or "Out[" in code or "In[" in code):
        part("ipython")
        load_ipython()  # noqa: F821
    try:
        tree = parse(code, name)
        single = len(tree.body) == 1 and isinstance(tree.body[0], _ast.Expr)
        again = single and undefined_word(code)
    except SyntaxError:
        again = any(mark in code for mark in "%!?") or "\n" not in code.strip() or ">>> " in code or "In [" in code
        if not (wanted and again):
            remember(name, code)
            raise
    if wanted and again:
        part("ipython")
        code = transform(code)  # noqa: F821
        remember(name, code)
        tree = parse(code, name)
    else:
        remember(name, code)
    return tree, code


def is_quiet(expression, code):
    """Whether a semicolon follows the last expression."""
    line = code.splitlines()[expression.end_lineno - 1].encode()
    return line[expression.end_col_offset:].lstrip().startswith(b";")


def run_cell(code):
    name = "<cell %d>" % S.count
    tree, code = read_cell(code, name)
    if S.shell is not None:
        tree = before_cell(tree, code)  # noqa: F821
    last, quiet = None, False
    if tree.body and isinstance(tree.body[-1], _ast.Expr):
        expression = tree.body.pop()
        quiet = is_quiet(expression, code)
        last = _ast.Expression(expression.value)
    mode = TOP_LEVEL_AWAIT | S.flags
    body = compile(tree, name, "exec", mode, True)
    S.flags |= body.co_flags & FUTURE
    if last is not None:
        last = compile(last, name, "eval", mode | S.flags, True)
    if (body.co_flags | (last.co_flags if last else 0)) & COROUTINE:
        value = in_loop(cell(body, last))
    else:
        exec(body, MAIN.__dict__)
        value = eval(last, MAIN.__dict__) if last else None
    if type(value) is COROUTINE_TYPE:
        value = in_loop(value)
    return None if value is None or quiet else result_of(value)


async def cell(body, last):
    namespace = MAIN.__dict__
    value = eval(body, namespace)
    if body.co_flags & COROUTINE:
        await value
    if last is None:
        return None
    value = eval(last, namespace)
    return await value if last.co_flags & COROUTINE else value


def in_loop(coroutine):
    loop = event_loop()
    task = loop.create_task(coroutine)
    try:
        return loop.run_until_complete(task)
    except (KeyboardInterrupt, SystemExit) as error:
        if task.done():
            raise
        # Its `finally` blocks run, and where it was waiting is what the traceback shows.
        task.cancel()
        loop.run_until_complete(hidden("asyncio").wait({task}, timeout=2))
        where = None
        if task.done():
            try:
                task.result()
            except BaseException as cancelled:
                where = cancelled.__traceback__
        raise error.with_traceback(where) from None


PLAIN = (int, float, complex, bool, str, bytes, list, tuple, dict, set, frozenset, range, type)


def result_of(value):
    namespace = MAIN.__dict__
    names = ("_", "__", "___")
    # As in IPython: who uses these names for something else keeps them.
    if all(name not in namespace or namespace[name] is old for name, old in zip(names, S.shown)):
        S.shown = [value] + S.shown[:2]
        namespace.update(zip(names, S.shown))
    if S.shell is not None:
        namespace["_oh"][S.count] = namespace["_%d" % S.count] = value
    if type(value) in PLAIN and S.shell is None:
        return repr(value)
    part("show")
    return show_value(value)  # noqa: F821


def execute(request):
    S.pending = S.deferred = False
    open_streams()
    S.count += 1
    if S.loop is not None:
        event_loop()
    answer = {"event": "done", "id": request["id"], "result": None, "error": None}
    lengths, error, text = {}, None, None
    try:
        text = enter(run_cell, request["code"])
    except BaseException as raised:
        error = raised
    if os.getpid() != S.pid:
        end_child(error)
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None or S.shell is not None:
        part("show")
        error = after_cell(error)  # noqa: F821
    if error is not None:
        part("errors")
        answer["error"] = describe(error, lengths)  # noqa: F821
    elif text is not None:
        if len(text) > MOST_TEXT:
            lengths["result"] = len(text)
        answer["result"] = {"text/plain": whole_characters(text[:MOST_TEXT])}
    if lengths:
        answer["lengths"] = lengths
    error = text = None  # with them go the frames of the cell and what they hold
    _signal.signal(_signal.SIGINT, on_interrupt)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {_signal.SIGINT})
    flush()
    emit(**answer)


def end_child(error):
    """A process that a cell forked has come back into the driver."""
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        part("errors")
        sys.stderr.write(describe(error, {})["traceback"] + "\n")  # noqa: F821
        code = 1
    flush()
    os._exit(code & 255)


# -- Requests.

def variables(request):
    for name in request.get("unset", ()):
        os.environ.pop(name, None)
    for name, value in request.get("set", {}).items():
        try:
            os.environ[name] = value
        except (ValueError, OSError):
            pass  # a name that no environment can hold


def checkpoint(request):
    part("copy")
    make_checkpoint(request)  # noqa: F821


def fork(request):
    part("copy")
    make_fork(request)  # noqa: F821


OPERATIONS = {"execute": execute, "variables": variables, "checkpoint": checkpoint, "fork": fork}


def next_line():
    while b"\n" not in S.buffer:
        more = os.read(REQUESTS, 1 << 16)
        if not more:
            return None
        S.buffer += more
    line, _, S.buffer = S.buffer.partition(b"\n")
    return line


def serve():
    while True:
        try:
            line = next_line()
            if line is None:
                return
            if line:
                request = read_json(line.decode())
                OPERATIONS[request["op"]](request)
        except BaseException as error:  # a signal handler of the user's raised outside of a cell
            if os.getpid() != S.pid:
                os._exit(1)
            try:
                sys.__stderr__.write("%s between two cells: %s\n" % (type(error).__name__, error))
            except BaseException:
                pass


def find_ipython():
    """IPython's version, without importing it."""
    for finder in sys.meta_path:
        spec = finder.find_spec("IPython", None) if hasattr(finder, "find_spec") else None
        if spec is None or not spec.origin:
            continue
        try:
            with open(os.path.join(os.path.dirname(spec.origin), "core", "release.py")) as file:
                numbers = dict(line.split(" = ", 1) for line in file if line.startswith("_version_m") or
                               line.startswith("_version_patch"))
            return ".".join(str(int(numbers["_version_" + name])) for name in ("major", "minor", "patch"))
        except (OSError, ValueError, KeyError):
            return "of unknown version"
    return None


def say_ready():
    version = "Python %d.%d.%d" % sys.version_info[:3]
    emit(event="ready", interpreter=version + (", IPython " + S.ipython if S.ipython else ""), pid=S.pid)


def keep_descriptors():
    for descriptor, place in ((3, REQUESTS), (4, EVENTS), (5, FORKS)):
        try:
            os.dup2(descriptor, place, inheritable=False)
            os.close(descriptor)
        except OSError:
            pass  # without 5 there is no forking
    os.dup2(1, OUT, inheritable=False)
    os.dup2(2, ERR, inheritable=False)


def begin():
    keep_descriptors()
    for name in [name for name in MAIN.__dict__ if not name.startswith("__")]:
        del MAIN.__dict__[name]  # the boot line's
    sys.argv[:] = [""]
    open_streams()
    builtins.input, builtins.display, builtins.exit, builtins.quit = no_input, display, leave, leave
    os.environ.setdefault("MPLBACKEND", "Agg")
    _signal.signal(_signal.SIGINT, on_interrupt)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {_signal.SIGINT})
    os.register_at_fork(after_in_child=after_user_fork)
    S.ipython = find_ipython()
    for name, hook in HOOKS.items():
        if name in sys.modules:
            hook(sys.modules[name])
    sys.meta_path.insert(0, AfterImport)
    sys.path.insert(0, "")
    say_ready()
    serve()


MAIN_THREAD = _thread.get_ident()
_sample = _coroutine()
COROUTINE_TYPE = type(_sample)
_sample.close()
FUTURE = 0x1000000  # `annotations`, the one that still makes a difference
begin()
