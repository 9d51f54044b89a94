"""One cell: read, compiled, run, its value and its error told. Below `enter` everything is the user's."""

import _ast

TOP_LEVEL_AWAIT, ONLY_TREE, COROUTINE = 0x2000, 0x400, 0x80
FUTURE = 0x1000000  # `annotations`, the one that still makes a difference
# Of the cells' text that tracebacks can quote, in characters.
MOST_SOURCE = 8 << 20


async def _coroutine():
    pass


_sample = _coroutine()
COROUTINE_TYPE = type(_sample)
_sample.close()


def remember(name, code):
    lines = [line + "\n" for line in code.split("\n")]
    S.source_size += len(code) + 1 - sum(map(len, S.sources.pop(name, ())))
    S.sources[name] = lines
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
            and word not in ("lambda", "not", "await", "yield")
            and word not in MAIN.__dict__ and not hasattr(builtins, word))


def parse(code, name):
    return compile(code, name, "exec", ONLY_TREE | TOP_LEVEL_AWAIT | S.flags, True)


def have_ipython():
    """Loads it, where there is one to load."""
    if S.ipython is not None and S.shell is None:
        part("ipython")
        try:
            load_ipython()
        except Exception as error:
            S.ipython = None
            sys.stderr.write("IPython could not be loaded: %s: %s\n" % (type(error).__name__, error))
    return S.shell is not None


def read_cell(code, name):
    """The cell's tree and text. IPython reads it where Python cannot, so that it is loaded for those who use it."""
    remember(name, code)
    if any(word in code for word in ("IPython", "get_ipython", "Out[", "In[")):
        have_ipython()
    try:
        tree = parse(code, name)
        single = len(tree.body) == 1 and isinstance(tree.body[0], _ast.Expr)
        if not (single and undefined_word(code) and have_ipython()):
            return tree, code
    except SyntaxError as error:
        magic = any(mark in code for mark in "%!?") or "\n" not in code.strip() or ">>> " in code or "In [" in code
        if not (magic and have_ipython()):
            if (error.text or "").lstrip().startswith(("%", "!")):
                error.msg += " (magics and !commands need IPython, which this Python does not have)"
            raise
    code = transform(code)
    remember(name, code)
    return parse(code, name), code


def is_quiet(expression, code):
    """Whether a semicolon follows the last expression."""
    # Not `splitlines`, which knows more kinds of lines than Python's grammar does.
    lines = code.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    line = lines[expression.end_lineno - 1].encode()
    return line[expression.end_col_offset:].lstrip().startswith(b";")


def run_cell(code, result_variable=False):
    name = "<cell %d>" % S.count
    tree, code = read_cell(code, name)
    if S.shell is not None:
        tree = before_cell(tree, code)
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
    if result_variable and last is None and "result" in body.co_names:
        value = MAIN.__dict__.get("result")
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
            task.cancelled() or task.exception()  # seen: asyncio need not complain
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
    if S.shell is None and any(type(value) is kind for kind in PLAIN):
        try:
            return repr(value)
        except Exception:
            pass  # something in it; told below
    part("show")
    return show_value(value)


def execute(request):
    S.cell = request["id"]
    S.lines.clear()
    S.pending = S.deferred = False
    open_streams()
    S.count += 1
    if S.loop is not None:
        event_loop()
    MAIN.__dict__.setdefault("__name__", "__main__")
    answer = {"event": "done", "id": request["id"], "result": None, "error": None}
    lengths, error, text = {}, None, None
    try:
        text = enter(run_cell, request["code"], request.get("result_variable", False))
    except BaseException as raised:
        error = raised
    if posix.getpid() != S.pid:
        end_child(error)
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None or S.shell is not None:
        part("show")
        error = after_cell(error)
    if error is not None:
        part("errors")
        answer["error"] = describe(error, lengths)
    elif text is not None:
        if len(text) > MOST_TEXT:
            lengths["result"] = len(text)
        answer["result"] = {"text/plain": whole_characters(text[:MOST_TEXT])}
    if lengths:
        answer["lengths"] = lengths
    error = text = None  # with them go the frames of the cell and what they hold
    _signal.signal(_signal.SIGINT, on_interrupt)
    flush()
    # No handler of the user's comes between the answer and our knowing that it was given.
    mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, EVERY_SIGNAL)
    emit(**answer)
    S.cell = None
    _signal.pthread_sigmask(_signal.SIG_SETMASK, mask - {_signal.SIGINT})


def end_child(error):
    """A process that a cell forked has come back into the driver."""
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        part("errors")
        sys.stderr.write(describe(error, {})["traceback"] + "\n")
        code = 1
    flush()
    posix._exit(code & 255)
