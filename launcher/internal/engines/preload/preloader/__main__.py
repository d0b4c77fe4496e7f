"""The preloader of hotseat: imports an engine once, and forks it for each instance.

The launcher runs it with the engine's own interpreter and talks to it over the
socket on descriptor 3: frames of four bytes (big endian) with the length of
the JSON that follows; descriptors travel with the four bytes.

  order    launcher -> here   {script, modules, ...}
  hello    here -> launcher   {version, load_time, watch, ...} or {refused, lasting, watch}
  request  launcher -> here   {argv, flags, env, dir, umask}, descriptors: log, gate, cgroup.procs ...
  answer   here -> launcher   {pid, start_time} or {error}

A forked child waits at its gate until the launcher has taken it over: one byte
lets it run, the end of the file ends it. So nothing runs that the launcher does
not know of, whoever dies in between. When the launcher's end of the socket is
closed the preloader ends; what it has forked is not its child and lives on.

It runs no code but the engine's, stays single-threaded, never touches an
accelerator and holds nothing open: all is looked at after the imports and
before each fork.
"""

import json
import os
import socket
import struct
import sys

from hotseat_child import become, run
from hotseat_children import Unknown
from hotseat_forkable import CONTROL, Refusal, check_forkable
from hotseat_load import preload, watched_files
from hotseat_proc import stat_field


def receive(control):
    """One frame and its descriptors; None at the end of the file."""
    head, fds, flags, _ = socket.recv_fds(control, 4, 32)
    if flags & socket.MSG_CTRUNC:
        raise OSError("descriptors were lost on the way here: too many are open")
    if len(head) < 4:
        return None, fds
    size = struct.unpack(">I", head)[0]
    body = control.recv(size, socket.MSG_WAITALL)
    if len(body) < size:
        return None, fds
    return json.loads(os.fsdecode(body)), fds  # text is as Python would have decoded it from its own start


def send(control, message):
    body = json.dumps(message).encode()
    control.sendall(struct.pack(">I", len(body)) + body)


def check_peer(control):
    """The other end must be held by our parent, of our user (SO_PEERCRED, unix(7))."""
    pid, uid, _ = struct.unpack("3i", control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if uid != os.getuid() or pid != os.getppid():
        raise Refusal(f"the control socket belongs to process {pid} of user {uid}, not to the launcher")


def fork(fds):
    """Forks a child whose parent ends at once, so that it becomes the
    launcher's. Gives the answer, and None in the child."""
    reader, writer = os.pipe()
    middle = os.fork()
    if middle == 0:
        try:
            for group in fds[2:]:
                os.write(group, b"0")  # the writer itself: the child is born into it
            if os.fork():
                os._exit(0)
            os.setsid()
            os.write(writer, json.dumps({"pid": os.getpid(), "start_time": stat_field("self", 22)}).encode())
        except BaseException as error:
            os.write(writer, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
            os._exit(1)
        return None
    os.close(writer)
    os.waitpid(middle, 0)
    with open(reader, "rb") as report:
        answer = report.read()
    return json.loads(answer) if answer else {"error": "the child ended before it began"}


def serve():
    """Answers requests until the launcher goes away; returns in a forked child alone."""
    control = socket.socket(fileno=CONTROL)
    try:
        check_peer(control)
        order, _ = receive(control)
        if order is None:
            os._exit(0)
        code, files, said, wrote, hello = preload(order)
    except BaseException as error:
        send(control, {
            "refused": str(error) if isinstance(error, Refusal) else f"{type(error).__name__}: {error}",
            "lasting": isinstance(error, Unknown), "watch": watched_files(),
        })
        raise
    send(control, hello)
    while True:
        request, fds = receive(control)
        if request is None:
            os._exit(0)
        try:
            check_forkable(files, *fds)
            answer = fork(fds)
        except Refusal as refusal:
            send(control, {"refused": str(refusal)})
            sys.exit(1)
        except OSError as error:
            answer = {"error": f"cannot fork: {error}"}
        if answer is None:
            control.detach()  # closed with all the others
            become(request, fds, wrote, said)
            return order, code
        for fd in fds:
            os.close(fd)
        send(control, answer)


run(*serve())
