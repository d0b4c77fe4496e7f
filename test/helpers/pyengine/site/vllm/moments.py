"""What happens while this process forks. Each process that is forked writes its id
and its control groups to the file births in the folder moments beside the
package, as the first thing it does. A file kill-before or kill-after there has
the process that loaded this killed at its next fork: when it asks for it, or
when the second generation, which becomes an engine, has come to life."""

import json
import os
import signal

folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "moments")
first, generation = os.getpid(), 0


def kill_if(file):
    try:
        os.unlink(os.path.join(folder, file))
    except FileNotFoundError:
        return
    os.kill(first, signal.SIGKILL)


def before():
    if generation == 0:
        kill_if("kill-before")


def in_child():
    global generation
    generation += 1
    with open("/proc/self/cgroup") as file:
        groups = file.read().split()
    with open(os.path.join(folder, "births"), "a") as file:
        file.write(json.dumps({"pid": os.getpid(), "generation": generation, "groups": groups}) + "\n")
    if generation == 2:
        kill_if("kill-after")


os.register_at_fork(before=before, after_in_child=in_child)
