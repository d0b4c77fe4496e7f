"""Whether this process may be forked: alone in itself, and without an accelerator."""

import ctypes
import os
import sys
import threading

from hotseat_proc import read_file, stat_field

CONTROL = 3  # descriptor of the socket to the launcher
CUDA_ERROR_NOT_INITIALIZED = 3  # cuda.h
PF_EXITING = 0x4  # flag of a thread that is about to be gone (include/linux/sched.h)


class Refusal(Exception):
    """Why this process must not be forked."""


def threads():
    """The names of the threads beside this one."""
    known, names = {str(t.native_id): t.name for t in threading.enumerate()}, []
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
    """What of an accelerator this process has initialised; None when nothing. That
    no device is open is known: nothing is."""
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


class Files:
    """The files that this process has loaded modules from."""

    def __init__(self):
        modules = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        self.states = {file: state(file) for file in modules if isinstance(file, str) and os.path.isabs(file)}

    def changed(self):
        return next((file for file, was in self.states.items() if state(file) != was), None)


def state(file):
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def held_open(known):
    """What is open beside the standard streams and what is known; a child would
    lose it, though whoever opened it lives on there."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            if fd > 2 and fd not in known:
                return os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue  # the one that listed the folder
    return None


def check_forkable(files, *fds):
    changed = files.changed()
    if changed:
        raise Refusal(f"{changed} has changed since it was loaded")
    left = held_open({CONTROL, *fds})
    if left:
        raise Refusal(f"an import left {left} open")
    if threads():
        try_fork()
    names = threads()
    if names:
        raise Refusal(f"{len(names)} more thread(s) run in it, and a fork would lose them: {', '.join(sorted(names))}")
    held = accelerator()
    if held:
        raise Refusal(f"it holds an accelerator, which does not survive a fork: {held}")
