"""Runs cells inside a Python interpreter, for the kernel manager. README.md beside this file is the protocol.

Here are descriptors, events, interrupts and requests. The rest is in the files of `python/`, which come with this one,
share its names, and are compiled when they are first needed: `world` (what user code finds) and `cell` (running one)
at the start; `show` (pictures, HTML), `errors` (tracebacks), `ipython` (magics) and `copy` (checkpoints and forks)
perhaps never. So a kernel that only adds numbers starts in the time that Python itself needs.

Two invariants. User code runs only below `enter`, and only there can an interrupt end it. And nothing is imported
from the working directory for the driver's own sake: see `hidden`.
"""
import sys

# `-c` put the working directory first. It comes back before the first cell.
sys.path[:] = [entry for entry in sys.path if entry]

import _signal  # The C half of `signal`, without its enums: it is a tenth of our start.
import _thread
import builtins
import faulthandler
import io
import itertools
import os
import posix  # What `os` is made of. Test tools replace the functions of `os`.
import types

# Of a value's text, an error's message and a traceback, in characters. The kernel manager cuts further.
MOST_TEXT, MOST_MESSAGE, MOST_TRACEBACK = 1 << 20, 1 << 16, 1 << 18
LONGEST_LINE = 16 << 20
# Where our own descriptors live: out of the way of user code, and closed in whatever it starts.
REQUESTS, EVENTS, FORKS, OUT, ERR = range(100, 105)
MAIN = sys.modules["__main__"]
EVERY_SIGNAL = set(_signal.valid_signals())


class State:
    """What changes. There is one."""

    pid = posix.getpid()
    count = 0
    cell = None  # whose `done` is still owed
    reader, lines = None, []  # requests, and the one that is being served
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
    code = PARTS.pop(name, None)  # the boot line gives it
    if code is not None:
        exec(compile(code, "<atoll>", "exec"), globals())
        raise_deferred()


def hidden(name):
    """Imports a module of Python itself, whatever files lie in the working directory."""
    if name not in sys.modules:
        kept = sys.path[:]
        sys.path[:] = [entry for entry in kept if entry not in ("", ".")]
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
    if isinstance(value, list):
        return "[" + ",".join(map(write_json, value)) + "]"
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
            rest = rest[posix.write(EVENTS, rest):]
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
    """A child that a cell forked must not write to the kernel manager in our name."""
    if S.copying == _thread.get_ident():
        return
    for descriptor in (REQUESTS, EVENTS, FORKS, OUT, ERR):
        try:
            posix.close(descriptor)
        except OSError:
            pass
    try:
        nowhere = posix.open(os.devnull, posix.O_WRONLY)
        posix.dup2(nowhere, EVENTS, inheritable=False)
        posix.close(nowhere)
    except OSError:
        pass
    S.lock = _thread.allocate_lock()


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
    make_checkpoint(request)


def fork(request):
    part("copy")
    make_fork(request)


def complete(request):
    part("complete")
    answer_completion(request)


OPERATIONS = {"execute": lambda request: execute(request), "variables": variables, "checkpoint": checkpoint,
              "fork": fork, "complete": complete}


def open_requests():
    S.reader, S.lines = io.BufferedReader(io.FileIO(REQUESTS, "rb", closefd=False), 1 << 16), []


def serve():
    tries = 0
    while True:
        # A signal handler of the user's can raise between any two of our steps. So a line goes from the pipe into the
        # list in one step, and stays there until it is answered.
        try:
            tries += 1
            if not S.lines:
                tries = 0
                S.lines += itertools.islice(S.reader, 1)
                if not S.lines:
                    return
            if S.lines[0] != b"\n":
                request = read_json(S.lines[0].decode())
                OPERATIONS[request["op"]](request)
            S.lines.clear()
        except BaseException as error:
            if posix.getpid() != S.pid:
                posix._exit(1)
            if S.cell is not None or tries > 3:
                S.lines.clear()
            outside_of_a_cell(error)


def outside_of_a_cell(error):
    try:
        posix.fstat(REQUESTS)
    except OSError:
        posix._exit(1)  # user code closed every descriptor: the kernel manager cannot be reached
    text = "%s outside of a cell: %s" % (type(error).__name__, error)
    if S.cell is not None:
        cell, S.cell = S.cell, None
        write_line(b"\n")  # the error may have cut an event short
        emit(event="done", id=cell, result=None,
             error={"type": type(error).__name__, "message": text, "traceback": text})
    else:
        posix.write(2, text.encode("utf-8", "replace") + b"\n")


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
            posix.dup2(descriptor, place, inheritable=False)
            posix.close(descriptor)
        except OSError:
            if descriptor != 5:  # without 5 there is only no forking
                raise
    posix.dup2(1, OUT, inheritable=False)
    posix.dup2(2, ERR, inheritable=False)


def find_installs():
    """What pip installs for the user later is found too: Python looks there only if it is there at its start."""
    site = sys.modules.get("site")
    if not getattr(site, "ENABLE_USER_SITE", None):
        return
    folder = site.getusersitepackages()
    if folder not in sys.path:
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError:
            return
        sys.path.append(folder)


def begin():
    keep_descriptors()
    open_requests()
    part("world")
    part("cell")
    for name in [name for name in MAIN.__dict__ if not name.startswith("__")]:
        del MAIN.__dict__[name]  # the boot line's
    sys.argv[:] = [""]
    open_streams(anew=True)
    builtins.input, builtins.display, builtins.exit, builtins.quit = no_input, display, leave, leave
    sys.breakpointhook = no_debugger
    os.environ.setdefault("MPLBACKEND", "Agg")
    _signal.signal(_signal.SIGINT, on_interrupt)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {_signal.SIGINT})
    posix.register_at_fork(after_in_child=after_user_fork)
    faulthandler.enable(2, all_threads=False)
    S.ipython = find_ipython()
    for name, hook in HOOKS.items():
        if name in sys.modules:
            adjust(hook, sys.modules[name])
    sys.meta_path.insert(0, AfterImport)
    sys.path.insert(0, "")
    find_installs()
    say_ready()
    serve()


MAIN_THREAD = _thread.get_ident()
begin()
