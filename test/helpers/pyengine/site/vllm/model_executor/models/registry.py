"""Runs a function in a new Python, as vLLM does to inspect the class of a model."""

import os
import pickle
import subprocess
import sys

import vllm


def _run_in_subprocess(fn):
    site = os.path.dirname(os.path.dirname(vllm.__file__))
    done = subprocess.run(
        [sys.executable, "-m", "vllm.model_executor.models.registry"],
        input=pickle.dumps(fn), capture_output=True, env=os.environ | {"PYTHONPATH": site},
    )
    if done.returncode:
        raise RuntimeError("Error raised in subprocess:\n" + done.stderr.decode())
    return pickle.loads(done.stdout)


if __name__ == "__main__":
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    sys.stdout.buffer.write(pickle.dumps(pickle.loads(sys.stdin.buffer.read())()))
