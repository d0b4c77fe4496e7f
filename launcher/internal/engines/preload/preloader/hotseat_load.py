"""Imports the engine, and records what the imports read and change."""

import ast
import contextlib
import gc
import importlib
import importlib.metadata
import os
import sys
import time

from hotseat_children import check_imported, fork_children
from hotseat_forkable import NVML, Files, Refusal, close_nvml, left_by_nvml, loaded
from hotseat_inspect import fork_inspections
from hotseat_nvml import Helper
from hotseat_proc import read_file


def initial_environment():
    """Returns the environment that this process was started with, without the
    variables that the interpreter adds at its start."""
    pairs = (entry.partition(b"=") for entry in read_file("/proc/self/environ").split(b"\0") if entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def watch_reads():
    """Records which variables Python code reads from now on. The returned function
    ends that, and returns their names."""
    read = set()

    class Watched(type(os.environ)):
        def __getitem__(self, name):
            read.add(name)
            return super().__getitem__(name)

        def __contains__(self, name):
            read.add(name)
            return super().__contains__(name)

    plain, os.environ.__class__ = os.environ.__class__, Watched

    def stop():
        os.environ.__class__ = plain
        return {name for name in read if isinstance(name, str)}

    return stop


def check_script(order):
    """Compiles the engine's command. It must be a script as pip and uv write them:
    any other might do something important before it imports the engine."""
    tree = ast.parse(read_file(order["script"]), order["script"])
    for statement in tree.body:
        match statement:
            case ast.Expr(ast.Constant()) | ast.If(ast.Compare(ast.Name("__name__"), [ast.Eq()], [ast.Constant("__main__")]), orelse=[]):
                continue
            case ast.Import(names):
                modules = [name.name for name in names]
            case ast.ImportFrom(module):
                modules = [module]
            case _:
                modules = [None]
        if not all(module in ("re", "sys") or module and module.split(".")[0] == order["distribution"] for module in modules):
            raise Refusal(f"line {statement.lineno} of {order['script']} does more than import {order['distribution']}, and a preloader imports before it runs the script")
    return compile(tree, order["script"], "exec")


def import_all(order):
    """Imports the modules that the order names. It leaves out optional modules that
    cannot be imported, and returns them with the reason. It also returns the name of the
    module during whose import NVML was loaded into this process, if any."""
    loader = None

    def load(name):
        nonlocal loader
        try:
            importlib.import_module(name)
        finally:
            if loader is None and loaded(NVML):
                loader = name

    for name in order["modules"]:
        load(name)
    optional, skipped = order["optional_modules"] or [], {}
    if order["platform_modules"]:
        from vllm.platforms import current_platform

        optional += order["platform_modules"].get(current_platform.device_type, [])
    for name in optional:
        try:
            load(name)
        except Exception as error:  # vLLM itself imports the module when it needs it, and reports the error better
            skipped[name] = f"{type(error).__name__}: {error}"
    return skipped, loader


def preload(order):
    """Imports the engine, checks that the process may be forked, and freezes the
    garbage collector. Returns the engine's command, the files of the loaded modules,
    the output of the imports, their changes of the environment, and the hello."""
    began = time.monotonic()
    start, folder = initial_environment(), os.readlink("/proc/self/cwd")
    code = check_script(order)
    sys.path[0:1] = [] if sys.flags.safe_path else [os.path.dirname(os.path.realpath(order["script"]))]
    left = left_by_nvml() if order["fork_children"] else ""
    stop = watch_reads()
    variables, unreplaced = {}, None
    with Helper(order["nvml_seconds"]) if left else contextlib.nullcontext():
        skipped, nvml_loader = import_all(order)
        if order["fork_children"]:
            variables, unreplaced = fork_children(left), fork_inspections(order["inspect_seconds"])
    version = importlib.metadata.version(order["distribution"])
    read = stop()
    if "setproctitle" in sys.modules:
        sys.modules["setproctitle"].getproctitle()  # setproctitle finds its space while the arguments are unchanged
    if os.readlink("/proc/self/cwd") != folder:
        raise Refusal("an import changed the working folder")
    close_nvml()
    files = Files()
    check_imported(files, left, nvml_loader)
    sys.stdout.flush()
    sys.stderr.flush()
    import_output = read_file("/proc/self/fd/1")
    gc.collect()
    gc.freeze()
    now = dict(os.environ)
    import_changes = {name: now.get(name) for name in start.keys() | now.keys() if start.get(name) != now.get(name)}
    import_changes.update(variables)
    return code, files, import_output, import_changes, {
        "version": version, "python": sys.version.split()[0], "modules": len(sys.modules),
        "seconds": round(time.monotonic() - began, 3), "skipped": skipped, "inspects_by_exec": unreplaced, "nvml_leaves": left,
        "load_time": sorted(read | import_changes.keys()), "watch": watched_files(),
    }


def watched_files():
    """Returns files and folders that change when the installation does. The launcher
    itself checks the command and the interpreter."""
    paths = set()
    for name in ("vllm", "torch", "transformers"):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            paths |= {file, os.path.dirname(os.path.dirname(file))}
    return sorted(paths)
