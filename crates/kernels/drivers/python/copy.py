"""Checkpoints and forks: copies of this process, made by the kernel's copy-on-write. A copy has the variables, the
modules and the open files; of the threads it has only this one.

A copy is made by forking twice, so that it is no child of the interpreter: `os.wait()` in a cell never meets it. It
leads a process group of its own, so that what is sent to the live one's group does not reach it."""

def make_copy(announce):
    """Calls `announce` with the copy's process id and returns it; in the copy itself returns 0, with every signal
    blocked."""
    flush()
    generator = sys.modules.get("random")
    numbers = generator.getstate() if generator is not None else None
    mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, EVERY_SIGNAL)
    waiting = _signal.sigpending()
    inside, outside = posix.pipe()
    original = True
    try:
        with S.lock:
            S.copying = _thread.get_ident()
            middle = posix.fork()
            if middle == 0:
                original = False
                fork_again(outside)
                become_copy(mask, numbers)
                return 0
        S.copying = None
        posix.close(outside)
        outside = None
        pid = int(posix.read(inside, 32) or 0)
        if pid:
            announce(pid)  # before waiting: the middle one has much to tear down
        try:
            posix.waitpid(middle, 0)
        except ChildProcessError:
            pass  # the user lets the kernel reap
        if _signal.SIGCHLD not in waiting:
            _signal.sigtimedwait({_signal.SIGCHLD}, 0)  # of our own child; no handler of the user's hears of it
        if not pid:
            raise OSError("the process could not be copied: too many processes or too little memory")
        return pid
    finally:
        posix.close(inside)
        if outside is not None:
            posix.close(outside)
        if original:
            S.copying = None
            _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)


def fork_again(outside):
    """Returns in the copy; the process between it and the original says the copy's id and ends."""
    middle = posix.getpid()
    try:
        pid = posix.fork()
    except BaseException:
        posix._exit(1)
    if pid == 0:
        poll = hidden("select").poll()
        for _ in range(1000):
            if posix.getppid() != middle:
                break
            poll.poll(1)  # a millisecond: by the time this copy reports itself, its parent is the process that it reports to
        return
    try:
        posix.setpgid(pid, pid)
        posix.write(outside, b"%d" % pid)
    finally:
        posix._exit(0)


def become_copy(mask, numbers):
    S.pid, S.copying = posix.getpid(), None
    S.lock = _thread.allocate_lock()
    open_requests()
    # A thread that is not here any more may have held the streams' locks.
    open_streams(anew=type(sys.stdout) is Stream and type(sys.stderr) is Stream)
    if S.mask is None:
        S.mask = mask
    if numbers is not None:
        # `random` seeds itself anew in every child. What was drawn after a checkpoint is drawn again after returning
        # to it, as every other variable comes back.
        sys.modules["random"].setstate(numbers)
    if S.loop is not None:
        # Its descriptors are shared with the process that this is a copy of: it is left alone, not closed.
        S.old_loops = getattr(S, "old_loops", []) + [S.loop]
        S.loop = None


def lost():
    """What a copy is without."""
    tasks = 0
    if S.loop is not None:
        tasks = sum(not task.done() for task in hidden("asyncio").all_tasks(S.loop))
    return {"threads_lost": len(sys._current_frames()) - 1, "tasks_lost": tasks}


S.mask = None


def make_checkpoint(request):
    losses = lost()
    try:
        pid = make_copy(lambda pid: emit(event="checkpoint", id=request["id"], pid=pid, **losses))
    except Exception as error:
        return emit(event="checkpoint", id=request["id"], error=str(error))
    if pid == 0:
        wait_to_live()


def wait_to_live():
    """A checkpoint's life. Returns where this process has become a live interpreter."""
    while True:
        number = next_signal()
        descriptors = []
        try:
            if number == _signal.SIGUSR1:
                if make_copy(say_restored):
                    return wake()
                continue
            descriptors = receive()
            if make_copy(lambda pid: None) == 0:
                return become_fork(descriptors)
        except Exception:
            if number == _signal.SIGUSR1:
                posix._exit(1)  # the kernel manager sees that there is nothing to return to
        close_all(descriptors)  # where no copy has them, the kernel manager sees that too


def next_signal():
    poll = hidden("select").poll()
    poll.register(EVENTS, 0)
    while True:
        told = _signal.sigtimedwait({_signal.SIGUSR1, _signal.SIGUSR2}, 10)
        if told is not None:
            return told.si_signo
        if poll.poll(0):
            posix._exit(0)  # the kernel manager, which read our events, is gone


def say_restored(checkpoint):
    """Rolled back: this process takes the place of the one that was killed, and its copy waits in its own."""
    poll = hidden("select").poll()
    poll.register(REQUESTS, 1)
    while poll.poll(0) and posix.read(REQUESTS, 1 << 16):
        pass  # what the killed one did not read was not meant for us
    forget_signals()
    write_line(b"\n")
    emit(event="restored", pid=posix.getpid(), checkpoint=checkpoint)


def wake():
    mask, S.mask = S.mask, None
    _signal.signal(_signal.SIGINT, on_interrupt)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)


def forget_signals():
    """What was sent while this process waited was not meant for the interpreter that it becomes."""
    while _signal.sigtimedwait(EVERY_SIGNAL, 0) is not None:
        pass


def make_fork(request):
    losses = lost()
    descriptors = []
    try:
        descriptors = receive()
        pid = make_copy(lambda pid: emit(event="forked", id=request["id"], pid=pid, **losses))
    except Exception as error:
        close_all(descriptors)
        return emit(event="forked", id=request["id"], error=str(error))
    if pid == 0:
        return become_fork(descriptors)
    close_all(descriptors)


def become_fork(descriptors):
    """A kernel of its own, with pipes of its own."""
    places = ((1, True), (2, True), (REQUESTS, False), (EVENTS, False), (FORKS, False))
    for descriptor, (place, inheritable) in zip(descriptors, places):
        posix.dup2(descriptor, place, inheritable=inheritable)
    close_all(descriptors)
    posix.dup2(1, OUT, inheritable=False)
    posix.dup2(2, ERR, inheritable=False)
    forget_signals()
    wake()
    say_ready()


def receive():
    """The five descriptors of a new kernel."""
    socket, select = hidden("socket"), hidden("select")
    poll = select.poll()
    poll.register(FORKS, 1)
    if not poll.poll(5000):
        raise OSError("no descriptors came for the new kernel")
    channel = socket.socket(fileno=posix.dup(FORKS))
    try:
        _, descriptors, _, _ = socket.recv_fds(channel, 1, 5, socket.MSG_CMSG_CLOEXEC)
    finally:
        channel.close()
    if len(descriptors) != 5:
        close_all(descriptors)
        raise OSError("a new kernel needs five descriptors; %d came" % len(descriptors))
    return descriptors


def close_all(descriptors):
    for descriptor in descriptors:
        posix.close(descriptor)
