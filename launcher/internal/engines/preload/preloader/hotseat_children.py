"""Makes vLLM fork its own processes, EngineCore and Worker, as well."""

import importlib
import inspect
import multiprocessing.context
import os
import sys

from hotseat_forkable import Refusal, try_fork

SWITCH = "VLLM_WORKER_MULTIPROC_METHOD"  # documented by vLLM


class UnknownEngine(Refusal):
    """Why this vLLM is never forked. Only another installed vLLM can change that."""


def fork_children():
    """Makes vLLM fork its own processes, and returns the variables that this needs.

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
    if not on_cpu:
        return {} if chosen is not None else {SWITCH: "fork"}
    if chosen != "spawn":
        replace(decide, lambda: call_with_switch(decide, "fork"))
    return {}


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
