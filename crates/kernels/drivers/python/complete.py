"""How a text could go on, and whether it is whole: for a person who types. Names come from the cells' own namespace;
looking at an object's attributes may run code of the user's, and so happens below `enter`."""

MOST_MATCHES, LONGEST_MATCH = 1000, 500


def answer_completion(request):
    code = request["code"]
    S.lines.clear()
    S.pending = S.deferred = False
    prefix, matches, status = "", [], "unknown"
    try:
        status = code_status(code)
        prefix, matches = enter(completions, code)
    except BaseException:
        pass  # an object that cannot be looked at has no attributes to offer
    emit(event="completion", id=request["id"], prefix=prefix, matches=matches, status=status)


def completions(code):
    line = code.rsplit("\n", 1)[-1]
    at = len(line)
    while at and (line[at - 1].isidentifier() or line[at - 1].isdigit() or line[at - 1] == "."):
        at -= 1
    prefix = line[at:]
    if not prefix or line[:at].count('"') % 2 or line[:at].count("'") % 2:
        return "", []
    completer = hidden("rlcompleter").Completer(MAIN.__dict__)
    found = completer.attr_matches(prefix) if "." in prefix else completer.global_matches(prefix)
    found = sorted({match.rstrip("( :") for match in found if len(match) <= LONGEST_MATCH})
    return prefix, [match for match in found if match.startswith(prefix)][:MOST_MATCHES]


def code_status(code):
    """As Python's own prompt decides it, but for cells of several statements, which are whole where they compile."""
    if S.ipython and (code.lstrip()[:1] in ("%", "!") or code.rstrip()[-1:] == "?"):
        return "complete"
    compiler = hidden("codeop").CommandCompiler()
    compiler.compiler.flags |= 0x2000  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        return "complete" if compiler(code, "<typed>", "single") else "incomplete"
    except (SyntaxError, ValueError, OverflowError):
        pass
    try:
        compile(code, "<typed>", "exec", 0x2000, dont_inherit=True)
        return "complete"
    except (SyntaxError, ValueError, OverflowError):
        return "invalid"
