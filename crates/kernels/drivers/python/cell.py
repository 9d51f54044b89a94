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
        try:
            return repr(value)
        except Exception:
            pass  # something in it; told below
    part("show")
    return show_value(value)  # noqa: F821


def execute(request):
    S.cell = request["id"]
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
    if posix.getpid() != S.pid:
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
    S.cell = None


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
    posix._exit(code & 255)
