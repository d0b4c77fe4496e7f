"""Has vLLM fork its own processes, EngineCore and Worker, as well."""

import importlib
import inspect
import multiprocessing.context
import os
import sys

from hotseat_forkable import Refusal, try_fork

SWITCH = "VLLM_WORKER_MULTIPROC_METHOD"  # documented by vLLM


class Unknown(Refusal):
    """Why nothing is forked until another vLLM is installed."""


def fork_children():
    """Arranges that vLLM forks its own processes, and gives the variables that does it.

    One function of vLLM's decides how each is made, by a documented switch and
    unless something forbids a fork. The platform of CPUs sets the switch to spawn
    when an engine is configured, so there the function is replaced by one that
    asks it as it is asked elsewhere. Where that function is not as expected
    nothing is forked.
    """
    from vllm.platforms import current_platform

    on_cpu = current_platform.is_cpu()
    if not on_cpu and not try_fork():
        # vLLM has it ask NVML while it is imported (vllm/env_override.py).
        raise Refusal("torch could not ask NVML for devices, has asked the runtime of CUDA, and so refuses CUDA to a forked process")
    decide = deciding_function()
    try_out(decide)
    chosen = os.environ.get(SWITCH)
    if not on_cpu:
        return {} if chosen is not None else {SWITCH: "fork"}
    if chosen != "spawn":
        replace(decide, lambda: ask(decide, "fork"))
    return {}


def deciding_function():
    """get_mp_context of vLLM, wherever this release has it."""
    for name in ("vllm.utils.system_utils", "vllm.utils"):
        try:
            function = getattr(importlib.import_module(name), "get_mp_context", None)
        except ImportError:
            continue
        if inspect.isfunction(function):
            if inspect.signature(function).parameters:
                raise Unknown(f"get_mp_context{inspect.signature(function)} of {name} takes arguments, which is not known of it")
            return function
    raise Unknown("this vLLM has no function get_mp_context, which decides how it makes its own processes")


def ask(decide, method):
    """What the function answers while the switch says so."""
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = method
    try:
        return decide()
    finally:
        if before is None:
            del os.environ[SWITCH]
        else:
            os.environ[SWITCH] = before


def try_out(decide):
    """The function must answer with a context of multiprocessing, and heed the switch."""
    for method in ("fork", "spawn"):
        try:
            answer = ask(decide, method)
        except Exception as error:
            raise Unknown(f"get_mp_context of vLLM fails: {type(error).__name__}: {error}") from error
        said = answer.get_start_method() if isinstance(answer, multiprocessing.context.BaseContext) else repr(answer)
        if said != method:
            raise Unknown(f"get_mp_context of vLLM answers {said} when {SWITCH} is {method}")


def replace(function, by):
    """Replaces a function in every module that has it. Modules are not asked for
    it: some import others when they are asked for what they have not."""
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(function.__name__) is function:
            setattr(module, function.__name__, by)
