"""The preloader of hotseat: imports an engine once, and forks it for each instance.

The launcher runs it with the engine's own interpreter and talks to it over the
socket on descriptor 3: frames of four bytes (big endian) with the length of
the JSON that follows; descriptors travel with the four bytes.

  order    launcher -> here   {script, main, modules, versions, ...}
  hello    here -> launcher   {version, load_time, watch, ...} or {refused}
  request  launcher -> here   {argv, flags, env, dir, umask}, descriptors: log, gate, cgroup.procs ...
  answer   here -> launcher   {pid, start_time} or {error}

A forked child waits at its gate until the launcher has taken it over: one byte
lets it run, the end of the file ends it. So nothing runs that the launcher does
not know of, whoever dies in between. When the launcher's end of the socket is
closed the preloader ends; what it has forked is not its child and lives on.

It runs no code but the engine's, stays single-threaded and never touches an
accelerator: both are looked at after the imports and before each fork.
"""

import ctypes
import gc
import importlib
import importlib.metadata
import json
import os
import socket
import stat
import struct
import sys
import time

CONTROL = 3
CUDA_ERROR_NOT_INITIALIZED = 3  # cuda.h
PF_EXITING = 0x4  # flag of a thread that is about to be gone (include/linux/sched.h)
ACCELERATORS = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/dxg", "/dev/accel", "/dev/davinci")


class Refusal(Exception):
    """Why this process must not be forked."""


def receive(control):
    """One frame and its descriptors; None at the end of the file."""
    head, fds, _, _ = socket.recv_fds(control, 4, 32)
    if len(head) < 4:
        return None, fds
    size, body = struct.unpack(">I", head)[0], b""
    while len(body) < size:
        part = control.recv(size - len(body))
        if not part:
            return None, fds
        body += part
    return json.loads(os.fsdecode(body)), fds  # text is as Python would have decoded it from its own start


def send(control, message):
    body = json.dumps(message).encode()
    control.sendall(struct.pack(">I", len(body)) + body)


def check_peer(control):
    """The other end must be held by our parent, of our user (SO_PEERCRED, unix(7))."""
    pid, uid, _ = struct.unpack("3i", control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if uid != os.getuid() or pid != os.getppid():
        raise Refusal(f"the control socket belongs to process {pid} of user {uid}, not to the launcher")


def read_file(path):
    with open(path, "rb") as file:
        return file.read()


def initial_environment():
    """What this process was started with, whatever the interpreter's own start added."""
    pairs = (entry.partition(b"=") for entry in read_file("/proc/self/environ").split(b"\0") if entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def watch_reads():
    """Records the names of variables that Python code looks at from now on."""
    read = set()

    class Watched(type(os.environ)):
        def __getitem__(self, name):
            read.add(name)
            return super().__getitem__(name)

        def __contains__(self, name):
            read.add(name)
            return super().__contains__(name)

    plain, os.environ.__class__ = os.environ.__class__, Watched

    def stop():
        os.environ.__class__ = plain
        return {name for name in read if isinstance(name, str)}

    return stop


def threads():
    """The names of the threads beside this one."""
    known = {}
    if "threading" in sys.modules:
        known = {str(t.native_id): t.name for t in sys.modules["threading"].enumerate()}
    names = []
    for tid in os.listdir("/proc/self/task"):
        try:
            if tid == str(os.getpid()) or stat_field(f"self/task/{tid}", 9) & PF_EXITING:
                continue
            names.append(known.get(tid) or os.fsdecode(read_file(f"/proc/self/task/{tid}/comm")).strip())
        except OSError:
            continue  # it has ended
    return names


def try_fork():
    """Has libraries that know of forks end their threads (pthread_atfork(3)), as
    OpenBLAS does, which starts them when it is loaded and when they are needed.
    Says whether torch is at peace with it: once it has looked for devices it
    refuses CUDA to all that is forked (torch/csrc/cuda/Module.cpp)."""
    child = os.fork()
    if child == 0:
        os._exit(getattr(getattr(sys.modules.get("torch"), "cuda", None), "_is_in_bad_fork", bool)())
    return os.waitpid(child, 0)[1] == 0


def accelerator():
    """What of an accelerator this process holds; None when nothing."""
    for fd in os.listdir("/proc/self/fd"):
        target = os.path.realpath(f"/proc/self/fd/{fd}")
        if target.startswith(ACCELERATORS):
            return f"{target} is open"
    torch = sys.modules.get("torch")
    for kind in ("cuda", "xpu"):
        device = getattr(torch, kind, None)
        if device is not None and device.is_initialized():
            return f"torch has initialised {kind}"
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None  # it is not even loaded
    # Until cuInit was called, by whichever library, the driver answers nothing else.
    up = driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != CUDA_ERROR_NOT_INITIALIZED
    return "libcuda.so.1, the driver of CUDA, is initialised" if up else None


def check_forkable():
    if threads():
        try_fork()
    names = threads()
    if names:
        raise Refusal(f"{len(names)} more thread(s) run in it, and a fork would lose them: {', '.join(sorted(names))}")
    held = accelerator()
    if held:
        raise Refusal(f"it holds an accelerator, which does not survive a fork: {held}")


def import_all(order):
    """Imports what the order names; what is optional and not there is left out."""
    for name in order["modules"]:
        importlib.import_module(name)
    optional, skipped = order["optional_modules"] or [], {}
    if order["platform_modules"]:
        from vllm.platforms import current_platform

        optional += order["platform_modules"].get(current_platform.device_type, [])
    for name in optional:
        try:
            importlib.import_module(name)
        except Exception as error:  # vLLM imports it or not, and says so better
            skipped[name] = f"{type(error).__name__}: {error}"
    return skipped


def fork_children(order, version):
    """Arranges that vLLM forks EngineCore and Worker too, and gives the variables that does it.

    On CUDA vLLM has a documented switch, and itself spawns when it must. The
    platform of CPUs overrides it, so there the function that decides is
    replaced, for the versions that this was checked with.
    """
    import multiprocessing
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        if not try_fork():
            raise Refusal("torch has looked for devices, and refuses CUDA to a forked process")
        switch = "VLLM_WORKER_MULTIPROC_METHOD"
        return {} if switch in os.environ else {switch: "fork"}
    if version not in order["versions"]:
        raise Refusal(f"that vLLM forks its own processes on CPUs was checked with {', '.join(order['versions'])}, not with {version}")
    from vllm.utils import system_utils

    original = system_utils.get_mp_context

    def get_mp_context():
        if "--numa-bind" in sys.argv or system_utils.is_in_ray_actor():
            return original()
        return multiprocessing.get_context("fork")

    for module in list(sys.modules.values()):
        if getattr(module, "get_mp_context", None) is original:
            module.get_mp_context = get_mp_context
    return {}


def preload(order):
    """Imports, checks, freezes; gives the hello."""
    began = time.monotonic()
    start = initial_environment()
    sys.path[0:1] = [] if sys.flags.safe_path else [os.path.dirname(os.path.realpath(order["script"]))]
    stop = watch_reads()
    skipped = import_all(order)
    version = importlib.metadata.version(order["distribution"])
    variables = fork_children(order, version) if order["fork_children"] else {}
    read = stop()
    if "setproctitle" in sys.modules:
        sys.modules["setproctitle"].getproctitle()  # it finds its room while the arguments are as they were
    check_forkable()
    gc.collect()
    gc.freeze()
    now = dict(os.environ)
    wrote = {name: now.get(name) for name in start.keys() | now.keys() if start.get(name) != now.get(name)}
    wrote.update(variables)
    return wrote, {
        "version": version, "python": sys.version.split()[0], "modules": len(sys.modules),
        "seconds": round(time.monotonic() - began, 3), "skipped": skipped,
        "load_time": sorted(read | wrote.keys()), "watch": watched_files(order),
    }


def watched_files(order):
    """Files and folders that change when the installation does."""
    paths = {os.path.realpath(sys.executable), os.path.realpath(order["script"])}
    for name in ("vllm", "torch", "transformers"):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            paths |= {file, os.path.dirname(os.path.dirname(file))}
    return sorted(paths)


def fork(request, fds):
    """Forks a child whose parent ends at once, so that it becomes the
    launcher's. Gives the answer, and None in the child."""
    reader, writer = os.pipe()
    middle = os.fork()
    if middle == 0:
        try:
            for group in fds[2:]:
                os.write(group, b"0")  # the writer itself: the child is born into it
            if os.fork():
                os._exit(0)
            os.setsid()
            os.write(writer, json.dumps({"pid": os.getpid(), "start_time": stat_field("self", 22)}).encode())
        except BaseException as error:
            os.write(writer, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
            os._exit(1)
        return None
    os.close(writer)
    os.waitpid(middle, 0)
    with open(reader, "rb") as report:
        answer = report.read()
    return json.loads(answer) if answer else {"error": "the child ended before it began"}


def stat_field(process, number):
    """A field of /proc/…/stat by its number in proc_pid_stat(5), from 3 on."""
    return int(read_file(f"/proc/{process}/stat").rpartition(b")")[2].split()[number - 3])


def become(request, fds, wrote):
    """Turns the child into what an exec of the request would have made."""
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
    """Siblings share no random state: Python's own is fresh after a fork, numpy's is not."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


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
    frame, own = sys._getframe(), True
    while frame is not None:
        if frame.f_code.co_name == "_launch" and "child_w" in frame.f_locals:
            if not own:
                os.close(frame.f_locals["child_w"])
            own = False
        frame = frame.f_back


def listener(fd):
    with socket.socket(fileno=os.dup(fd)) as sock:
        if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_STREAM:
            return False
        try:
            sock.getpeername()
        except OSError:
            return True
        return False


def serve():
    """Answers requests until the launcher goes away; returns in a forked child alone."""
    control = socket.socket(fileno=CONTROL)
    try:
        check_peer(control)
        order, _ = receive(control)
        if order is None:
            os._exit(0)
        wrote, hello = preload(order)
    except BaseException as error:
        send(control, {"refused": str(error) if isinstance(error, Refusal) else f"{type(error).__name__}: {error}"})
        raise
    send(control, hello)
    while True:
        request, fds = receive(control)
        if request is None:
            os._exit(0)
        try:
            check_forkable()
            answer = fork(request, fds)
        except Refusal as refusal:
            send(control, {"refused": str(refusal)})
            sys.exit(1)
        except OSError as error:
            answer = {"error": f"cannot fork: {error}"}
        if answer is None:
            control.detach()  # closed with all the others
            become(request, fds, wrote)
            return order
        for fd in fds:
            os.close(fd)
        send(control, answer)


def run(order):
    main = type(sys)("__main__")
    main.__file__ = order["script"]
    main.__builtins__ = __builtins__
    sys.modules["__main__"] = main
    module, _, function = order["main"].partition(":")
    entry = getattr(importlib.import_module(module), function)
    if order["fork_children"]:
        from multiprocessing import resource_tracker

        # A spawned child would find the tracker running, and no port of its parent's.
        os.register_at_fork(before=resource_tracker.ensure_running, after_in_child=drop_listeners)
        os.register_at_fork(after_in_child=drop_sentinels)
    sys.exit(entry())


run(serve())
