"""Has another process ask NVML, so that the library is never loaded in this one.

With some drivers, NVML leaves a thread and files in each process that has asked it, and
such a process cannot be forked (spec/decisions/0148). Python code reaches NVML through
ctypes: vLLM by its copy of pynvml, and torch by itself. So ctypes.CDLL gives such code a
library that passes each call on to a helper, a Python that runs hotseat_nvml_helper.py.

A forked engine inherits this, and its own processes do too: the API server is forked
again, for EngineCore. Each process that asks has a helper of its own. The helper ends
with it, when its end of the socket is closed.
"""

import contextlib
import ctypes
import functools
import importlib.util
import itertools
import json
import os
import socket
import subprocess
import sys
import threading

from hotseat_forkable import Refusal

SOURCE = importlib.util.find_spec("hotseat_nvml_helper").loader.get_source("hotseat_nvml_helper")
END_SECONDS = 10  # bounds the wait for the end of a helper that was killed
NVML_ERROR_UNKNOWN = 999  # nvml.h


class Helper:
    """The process that asks NVML for this one; the first call starts it. As a context
    manager, it stands for the imports: if it fails during them, they have a wrong answer,
    so the preloader refuses. It has ended when they end."""

    def __init__(self, seconds):
        self.seconds = seconds  # bounds a call
        self.process = self.socket = self.failure = None
        self.loading = True
        self.numbers = itertools.count()  # of the questions
        self.lock = threading.Lock()
        os.register_at_fork(after_in_child=self.forget)

    def __enter__(self):
        replace_nvml(self)
        return self

    def __exit__(self, kind, error, trace):
        self.loading = False
        try:
            self.end()
        except OSError as still_there:
            self.failure = self.failure or str(still_there)
        if self.failure:
            raise Refusal(self.failure) from error

    def fail(self, reason):
        """Has the preloader refuse, if this happens during the imports."""
        if self.loading:
            self.failure = self.failure or reason

    def call(self, question):
        """Returns the helper's answer; None if the helper fails."""
        with self.lock:
            if self.failure:
                raise Refusal(self.failure)
            try:
                return self.ask(question)
            except (OSError, EOFError, ValueError) as error:
                reason = self.explain(question["name"], error)
            except BaseException:  # a signal handler has raised it, and the answer is still to come
                with contextlib.suppress(OSError):
                    self.end()
                raise
            if self.loading:
                raise Refusal(reason)
        print(f"hotseat: {reason}", file=sys.stderr, flush=True)
        return None

    def ask(self, question):
        if self.process is None:
            self.start()
        number = next(self.numbers)
        self.socket.sendall(json.dumps(question | {"number": number}).encode() + b"\n")
        line = b""
        while not line.endswith(b"\n"):
            more = self.socket.recv(1 << 16)
            if not more:
                raise EOFError
            line += more
        answer = json.loads(line)
        if answer["number"] != number:
            raise ValueError("it has answered another question")
        if "error" in answer:
            raise OSError(answer["error"])
        asked = [value for kind, value in question["arguments"] if kind == "memory"]
        if [len(now) for now in answer["memory"]] != [len(was) for was in asked]:
            raise ValueError("it has returned memory of another size")
        return answer

    def start(self):
        self.socket, theirs = socket.socketpair()
        with theirs:
            self.socket.settimeout(self.seconds)
            self.process = subprocess.Popen([sys.executable, "-I", "-S", "-c", SOURCE],
                                            stdin=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def explain(self, name, error):
        """Ends the helper after a failure, and returns the failure in words. The next call
        starts another helper."""
        process = self.process
        try:
            self.end()
        except OSError as still_there:
            return str(still_there)
        match error:
            case TimeoutError():
                return f"the process that asks NVML did not answer {name} within {self.seconds} s"
            case _ if process is None:
                return f"cannot start a process that asks NVML: {error}"
            case EOFError() | ConnectionError():
                return f"the process that asks NVML ended during {name}, with code {process.returncode}"
        return f"the process that asks NVML could not answer {name}: {error}"

    def end(self):
        """Ends the helper and reaps it. It has nothing to lose."""
        process, self.process = self.process, None
        if self.socket is not None:
            self.socket.close()
        if process is None:
            return
        process.kill()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            raise OSError(f"process {process.pid}, which asks NVML, does not end") from None

    def forget(self):
        """Leaves the helper to the process that this one was forked from."""
        self.lock = threading.Lock()
        process, self.process = self.process, None
        if self.socket is not None:
            self.socket.close()
        if process is not None:
            process.returncode = 0  # so that subprocess does not wait for it


class Library(ctypes.CDLL):
    """NVML as the helper sees it."""

    def __getitem__(self, name):
        return Function(self._hotseat_helper, self._name, name)


class Function:
    """A function of NVML. Its caller may set restype, as for a function of ctypes."""

    restype = ctypes.c_int

    def __init__(self, helper, library, name):
        self.helper, self.library, self.__name__ = helper, library, name

    def __call__(self, *arguments):
        try:
            return self.ask(arguments)
        except BaseException as error:  # vLLM may keep it to itself, and take another platform
            self.helper.fail(str(error) if isinstance(error, Refusal) else f"{self.__name__} of NVML got no answer: {type(error).__name__}: {error}")
            raise

    def ask(self, arguments):
        text = self.restype is ctypes.c_char_p
        memories, packed = [], [pack(argument) for argument in arguments]
        for kind, value in packed:
            if kind == "memory":
                memories.append(value)
        answer = self.helper.call({
            "library": self.library, "name": self.__name__, "text": text,
            "arguments": [(kind, content(value).hex() if kind == "memory" else value) for kind, value in packed],
        })
        if answer is None:
            return None if text else NVML_ERROR_UNKNOWN
        if not answer["known"]:
            self.helper.fail(f"{self.__name__} of NVML got no answer: it was given an address that the process that asks NVML does not know")
        for memory, now in zip(memories, answer["memory"]):
            now = bytes.fromhex(now)
            if not isinstance(memory, bytes) and now != content(memory):
                ctypes.memmove(ctypes.addressof(memory), now, ctypes.sizeof(memory))
        return os.fsencode(answer["result"]) if text else answer["result"]


def pack(argument):
    """Returns the kind of an argument, and its value:

    memory   what is there before the call and after it
    handle   an address of NVML, which only the helper that has it may use
    number   any other
    """
    match argument:
        case None:
            return "number", 0
        case int():
            return "number", argument
        case bytes():
            return "memory", argument + b"\0"
        case ctypes.Array():
            return "memory", argument
        case ctypes.c_char_p():
            return pack(argument.value)
        case ctypes.c_void_p() | ctypes._Pointer():
            address = ctypes.cast(argument, ctypes.c_void_p).value
            return ("handle", address) if address else ("number", 0)
        case ctypes._SimpleCData(value=int(value)):
            return "number", value
    if hasattr(argument, "_obj"):  # byref
        return "memory", argument._obj
    raise ctypes.ArgumentError(f"the process that asks NVML takes no {type(argument).__name__}")


def content(memory):
    return memory if isinstance(memory, bytes) else ctypes.string_at(ctypes.addressof(memory), ctypes.sizeof(memory))


def replace_nvml(helper):
    """Has ctypes.CDLL make a Library of NVML. It changes the constructor and not the
    class, of which others have made subclasses."""
    load = ctypes.CDLL.__init__

    @functools.wraps(load)
    def init(self, name, *arguments, **options):
        if is_nvml(name) and options.get("handle") is None:
            self._name, self._hotseat_helper, self.__class__ = os.fspath(name), helper, Library
        else:
            load(self, name, *arguments, **options)

    ctypes.CDLL.__init__ = init


def is_nvml(name):
    return isinstance(name, (str, os.PathLike)) and os.path.basename(os.fspath(name)).startswith("libnvidia-ml.so")
