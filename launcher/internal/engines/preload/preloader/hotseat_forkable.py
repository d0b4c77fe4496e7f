"""Checks whether this process may be forked: it must have one thread and no accelerator."""

import ctypes
import os
import signal
import sys
import threading
from _ctypes import dlopen

from hotseat_proc import read_file, stat_field

PR_SET_PDEATHSIG = 1  # prctl(2)

CONTROL = 3  # descriptor of the socket to the launcher
CUDA_ERROR_NOT_INITIALIZED = 3  # cuda.h
NVML = "libnvidia-ml.so.1"
NVML_SUCCESS = 0  # nvml.h
PF_EXITING = 0x4  # flag of a thread that is ending (include/linux/sched.h)

# Threads that a forked process can do without. Those of jemalloc give memory back to the
# kernel; pyarrow starts one when it is loaded. jemalloc takes its locks before a fork, and in
# the child gives memory back without such threads (background_thread_postfork_child of its
# src/background_thread.c).
EXPENDABLE = {"jemalloc_bg_thd"}


class Refusal(Exception):
    """Why this process must not be forked."""


def threads():
    """Returns the names of the threads other than this one that a forked process would miss."""
    known, names = {str(t.native_id): t.name for t in threading.enumerate()}, []
    for tid in os.listdir("/proc/self/task"):
        try:
            if tid == str(os.getpid()) or stat_field(f"self/task/{tid}", 9) & PF_EXITING:
                continue
            name = known.get(tid)
            if name is None:
                name = os.fsdecode(read_file(f"/proc/self/task/{tid}/comm")).strip()
                if name in EXPENDABLE:
                    continue
            names.append(name)
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
    driver = loaded("libcuda.so.1")
    if driver is None:
        return None
    # Until a library calls cuInit, the driver returns only this error.
    up = driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != CUDA_ERROR_NOT_INITIALIZED
    return "libcuda.so.1, the driver of CUDA, is initialised" if up else None


def close_nvml():
    """Shuts NVML down if the imports have left it initialised. torch does that when it
    counts the GPUs (_raw_device_count_nvml of torch/cuda/__init__.py). The library then
    holds devices open. It counts its users; code that asks it later initialises it
    again."""
    nvml = loaded(NVML)
    while nvml is not None and nvml.nvmlShutdown() == NVML_SUCCESS:
        pass


def loaded(name):
    """Returns a library that this process has loaded; None if it has not."""
    try:
        return ctypes.CDLL(name, handle=dlopen(name, os.RTLD_NOLOAD | os.RTLD_NOW))
    except OSError:
        return None


def left_by_nvml():
    """Returns the names of files and threads that NVML leaves in a process after its
    shutdown. A forked process finds that out, so that they are not left in this one."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, ", ".join(ask_nvml()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as report:
        left = report.read()
    os.waitpid(child, 0)
    return left


def ask_nvml():
    """Initialises NVML and shuts it down. Returns the files and threads that are left."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # the preloader may be ended meanwhile
    files, others = open_files(), threads()
    try:
        nvml = ctypes.CDLL(NVML)
    except OSError:
        return []  # there is no NVIDIA driver
    if nvml.nvmlInit_v2() != NVML_SUCCESS:
        return []
    nvml.nvmlShutdown()
    return [name for fd, name in sorted(open_files().items()) if fd not in files] + [name for name in threads() if name not in others]


def open_files():
    names = {}
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            names[fd] = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue  # the descriptor that listed the folder
    return names


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
    return next((name for fd, name in open_files().items() if fd > 2 and fd not in known), None)


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
