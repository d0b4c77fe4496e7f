"""Makes vLLM inspect the class of a model in a forked process.

vLLM imports a model's module to learn what the model can do. It does so in another
process, so that its own does not initialise CUDA. That process is a new Python, which
imports all of vLLM again. A fork keeps CUDA out of vLLM's process as well, and has
imported vLLM already.
"""

import ctypes
import inspect
import multiprocessing
import os
import pickle
import signal
import sys

from hotseat_children import replace
from hotseat_forkable import PR_SET_PDEATHSIG, Refusal, initialised_accelerator, lasting_threads

REGISTRY = "vllm.model_executor.models.registry"
FUNCTION = "_run_in_subprocess"  # returns the result of a function, which it runs in another process


def fork_inspections(seconds):
    """Replaces vLLM's function by one that forks, for at most so many seconds. Returns
    why vLLM keeps its own; None if it does not."""
    original = getattr(sys.modules.get(REGISTRY), FUNCTION, None)
    if not inspect.isfunction(original):
        return f"{REGISTRY} has no function {FUNCTION}"
    if len(inspect.signature(original).parameters) != 1:
        return f"{FUNCTION}{inspect.signature(original)} of {REGISTRY} does not take a function alone"
    replace(original, lambda function: call(function, original, seconds))
    return None


def call(function, original, seconds):
    """Runs a function in a fork. If it gives no result there, vLLM runs it as ever. So
    vLLM itself reports what is wrong with a model."""
    try:
        return call_in_fork(function, seconds)
    except (Refusal, OSError) as error:
        print(f"hotseat: starting a new process to inspect the model, because {error}", file=sys.stderr, flush=True)
    return original(function)


def call_in_fork(function, seconds):
    """Returns the result of a function that runs in a forked process. The process has
    ended when this returns."""
    names = lasting_threads()
    if names:
        raise Refusal(f"a fork would lose threads: {', '.join(sorted(names))}")
    held = initialised_accelerator()
    if held:
        raise Refusal(f"a forked process could not use the accelerator: {held}")
    reader, writer = multiprocessing.Pipe(duplex=False)
    parent, child = os.getpid(), os.fork()
    if child == 0:
        answer(function, writer, parent)
    writer.close()
    try:
        if not reader.poll(seconds):
            raise Refusal(f"a forked process did not inspect it within {seconds} s")
        return pickle.loads(reader.recv_bytes())
    except EOFError:
        raise Refusal("a forked process could not inspect it") from None
    finally:
        reader.close()
        end(child)


def end(child):
    """Ends a child, which may have ended already, and reaps it."""
    try:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    except (ChildProcessError, ProcessLookupError):
        pass  # signals of children are ignored here, so that the kernel has reaped it


def answer(function, writer, parent):
    """Runs in the forked process: writes the function's result, and ends the process.
    The process has no output, as vLLM would drop it, and ends with its parent."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            return
        signal.set_wakeup_fd(-1)  # the parent's event loop reads it
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        from vllm.plugins import load_general_plugins

        load_general_plugins()
        writer.send_bytes(pickle.dumps(function()))
    finally:
        os._exit(0)
