"""IPython, for what Python itself does not know: magics, `!shell`, `help?`, `get_ipython()`. The driver runs the
cells; IPython only reads those that it is needed for. It is loaded with the first of them, writes no file, keeps no
history on disk and uses no colours."""


def load_ipython():
    hidden("IPython")
    S.shell = make_shell()
    S.shell.builtin_trap.activate()
    raise_deferred()


WHOLE.add(load_ipython.__code__)


def make_shell():
    from IPython.core import interactiveshell, displaypub, formatters
    from traitlets.config import Config

    class Publisher(displaypub.DisplayPublisher):
        def publish(self, data, *_arguments, **_options):
            publish_bundle(data)

        def clear_output(self, *_arguments, **_options):
            pass

    class Formatter(formatters.DisplayFormatter):
        def format(self, obj, include=None, exclude=None):
            if own_display(obj):
                return {}, {}
            forms = rich_form(obj, at_once=True)
            return {**({forms[0]: forms[1]} if forms else {}), "text/plain": text_of(obj)}, {}

    class Nowhere:
        """A profile without a folder."""
        location = "/nonexistent"
        startup_dir = security_dir = log_dir = pid_dir = static_dir = location

    class Shell(interactiveshell.InteractiveShell):
        profile_dir = None
        db = None

        def init_profile_dir(self, profile_dir=None):
            self.profile_dir = Nowhere

        def init_display_formatter(self):
            self.display_formatter = Formatter(parent=self)
            self.configurables.append(self.display_formatter)

        def init_display_pub(self):
            self.display_pub = Publisher(parent=self)
            self.configurables.append(self.display_pub)

        def init_completer(self):
            self.Completer = None  # a cell has no keyboard, so no key completes a word

        def set_custom_completer(self, *_arguments, **_options):
            pass

        def system(self, cmd):
            """On our own descriptors, so that output is seen at once; and an interrupt ends the cell."""
            command = self.var_expand(cmd, depth=1)
            shell = "/bin/bash" if os.path.exists("/bin/bash") else None
            self.user_ns["_exit_code"] = hidden("subprocess").call(command, shell=True, executable=shell)

        system_piped = system_raw = system

        def ask_exit(self):
            raise SystemExit

        def enable_gui(self, gui=None):
            if gui not in (None, "inline", "agg"):
                raise RuntimeError("there is no screen here: " + str(gui))

        def atexit_operations(self):
            pass

    Shell.__qualname__ = "Shell"
    # The database of `%store` is made by the constructor, in the profile's folder.
    if hasattr(interactiveshell, "PickleShareDB"):
        interactiveshell.PickleShareDB = lambda *_arguments: {}
    settings = Config()
    settings.HistoryManager.enabled = False
    settings.InteractiveShell.colors = "NoColor" if interactive_version() < 9 else "nocolor"
    shell = Shell.instance(ipython_dir="/", user_module=MAIN, user_ns=MAIN.__dict__, config=settings)
    interactiveshell.InteractiveShell._instance = shell
    if shell.db is None:
        shell.db = {}
    shell.set_hook("show_in_pager", show_page)
    shell.execution_count = S.count
    builtins.input = no_input
    builtins.exit = builtins.quit = MAIN.__dict__["exit"] = MAIN.__dict__["quit"] = leave
    return shell


def interactive_version():
    return sys.modules["IPython"].version_info[0]


def show_page(_shell, data, *_arguments, **_options):
    print(data.get("text/plain", "") if isinstance(data, dict) else data)


def transform(code):
    """Python, from what IPython understands."""
    return S.shell.transform_cell(code)


def before_cell(tree, code):
    shell = S.shell
    shell.execution_count = S.count
    shell.history_manager.store_inputs(S.count, code, code)
    shell.events.trigger("pre_execute")
    shell.events.trigger("pre_run_cell", sys.modules["IPython.core.interactiveshell"].ExecutionInfo(
        code, True, False, True, None))
    return shell.transform_ast(tree) if shell.ast_transformers else tree


def end_of_cell():
    S.shell.events.trigger("post_execute")
