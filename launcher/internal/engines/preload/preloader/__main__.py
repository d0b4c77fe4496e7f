"""The preloader of hotseat: imports an engine once, and forks it for each instance.

The launcher runs the preloader with the engine's own interpreter. They talk over the
socket on descriptor 3. A frame is four bytes (big endian) with the length of the JSON
that follows; descriptors travel with the four bytes.

  order    launcher -> here   {script, modules, ...}
  hello    here -> launcher   {version, load_time, watch, ...} or {refused, lasting, watch}
  request  launcher -> here   {argv, flags, env, dir, umask}, descriptors: log, gate, cgroup.procs ...
  answer   here -> launcher   {pid, start_time} or {error}

A forked child reads from a pipe, its gate, until the launcher has adopted it. One
byte lets the child run; the end of the file ends it. So no child runs that the
launcher does not know, even if the launcher or the preloader dies meanwhile. The
preloader ends when the launcher's end of the socket is closed. Its forks are children
of the launcher and go on running.

The preloader runs only the engine's code. It has one thread, never touches an
accelerator, and holds no file open. It checks all this after the imports and before
each fork.
"""

import json
import os
import socket
import struct
import sys

from hotseat_child import become, run
from hotseat_children import UnknownEngine
from hotseat_forkable import CONTROL, Refusal, check_forkable
from hotseat_load import preload, watched_files
from hotseat_proc import stat_field


def receive(control):
    """Returns one frame and its descriptors; the frame is None at the end of the file."""
    head, fds, flags, _ = socket.recv_fds(control, 4, 32)
    if flags & socket.MSG_CTRUNC:
        raise OSError("the kernel dropped descriptors of the request: too many are open")
    if len(head) < 4:
        return None, fds
    size = struct.unpack(">I", head)[0]
    body = control.recv(size, socket.MSG_WAITALL)
    if len(body) < size:
        return None, fds
    return json.loads(os.fsdecode(body)), fds  # decodes text as Python decodes its own arguments


def send(control, message):
    body = json.dumps(message).encode()
    control.sendall(struct.pack(">I", len(body)) + body)


def check_peer(control):
    """Checks that the other end belongs to the parent process, and to the same user
    (SO_PEERCRED, unix(7))."""
    pid, uid, _ = struct.unpack("3i", control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if uid != os.getuid() or pid != os.getppid():
        raise Refusal(f"the control socket belongs to process {pid} of user {uid}, not to the launcher")


def fork(fds):
    """Forks a child through a process that ends at once, so that the launcher becomes
    the child's parent. Returns the answer to the launcher, and None in the child."""
    reader, writer = os.pipe()
    middle = os.fork()
    if middle == 0:
        try:
            for group in fds[2:]:
                os.write(group, b"0")  # 0 is the writing process: its child is born into the group
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
    return json.loads(answer) if answer else {"error": "the forked process ended before it reported its id"}


def serve():
    """Answers requests until the launcher closes its end. It returns only in a forked
    child."""
    control = socket.socket(fileno=CONTROL)
    try:
        check_peer(control)
        order, _ = receive(control)
        if order is None:
            os._exit(0)
        code, files, import_output, import_changes, hello = preload(order)
    except BaseException as error:
        send(control, {
            "refused": str(error) if isinstance(error, Refusal) else f"{type(error).__name__}: {error}",
            "lasting": isinstance(error, UnknownEngine), "watch": watched_files(),
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
            control.detach()  # become closes it with all other descriptors
            become(request, fds, import_changes, import_output)
            return order, code
        for fd in fds:
            os.close(fd)
        send(control, answer)


run(*serve())
