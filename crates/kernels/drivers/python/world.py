"""What user code finds: streams that are seen at once, no input, `display`, and modules that are adjusted when user
code imports them. Nothing here runs a cell."""


class Stream(io.TextIOWrapper):
    """Seen at once, and in order with what child processes print."""

    def write(self, text):
        count = super().write(text)
        self.flush()
        return count


def open_streams(anew=False):
    for name, descriptor, kept in (("stdout", 1, OUT), ("stderr", 2, ERR)):
        try:
            posix.fstat(descriptor)
        except OSError:
            posix.dup2(kept, descriptor)
        stream = getattr(sys, name, None)
        if stream is None or getattr(stream, "closed", False) or anew:
            raw = io.FileIO(descriptor, "wb", closefd=False)
            raw.name = "<" + name + ">"
            stream = Stream(io.BufferedWriter(raw), "utf-8", "backslashreplace", newline="\n")
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


def no_input(*_arguments, **_options):
    raise StdinNotImplementedError(
        "input() is not available: a cell has no terminal to read from. Give the value in the code, in a file or in a variable.")


def no_debugger(*_arguments, **_options):
    raise StdinNotImplementedError("breakpoint() is not available: a cell has no terminal to read from.")


def leave(code=None):
    raise SystemExit(*([] if code is None else [code]))


def display(*objects, **_options):
    """Shows objects: as pictures or HTML where they can, else as text."""
    part("show")
    for thing in objects:
        show(thing)


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
        if run is not None and not isinstance(spec.loader, type):
            def exec_module(module):
                run(module)
                if module.__name__ == name:
                    adjust(hook, module)
            try:
                spec.loader.exec_module = exec_module
            except AttributeError:
                pass
        return spec


def adjust(hook, module):
    try:
        hook(module)
    except Exception:
        pass  # another version of it than we know: it is left as it is


def on_getpass(module):
    module.getpass = module.unix_getpass = module.fallback_getpass = no_input


def on_linecache(module):
    for name, lines in S.sources.items():
        module.cache[name] = (sum(map(len, lines)), None, lines, name)


def on_asyncio(_module):
    if _thread.get_ident() == MAIN_THREAD:
        event_loop()


def on_pyplot(module):
    part("show")
    module.show = show_figures


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
