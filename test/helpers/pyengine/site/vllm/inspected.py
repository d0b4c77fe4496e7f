"""Inspects a model in another process than the engine's."""

import os
import signal
import sys

import vllm.plugins


def look(how):
    """Returns what the process sees that inspects. A forked one may hang or die first."""
    new = "vllm.model_executor.models.registry" in sys.orig_argv
    if how == "fail":
        raise ValueError("no such class")
    if how == "hang" and not new:
        signal.pause()
    if how == "die" and not new:
        os.kill(os.getpid(), signal.SIGKILL)
    print("noise", file=sys.stderr, flush=True)
    return {"class": "Model", "plugins": vllm.plugins.loaded, "new": new, "pid": os.getpid()}
