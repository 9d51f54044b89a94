"""Tracebacks: the cell's own frames and those below, never the driver's; bounded, without colours."""

MOST_FRAMES = 1000


def describe(error, lengths):
    """What the kernel manager is told of an error."""
    try:
        message = str(error)
    except BaseException as broken:
        message = "<its message could not be made: %s>" % type(broken).__name__
    try:
        trace = format_trace(error)
    except BaseException as broken:
        trace = "%s: %s\n<its traceback could not be made: %s>" % (
            type(error).__name__, message[:MOST_MESSAGE], type(broken).__name__)
    for field, text, most in (("message", message, MOST_MESSAGE), ("traceback", trace, MOST_TRACEBACK)):
        if len(text) > most:
            lengths[field] = len(text)
    if len(trace) > MOST_TRACEBACK:
        # Its end says what happened, its beginning where.
        half = MOST_TRACEBACK // 2 - 16
        trace = trace[:half] + "\n  [...]\n" + trace[-half:]
    return {"type": type(error).__name__, "message": whole_characters(message[:MOST_MESSAGE]),
            "traceback": whole_characters(trace)}


def format_trace(error):
    if type(error).__name__ == "UsageError" and S.shell is not None:
        return "UsageError: " + str(error)  # a magic was misspelt: where IPython found that helps no user
    traceback = hidden("traceback")
    for each in chain(error):
        each.__traceback__ = own_frames(each.__traceback__)
        give_source(each)
    told = traceback.TracebackException(type(error), error, error.__traceback__)
    lines = list(told.format())
    if error.__traceback__ is None and lines and lines[0].startswith("Traceback"):
        lines = lines[1:]  # a mistake in the cell's syntax was found before anything ran
    return "".join(lines).rstrip("\n")


def chain(error):
    """The error, those that led to it, and those in it; each once."""
    seen, rest = [], [error]
    while rest and len(seen) < 100:
        each = rest.pop()
        if each is None or any(each is other for other in seen):
            continue
        seen.append(each)
        rest += [each.__cause__, each.__context__]
        rest += getattr(each, "exceptions", ()) if type(each).__name__.endswith("Group") else ()
    return seen


def own_frames(trace):
    """The traceback from the cell on, without the driver, and without the middle of a very deep one."""
    frames = []
    while trace is not None:
        if trace.tb_frame.f_code.co_filename != "<atoll>":
            frames.append(trace)
        trace = trace.tb_next
    first = next((at for at, frame in enumerate(frames) if frame.tb_frame.f_code.co_filename.startswith("<cell ")), 0)
    frames = frames[first:]
    if len(frames) > 2 * MOST_FRAMES:
        frames = frames[:MOST_FRAMES] + frames[-MOST_FRAMES:]
    following = None
    for frame in reversed(frames):
        frame.tb_next = following
        following = frame
    return following


def give_source(error):
    """The compiler's later passes know the line's number but not its text."""
    if isinstance(error, SyntaxError) and not error.text and error.filename in S.sources:
        lines = S.sources[error.filename]
        if error.lineno and error.lineno <= len(lines):
            error.text = lines[error.lineno - 1]
