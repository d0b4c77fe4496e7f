"""Makes vLLM fork its own processes, EngineCore and Worker, as well."""

import importlib
import inspect
import multiprocessing.context
import os
import sys

from hotseat_forkable import NVML, Refusal, check_forkable, loaded, try_fork

SWITCH = "VLLM_WORKER_MULTIPROC_METHOD"  # documented by vLLM


class UnknownEngine(Refusal):
    """Why this vLLM is never forked here. Only another installed vLLM or driver can
    change that."""


def check_imported(files, left, nvml_loader):
    """Refuses if this process may not be forked after the imports. left is what NVML leaves
    in a process that asks it. If it is here, an import has loaded NVML by itself:
    nvml_loader, or one that came with it. A forked process would have lost the threads,
    and would have closed the files behind the back of the library."""
    try:
        check_forkable(files)
    except Refusal as refusal:
        if left and nvml_loader:
            raise UnknownEngine(f"the NVIDIA driver's NVML leaves this behind in each process that asks it: {left}; a fork would lose it. "
                                f"hotseat asks NVML in another process, but the import of {nvml_loader} has loaded {NVML} by itself, not by ctypes.CDLL: {refusal}") from refusal
        raise


def fork_children(left):
    """Makes vLLM fork its own processes, and returns the variables that this needs. left is
    what NVML leaves in a process that asks it.

    One function of vLLM decides how vLLM makes its processes. It follows a
    documented switch, unless something forbids a fork. On CPUs, vLLM sets the switch
    to spawn when it configures an engine. There, the function is replaced by one
    that calls it with the switch at fork. If the function is not as expected, the
    preloader forks nothing.
    """
    from vllm.platforms import current_platform

    on_cpu = current_platform.is_cpu()
    if not on_cpu and not try_fork():
        # vLLM makes torch ask NVML during the import (vllm/env_override.py).
        raise Refusal("torch could not ask NVML for devices and asked the CUDA runtime; after that, torch refuses CUDA in a forked process")
    decide = deciding_function()
    check_function(decide)
    chosen = os.environ.get(SWITCH)
    method = "fork" if on_cpu and chosen != "spawn" else None
    if method or left:
        replace(decide, lambda: decide_by(decide, method, left))
    return {SWITCH: "fork"} if not on_cpu and chosen is None else {}


def decide_by(decide, method, left):
    """Calls vLLM's function, with the switch at method if there is one. A process that has
    loaded NVML by itself may have the thread that a fork would lose, so it spawns."""
    if left and loaded(NVML):
        print(f"hotseat: starting a new process instead of a fork, because {NVML} is loaded", file=sys.stderr, flush=True)
        method = "spawn"
    return call_with_switch(decide, method) if method else decide()


def deciding_function():
    """Returns get_mp_context of vLLM, from the module that has it in this release."""
    for name in ("vllm.utils.system_utils", "vllm.utils"):
        try:
            function = getattr(importlib.import_module(name), "get_mp_context", None)
        except ImportError:
            continue
        if inspect.isfunction(function):
            if inspect.signature(function).parameters:
                raise UnknownEngine(f"get_mp_context{inspect.signature(function)} of {name} takes arguments, but hotseat knows it only without any")
            return function
    raise UnknownEngine("this vLLM has no function get_mp_context, which decides how it makes its own processes")


def call_with_switch(decide, method):
    """Calls the function with the switch at method, and returns the result."""
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = method
    try:
        return decide()
    finally:
        if before is None:
            del os.environ[SWITCH]
        else:
            os.environ[SWITCH] = before


def check_function(decide):
    """Checks that the function returns a context of multiprocessing and obeys the switch."""
    for method in ("fork", "spawn"):
        try:
            answer = call_with_switch(decide, method)
        except Exception as error:
            raise UnknownEngine(f"get_mp_context of vLLM fails: {type(error).__name__}: {error}") from error
        said = answer.get_start_method() if isinstance(answer, multiprocessing.context.BaseContext) else repr(answer)
        if said != method:
            raise UnknownEngine(f"get_mp_context of vLLM answers {said} when {SWITCH} is {method}")


def replace(function, by):
    """Replaces a function in every module that has it. It reads each module's
    __dict__ and not its attributes: some modules import others when a missing
    attribute is read."""
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(function.__name__) is function:
            setattr(module, function.__name__, by)
