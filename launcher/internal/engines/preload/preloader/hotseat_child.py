"""Makes a forked child equal to a process that was started by exec."""

import ctypes
import multiprocessing.process
import os
import socket
import stat
import sys

from hotseat_proc import stat_field


def become(request, fds, import_changes, import_output):
    """Makes the child equal to a process that was started with the request by exec.
    Such a process would write import_output during its imports, and make
    import_changes to its environment."""
    log, gate = fds[:2]
    os.dup2(log, 1)
    os.dup2(log, 2)
    for fd in sorted(int(name) for name in os.listdir("/proc/self/fd")):
        if fd > 2 and fd != gate:
            try:
                os.close(fd)
            except OSError:
                continue  # the descriptor that listed the folder
    if os.read(gate, 1) != b"g":
        os._exit(0)  # the launcher has closed the gate
    os.close(gate)
    os.write(1, import_output)
    if request["dir"]:
        os.chdir(request["dir"])
    os.umask(request["umask"])
    env = {name: value for name, value in (request["env"] | import_changes).items() if value is not None}
    for name in list(os.environ):
        if name not in env:
            del os.environ[name]
    os.environ.update(env)
    sys.orig_argv = list(request["argv"])
    sys.argv = sys.orig_argv[1 + request["flags"]:]
    show_in_proc(sys.orig_argv, request["env"])
    reseed()


def show_in_proc(argv, env):
    """Writes arguments and environment where the kernel shows them (proc(5)), as far
    as there is space. Tools that read them there see those of the instance."""
    write_strings(stat_field("self", 48), stat_field("self", 49), argv)
    marks_first = sorted(env.items(), key=lambda variable: variable[0] not in ("HOTSEAT_INSTANCE", "HOTSEAT_LAUNCHER", "HOTSEAT_PUBLIC"))
    write_strings(stat_field("self", 50), stat_field("self", 51), [f"{name}={value}" for name, value in marks_first])
    ctypes.CDLL(None).prctl(15, os.fsencode(os.path.basename(sys.argv[0]))[:15], 0, 0, 0)  # PR_SET_NAME, as exec does


def write_strings(start, end, strings):
    room, text = end - start, b""
    for string in strings:
        entry = os.fsencode(string) + b"\0"
        if len(text) + len(entry) > room:
            break
        text += entry
    ctypes.memmove(start, text.ljust(room, b"\0"), room)


def reseed():
    """Gives the child its own random state. Python renews its own after a fork, but
    not numpy's, and not the key that the processes of multiprocessing share."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
    multiprocessing.process.current_process().authkey = os.urandom(32)


def close_listeners():
    """Closes the API server's port or socket in the children that vLLM forks. A spawned
    child would not have it."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode) and is_listener(fd):
                os.dup2(null, fd, inheritable=False)
        except OSError:
            continue  # the descriptor that listed the folder
    os.close(null)


def close_sentinels():
    """Closes, in Worker, the pipe that shows its reader when EngineCore ends. A spawned
    child would not hold it (Popen._launch of multiprocessing/popen_fork.py)."""
    frame, sentinels = sys._getframe(), []
    while frame := frame.f_back:
        if frame.f_code.co_name == "_launch" and "child_w" in frame.f_locals:
            sentinels.append(frame.f_locals["child_w"])
    for fd in sentinels[1:]:  # the first is Worker's own pipe
        os.close(fd)


def is_listener(fd):
    with socket.socket(fileno=os.dup(fd)) as sock:
        if sock.type != socket.SOCK_STREAM:
            return False
        if sock.family == socket.AF_UNIX:
            if sock.getsockname() not in own_sockets():
                return False  # one of vLLM's between its processes
        elif sock.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        try:
            sock.getpeername()
        except OSError:
            return True
        return False


def own_sockets():
    """Returns the paths at which the API server was told to listen."""
    line = sys.orig_argv
    return [value for option, value in zip(line, line[1:]) if option == "--uds"]


def run(order, code):
    """Runs the engine's command to its end."""
    main = type(sys)("__main__")
    main.__file__ = order["script"]
    main.__builtins__ = __builtins__
    sys.modules["__main__"] = main
    if order["fork_children"]:
        from multiprocessing import resource_tracker

        # A spawned child would find the tracker running, and would not have its parent's port.
        os.register_at_fork(before=resource_tracker.ensure_running, after_in_child=close_listeners)
        os.register_at_fork(after_in_child=close_sentinels)
    exec(code, main.__dict__)
    sys.exit()
