"""Calls NVML for another process, which stands at the other end of descriptor 0. It runs
alone (python -c), and ends with that process.

  question   {number, library, name, text, arguments: [[kind, value], ...]}; hotseat_nvml.pack tells the kinds
  answer     {number, result, memory: [...], known}, with what is in the memory after the call, or {number, error}

Each is a line of JSON. Memory is hexadecimal. known says whether the handles are of this process.
"""

import ctypes
import json
import signal
import socket

NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_FUNCTION_NOT_FOUND = 2, 13  # nvml.h


class Library:
    def __init__(self, name):
        self.functions = ctypes.CDLL(name)
        self.given = set()  # what NVML has given out here that may be a handle

    def knows(self, arguments):
        return all(value in self.given for kind, value in arguments if kind == "handle")

    def call(self, name, text, arguments):
        """Returns the result of a function, and the memory of its arguments. A handle that
        another process was given is an invalid argument: NVML would follow its address."""
        memory = [ctypes.create_string_buffer(bytes.fromhex(value), len(value) // 2) for kind, value in arguments if kind == "memory"]
        if not self.knows(arguments):
            return NVML_ERROR_INVALID_ARGUMENT, memory
        function = getattr(self.functions, name, None)
        if function is None:
            return NVML_ERROR_FUNCTION_NOT_FOUND, memory
        function.restype = ctypes.c_char_p if text else ctypes.c_int
        blocks = iter(memory)
        result = function(*(next(blocks) if kind == "memory" else ctypes.c_uint64(value) for kind, value in arguments))
        self.given |= {int.from_bytes(block.raw, "little") for block in memory if len(block) == ctypes.sizeof(ctypes.c_void_p)}
        return (result or b"").decode(errors="replace") if text else result, memory


def main():
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the other process may still ask while it ends
    other, libraries = socket.socket(fileno=0), {}
    for line in other.makefile("rb"):
        question = json.loads(line)
        number, name = question.pop("number"), question.pop("library")
        try:
            if name not in libraries:
                libraries[name] = Library(name)
            result, memory = libraries[name].call(**question)
            answer = {"result": result, "memory": [block.raw.hex() for block in memory], "known": libraries[name].knows(question["arguments"])}
        except Exception as error:  # the other process tells
            answer = {"error": f"{type(error).__name__}: {error}"}
        other.sendall(json.dumps(answer | {"number": number}).encode() + b"\n")


main()
