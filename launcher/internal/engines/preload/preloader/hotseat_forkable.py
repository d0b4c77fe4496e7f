"""Checks whether this process may be forked: it must have one thread and no accelerator."""

import ctypes
import os
import sys
import threading

from hotseat_proc import read_file, stat_field

CONTROL = 3  # descriptor of the socket to the launcher
CUDA_ERROR_NOT_INITIALIZED = 3  # cuda.h
PF_EXITING = 0x4  # flag of a thread that is ending (include/linux/sched.h)


class Refusal(Exception):
    """Why this process must not be forked."""


def threads():
    """Returns the names of the threads other than this one."""
    known, names = {str(t.native_id): t.name for t in threading.enumerate()}, []
    for tid in os.listdir("/proc/self/task"):
        try:
            if tid == str(os.getpid()) or stat_field(f"self/task/{tid}", 9) & PF_EXITING:
                continue
            names.append(known.get(tid) or os.fsdecode(read_file(f"/proc/self/task/{tid}/comm")).strip())
        except OSError:
            continue  # the thread has ended
    return names


def try_fork():
    """Forks once, and returns whether torch would allow CUDA in a forked process.
    Once torch has looked for devices, it refuses that (torch/csrc/cuda/Module.cpp).
    The fork also makes libraries end their threads (pthread_atfork(3)). OpenBLAS does
    so: it starts threads when it is loaded, and again on demand."""
    child = os.fork()
    if child == 0:
        os._exit(getattr(getattr(sys.modules.get("torch"), "cuda", None), "_is_in_bad_fork", bool)())
    return os.waitpid(child, 0)[1] == 0


def lasting_threads():
    """Returns the names of the other threads, without those that libraries end before a
    fork."""
    if threads():
        try_fork()
    return threads()


def initialised_accelerator():
    """Returns which accelerator this process has initialised; None if there is none."""
    torch = sys.modules.get("torch")
    for kind in ("cuda", "xpu"):
        device = getattr(torch, kind, None)
        if device is not None and device.is_initialized():
            return f"torch has initialised {kind}"
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None  # the driver is not loaded
    # Until a library calls cuInit, the driver returns only this error.
    up = driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != CUDA_ERROR_NOT_INITIALIZED
    return "libcuda.so.1, the driver of CUDA, is initialised" if up else None


class Files:
    """The files that this process has loaded modules from."""

    def __init__(self):
        modules = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        self.states = {file: file_state(file) for file in modules if isinstance(file, str) and os.path.isabs(file)}

    def changed(self):
        return next((file for file, was in self.states.items() if file_state(file) != was), None)


def file_state(file):
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def unexpected_open_file(known):
    """Returns a file that is open beside the standard streams and the known
    descriptors. A child would close it, but the code that opened it would still run
    there."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            if fd > 2 and fd not in known:
                return os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue  # the descriptor that listed the folder
    return None


def check_forkable(files, *fds):
    changed = files.changed()
    if changed:
        raise Refusal(f"{changed} has changed since it was loaded")
    open_file = unexpected_open_file({CONTROL, *fds})
    if open_file:
        raise Refusal(f"an import left {open_file} open")
    names = lasting_threads()
    if names:
        raise Refusal(f"{len(names)} more thread(s) run in the preloader, and a fork would lose them: {', '.join(sorted(names))}")
    held = initialised_accelerator()  # and no device is open, or unexpected_open_file had found it
    if held:
        raise Refusal(f"the preloader has initialised an accelerator, and a forked process could not use it: {held}")
