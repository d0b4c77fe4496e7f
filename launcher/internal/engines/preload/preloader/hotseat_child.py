"""What a forked child does to be what an exec would have made."""

import ctypes
import multiprocessing.process
import os
import socket
import stat
import sys

from hotseat_proc import stat_field


def become(request, fds, wrote, said):
    """Turns the child into what an exec of the request would have made: said is
    what that would have written while it imported."""
    log, gate = fds[:2]
    os.dup2(log, 1)
    os.dup2(log, 2)
    for fd in sorted(int(name) for name in os.listdir("/proc/self/fd")):
        if fd > 2 and fd != gate:
            try:
                os.close(fd)
            except OSError:
                continue  # the one that listed the folder
    if os.read(gate, 1) != b"g":
        os._exit(0)  # the launcher does not let it run
    os.close(gate)
    os.write(1, said)
    if request["dir"]:
        os.chdir(request["dir"])
    os.umask(request["umask"])
    env = {name: value for name, value in (request["env"] | wrote).items() if value is not None}
    for name in list(os.environ):
        if name not in env:
            del os.environ[name]
    os.environ.update(env)
    sys.orig_argv = list(request["argv"])
    sys.argv = sys.orig_argv[1 + request["flags"]:]
    show(sys.orig_argv, request["env"])
    reseed()


def show(argv, env):
    """Writes arguments and environment where the kernel shows them (proc(5)),
    as far as there is room, so that tools that look there see the instance."""
    put(stat_field("self", 48), stat_field("self", 49), argv)
    marks_first = sorted(env.items(), key=lambda variable: variable[0] not in ("HOTSEAT_INSTANCE", "HOTSEAT_LAUNCHER"))
    put(stat_field("self", 50), stat_field("self", 51), [f"{name}={value}" for name, value in marks_first])
    ctypes.CDLL(None).prctl(15, os.fsencode(os.path.basename(sys.argv[0]))[:15], 0, 0, 0)  # PR_SET_NAME, as exec does


def put(start, end, strings):
    room, text = end - start, b""
    for string in strings:
        entry = os.fsencode(string) + b"\0"
        if len(text) + len(entry) > room:
            break
        text += entry
    ctypes.memmove(start, text.ljust(room, b"\0"), room)


def reseed():
    """Siblings share no random state: Python's own is fresh after a fork, numpy's
    and the key by which the processes of multiprocessing know each other are not."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
    multiprocessing.process.current_process().authkey = os.urandom(32)


def drop_listeners():
    """In vLLM's own forked children: gives back the port of the API server,
    which a spawned child would not have."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode) and listener(fd):
                os.dup2(null, fd, inheritable=False)
        except OSError:
            continue  # the one that listed the folder
    os.close(null)


def drop_sentinels():
    """In Worker: gives back the pipe by whose end EngineCore's is told, which a
    spawned child would not hold (Popen._launch of multiprocessing/popen_fork.py)."""
    frame, sentinels = sys._getframe(), []
    while frame := frame.f_back:
        if frame.f_code.co_name == "_launch" and "child_w" in frame.f_locals:
            sentinels.append(frame.f_locals["child_w"])
    for fd in sentinels[1:]:  # the first is its own
        os.close(fd)


def listener(fd):
    with socket.socket(fileno=os.dup(fd)) as sock:
        if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_STREAM:
            return False
        try:
            sock.getpeername()
        except OSError:
            return True
        return False


def run(order, code):
    """The engine's command, to its end."""
    main = type(sys)("__main__")
    main.__file__ = order["script"]
    main.__builtins__ = __builtins__
    sys.modules["__main__"] = main
    if order["fork_children"]:
        from multiprocessing import resource_tracker

        # A spawned child would find the tracker running, and no port of its parent's.
        os.register_at_fork(before=resource_tracker.ensure_running, after_in_child=drop_listeners)
        os.register_at_fork(after_in_child=drop_sentinels)
    exec(code, main.__dict__)
    sys.exit()
