"""A stand-in for vLLM. What the launcher's recipe names and is not here is an empty module."""

import importlib.abc
import importlib.machinery
import os
import sys

read = os.environ.get("READ_WHEN_LOADED") or os.environ.get("HOTSEAT_READ_WHEN_LOADED", "unset")


class Empty(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.startswith("vllm."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        pass


sys.meta_path.append(Empty())
