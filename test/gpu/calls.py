"""What the walk needs: calls of HTTP, nvidia-smi, and processes that it starts and ends."""

import http.client
import json
import os
import signal
import socket
import subprocess
import time

PROMPT = "The quick brown fox"
API = 8001


class Failed(Exception):
    """A step of the walk has failed."""


class OverUnixSocket(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def call(at, method, path, body=None, timeout=300):
    """Calls a port or a Unix socket; returns the status and the decoded answer."""
    if isinstance(at, int):
        connection = http.client.HTTPConnection("127.0.0.1", at, timeout=timeout)
    else:
        connection = OverUnixSocket(at, timeout)
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
    finally:
        connection.close()
    try:
        return answer.status, json.loads(text)
    except ValueError:
        return answer.status, text


def ms_since(began):
    return round((time.monotonic() - began) * 1000, 2)


def tokens(at, model, count=1, timeout=300):
    """Asks for tokens at temperature 0; returns the text and the milliseconds."""
    began = time.monotonic()
    status, answer = call(at, "POST", "/v1/completions",
                          {"model": model, "prompt": PROMPT, "max_tokens": count, "temperature": 0, "ignore_eos": True}, timeout)
    if status != 200:
        raise Failed(f"{model} answered {status}: {answer}")
    return answer["choices"][0]["text"], ms_since(began)


def run(command, timeout=60):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]}: {error}"
    return (done.stdout + done.stderr).strip()


def nvidia_smi():
    """What nvidia-smi says: MiB used of each GPU, and MiB by process."""
    used = run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"])
    holders = run(["nvidia-smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader,nounits"])
    return {"used_mib": used.splitlines(), "processes": holders.splitlines()}


def started(command, log, env):
    with open(log, "ab") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True,
                                env={**os.environ, **env})


def ended(process):
    """Ends a process that this walk started, with its process group."""
    try:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)
    except ProcessLookupError:
        pass


def ready(at, process, path="/health", timeout=240):
    """Waits until the address answers 200; returns the milliseconds."""
    began = time.monotonic()
    while time.monotonic() - began < timeout:
        if process.poll() is not None:
            raise Failed(f"the process ended with {process.returncode}")
        try:
            if call(at, "GET", path, timeout=5)[0] == 200:
                return ms_since(began)
        except OSError:
            pass
        time.sleep(0.02)
    raise Failed(f"nothing answers at {at} after {timeout} s")


def processes(pid):
    """The process and its descendants: what they run, which threads of the driver they have, and
    whether they have loaded NVML. An API server that was forked must have neither of the last two,
    for EngineCore is forked from it; a process that runs hotseat_nvml_helper.py asks NVML for it."""
    found = []
    for process in [pid, *descendants(pid)]:
        try:
            with open(f"/proc/{process}/cmdline", encoding="utf-8", errors="replace") as file:
                command = file.read().replace("\0", " ").strip()
            with open(f"/proc/{process}/maps", encoding="utf-8", errors="replace") as file:
                nvml = "libnvidia-ml.so" in file.read()
            comms = [open(f"/proc/{process}/task/{tid}/comm", encoding="utf-8").read().strip() for tid in os.listdir(f"/proc/{process}/task")]
            with open(f"/proc/{process}/comm", encoding="utf-8") as file:
                comm = file.read().strip()
        except OSError:
            continue  # the process or a thread has ended
        found.append({"pid": process, "comm": comm, "command": command[:200], "asks_nvml": "Calls NVML for another process" in command,
                      "nvml_loaded": nvml, "threads": len(comms), "driver_threads": [c for c in comms if c.startswith("cuda")]})
    return found


def descendants(pid):
    children = [int(child) for child in run(["pgrep", "-P", str(pid)]).split() if child.isdigit()]
    return children + [further for child in children for further in descendants(child)]
