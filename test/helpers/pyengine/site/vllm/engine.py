"""The engine: writes what it finds itself to be to its output, as JSON, and does
what its arguments say. With --port or --uds it answers there as vLLM does, as
far as the launcher asks."""

import functools
import http.server
import importlib.metadata
import json
import multiprocessing
import multiprocessing.connection
import os
import random
import signal
import socket
import socketserver
import sys
import threading

import vllm
import vllm.moments
from vllm.utils.system_utils import get_mp_context


def status(field):
    for line in open("/proc/self/status"):
        if line.startswith(field + ":"):
            return line.split()[1]


def marks():
    """Returns the variables that the launcher must find in /proc."""
    names = {"HOTSEAT_INSTANCE", "HOTSEAT_LAUNCHER", "HOTSEAT_PUBLIC"} & set(os.environ)
    return {f"{name}={os.environ[name]}" for name in names}


def facts():
    fds = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            fds[fd] = os.readlink("/proc/self/fd/" + fd)
        except OSError:
            pass
    return {
        "argv": sys.argv, "env": dict(os.environ), "dir": os.getcwd(), "umask": status("Umask"),
        "fds": sorted(fd for fd in fds if not fds[fd].startswith("/proc/")), "stdin": fds["0"],
        "leads": os.getsid(0) == os.getpid(), "ppid": os.getppid(), "ignored": status("SigIgn"), "blocked": status("SigBlk"),
        "comm": open("/proc/self/comm").read(), "cmdline": open("/proc/self/cmdline", errors="surrogateescape").read().rstrip("\0"),
        "random": random.random(), "key": multiprocessing.current_process().authkey.hex(), "read": vllm.read, "main": sys.modules["__main__"].__file__,
        "cgroup": [line for line in open("/proc/self/cgroup") if "i-" in line],
        "shown": marks() <= set(open("/proc/self/environ", errors="surrogateescape").read().split("\0")),
    }


def child(port):
    signal.pause()


def core(says):
    worker = get_mp_context().Process(target=child, args=(0,))
    worker.start()
    says.send(worker.pid)
    signal.pause()


def watch_core():
    """Makes a process that makes another, as EngineCore and Worker are; returns at the end of the first."""
    hears, says = multiprocessing.Pipe(duplex=False)
    process = get_mp_context().Process(target=core, args=(says,))
    process.start()
    print(json.dumps({"core": process.pid, "worker": hears.recv()}), flush=True)
    multiprocessing.connection.wait([process.sentinel])
    print(json.dumps({"ended": process.pid}), flush=True)


def inspect(how):
    """Has a model inspected as vLLM does, and writes the answer."""
    from vllm.inspected import look
    from vllm.model_executor.models import registry

    if how == "thread":
        threading.Thread(target=threading.Event().wait, name="the-thread", daemon=True).start()
    try:
        answer = registry._run_in_subprocess(functools.partial(look, how))
    except RuntimeError as error:
        answer = {"error": str(error)}
    print(json.dumps({"inspected": answer}), flush=True)


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    sleeping = False

    def log_message(self, *args):
        pass

    def answer(self, body=b""):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(json.dumps({"is_sleeping": Server.sleeping}).encode())

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.startswith("/sleep"):
            Server.sleeping = True
        if self.path in ("/wake_up", "/wake_up?tags=kv_cache"):  # the last step from level 1, and from level 2
            Server.sleeping = False
        self.answer()


class SocketServer(http.server.ThreadingHTTPServer):
    address_family = socket.AF_UNIX
    server_bind = socketserver.TCPServer.server_bind  # that of HTTP asks for the name of a host


def argument(name, kind=int):
    return kind(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else None


def main():
    if sys.argv[1:] == ["--version"]:
        print(importlib.metadata.version("vllm"))
        return
    print(json.dumps(facts()), flush=True)
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"  # as the platform of CPUs does
    if argument("--exit") is not None:
        sys.exit(argument("--exit"))
    server = SocketServer(argument("--uds", str), Server) if "--uds" in sys.argv else None
    if "--child" in sys.argv:
        listener = socket.create_server(("127.0.0.1", 0))
        process = get_mp_context().Process(target=child, args=(0,))
        process.start()
        print(json.dumps({"child": process.pid, "port": listener.getsockname()[1], "kind": type(process).__name__}), flush=True)
    if "--core" in sys.argv:
        watch_core()
    if "--inspect" in sys.argv:
        inspect(argument("--inspect", str))
    if server:
        server.serve_forever()
    if argument("--port"):
        http.server.ThreadingHTTPServer(("127.0.0.1", argument("--port")), Server).serve_forever()
    signal.pause()
