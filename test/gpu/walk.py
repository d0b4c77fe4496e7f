#!/usr/bin/env python3
"""Walks the launcher through starts, swaps and failures with real vLLM on a real GPU.

It measures each step and writes results.json, the log of the launcher and the logs of the
engines to --out. README.md beside this file tells what it needs and what it shows. A step
that fails is recorded, and the walk goes on where it can.
"""

import argparse
import glob
import json
import os
import shutil
import statistics
import sys
import time

from calls import API, Failed, call, ended, ms_since, nvidia_smi, processes, ready, run, started, tokens
from failures import Failures

BARE = 8199


class Walk(Failures):
    def __init__(self, options):
        self.o = options
        self.began = time.monotonic()
        self.results = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "steps": []}
        # The results name no folder of the machine.
        installed = os.path.dirname(os.path.dirname(os.path.abspath(options.vllm)))
        self.folders = [(os.path.abspath(options.work), "WORK"), (installed, "VENV"), (sys.prefix, "PYTHON")]
        self.server = None
        self.gpu = None
        self.said = {}  # answer of each instance when it was new
        self.env = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0"}

    def left(self):
        return self.o.seconds - (time.monotonic() - self.began)

    def write(self):
        path = os.path.join(self.o.out, "results.json")
        text = json.dumps(self.results, indent=1)
        for folder, name in self.folders:
            text = text.replace(folder, name)
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(path + ".new", path)

    def step(self, name, function, *args, needs=5):
        """Takes one step and records what it returns, or why it failed."""
        record = {"step": name}
        self.results["steps"].append(record)
        if self.left() < needs:
            record["skipped"] = "no time left"
            print(f"{name}: skipped, no time left", flush=True)
            return None
        began = time.monotonic()
        try:
            record["result"] = function(*args)
            if isinstance(record["result"], dict) and record["result"].get("wrong"):
                record["error"] = f"not as expected: {record['result']['wrong']}"
        except Exception as error:  # the walk records any failure and goes on
            record["error"] = f"{type(error).__name__}: {error}"
        record["took_ms"] = ms_since(began)
        self.write()
        print(f"{name} ({record['took_ms'] / 1000:.1f} s): {record.get('error', '')} {json.dumps(record.get('result'))[:900]}", flush=True)
        return record.get("result")

    def must(self, name, function, *args, needs):
        """Takes a step without which the rest is pointless."""
        if self.step(name, function, *args, needs=needs) is None:
            raise Failed(f"the walk ends here: {name} failed")

    # The machine.

    def machine(self):
        fields = "name,uuid,driver_version,memory.total,memory.used,memory.free,compute_mode,mig.mode.current"
        return {
            "nvidia_smi": run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv"]).splitlines(),
            "kernel": os.uname().release,
            "processors": os.cpu_count(),
            "memory": open("/proc/meminfo", encoding="utf-8").readline().split(":")[1].strip(),
            "processor": next((line.split(":")[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8") if "model name" in line), ""),
            "versions": run([self.o.python, "-c", "import torch, transformers; from importlib.metadata import version; "
                             "print('torch', torch.__version__, 'CUDA', torch.version.cuda, 'transformers', transformers.__version__, 'vllm', version('vllm'))"]),
        }

    def doctor(self):
        return run([self.o.launcher, "doctor", "--vllm", self.o.vllm, "--state-dir", self.state(), *self.o.gpus]).splitlines()

    def make_models(self):
        here = os.path.dirname(os.path.abspath(__file__))
        return run([self.o.python, os.path.join(here, "make_models.py"), self.o.models], 200).splitlines()[-6:]

    # A bare engine.

    def arguments(self, name, model=None):
        where = os.path.join(self.o.models, model or name)
        extra = self.o.engine_args.split()
        if (model or name).startswith("large"):
            extra += ["--load-format", "dummy"]
        return [where, "--served-model-name", name, "--gpu-memory-utilization", str(self.o.utilization),
                "--max-model-len", "4096", *extra]

    def bare(self, model):
        log = os.path.join(self.o.out, "bare.log")
        before = nvidia_smi()
        began = time.monotonic()
        process = started([self.o.vllm, "serve", *self.arguments("bare", model), "--enable-sleep-mode", "--port", str(BARE)], log,
                          {**self.env, "VLLM_SERVER_DEV_MODE": "1", "VLLM_CACHE_ROOT": os.path.join(self.o.work, "bare-cache")})
        result = {"nvidia_smi_before": before}
        try:
            ready(BARE, process)
            result["healthy_ms"] = ms_since(began)
            text, _ = tokens(BARE, "bare", 8)
            result["first_tokens_ms"] = ms_since(began)
            result["nvidia_smi_awake"] = nvidia_smi()
            result["level_1"] = [self.bare_cycle(text) for _ in range(self.o.turns)]
            if self.o.level2 and "large" not in model:
                result["level_2"] = [self.bare_level_2(text) for _ in range(2)]
        finally:
            ended(process)
            result["nvidia_smi_after"] = nvidia_smi()
        return result

    def bare_cycle(self, text):
        cycle = {}
        for name, path in (("sleep_ms", "/sleep?level=1"), ("wake_ms", "/wake_up")):
            began = time.monotonic()
            status, answer = call(BARE, "POST", path)
            cycle[name] = ms_since(began)
            if status != 200:
                raise Failed(f"{path}: {status} {answer}")
            cycle["mib_after_" + name.split("_")[0]] = nvidia_smi()["used_mib"][0]
        said, cycle["token_ms"] = tokens(BARE, "bare", 8)
        cycle["same_answer"] = said == text
        return cycle

    def bare_level_2(self, text):
        cycle = {}
        for name, path, body in (
            ("sleep", "/sleep?level=2", None),
            ("wake_weights", "/wake_up?tags=weights", None),
            ("reload", "/collective_rpc", {"method": "reload_weights"}),
            ("wake_kv_cache", "/wake_up?tags=kv_cache", None),
            ("reset", "/reset_prefix_cache", None),
        ):
            began = time.monotonic()
            status, answer = call(BARE, "POST", path, body)
            cycle[name + "_ms"] = ms_since(began)
            cycle["mib_after_" + name] = nvidia_smi()["used_mib"][0]
            if status != 200:
                raise Failed(f"{path}: {status} {answer}")
        cycle["same_answer"] = tokens(BARE, "bare", 8)[0] == text
        return cycle

    # The launcher.

    def state(self):
        return os.path.join(self.o.work, "state")

    def serve(self):
        """Starts the launcher under its init, and waits for the preloader."""
        command = [self.o.launcher, "init", "--", "serve", "--vllm", self.o.vllm, "--state-dir", self.state(),
                   "--hold-timeout", "10m", *self.o.gpus]
        began = time.monotonic()
        self.server = started(command, os.path.join(self.o.out, "launcher.log"), self.env)
        ready(API, self.server)
        result = {"healthy_ms": ms_since(began)}
        while self.left() > 30:
            _, answer = call(API, "GET", "/v2/vllm/preloaders")
            states = [p["state"] for p in answer["preloaders"]]
            if not states or "loading" not in states:
                break
            time.sleep(0.1)
        result["preloaders"] = answer
        result["preloader_ready_ms"] = ms_since(began)
        result["nvidia_smi"] = nvidia_smi()
        result["gpus"] = self.gpus()
        self.gpu = result["gpus"][0]["uuid"]
        return result

    def gpus(self):
        return call(API, "GET", "/v2/gpus")[1]["gpus"]

    def held(self):
        """Bytes of the first GPU by state and instance, as the launcher tells them."""
        gpu = self.gpus()[0]
        told = {h["instance_id"]: f"{h['state']} {h['memory_bytes']}{'' if h['measured'] else ' estimated'}" for h in gpu["awake"] + gpu["sleepers"]}
        return {"used": gpu["memory_used_bytes"], "foreign": gpu["foreign_bytes"], **told}

    def swap(self, body, timeout=600):
        began = time.monotonic()
        status, answer = call(API, "POST", "/v2/vllm/swap", body, timeout)
        result = {"status": status, "wall_ms": ms_since(began)}
        if status != 200:
            result["problem"] = answer
            return result
        result.update(outcome=answer["outcome"], total_ms=answer["total_ms"],
                      phases=[{k: v for k, v in p.items() if k != "began_ms"} for p in answer["phases"]])
        for side, all_of in (("in", [answer.get("in")]), ("out", answer["out"])):
            result[side] = [{"id": i["instance_id"], "state": i["state"], "started_by": i.get("started_by"), "reason": i.get("reason"),
                             "host_bytes": i.get("host_memory_bytes"),
                             "timings": {t["name"]: t["duration_ms"] for t in i.get("timings", [])}} for i in all_of if i]
        return result

    def port(self, name):
        return self.instance(name)["port"]

    def instance(self, name):
        status, answer = call(API, "GET", f"/v2/vllm/instances/{name}")
        if status != 200:
            raise Failed(f"{name}: {status} {answer}")
        return answer

    def start(self, name, method):
        """Makes an instance the awake one by a swap, and asks it for its first token."""
        began = time.monotonic()
        result = self.swap({"gpu_uuids": [self.gpu], "in": {
            "id": name, "args": self.arguments(name), "gpu_uuids": [self.gpu], "start_method": method}})
        if result["status"] != 200:
            raise Failed(json.dumps(result))
        by = result["in"][0]["started_by"]
        if by != method:
            raise Failed(f"{name} was started by {by}, not by {method}: {json.dumps(result)}")
        self.said[name], result["tokens_ms"] = tokens(self.port(name), name, 8)
        result["first_tokens_after_ms"] = ms_since(began)
        result["held"] = self.held()
        result["nvidia_smi"] = nvidia_smi()
        result["processes"] = processes(self.instance(name)["pid"])
        return result

    def preloader(self):
        """A preloader is ready. Otherwise no engine can be forked, and the reason is told."""
        preloaders = call(API, "GET", "/v2/vllm/preloaders")[1]
        if not any(p["state"] == "ready" for p in preloaders["preloaders"]):
            raise Failed(f"no engine can be forked here: {json.dumps(preloaders)}")
        return run([self.o.launcher, "preloaders"]).splitlines()

    def swaps(self, names, turns, out=None):
        """Swaps to each of the instances in turn."""
        taken = []
        for turn in range(turns * len(names)):
            name = names[turn % len(names)]
            body = {"in": {"instance_id": name}}
            if out:
                body["out"] = out
            one = self.swap(body)
            if one["status"] == 200:
                said, one["token_ms"] = tokens(self.port(name), name, 8)
                one["same_answer"] = said == self.said[name]
            one["held"] = self.held()
            one["nvidia_smi"] = nvidia_smi()
            taken.append(one)
            if self.left() < 20:
                break
        return {"summary": summary(taken), "swaps": taken}

    def by_hand(self, turns):
        """The two calls of a swap, made at the sockets of the same two engines."""
        awake, asleep = self.turn()
        at = {name: self.socket(name) for name in (awake, asleep)}
        taken = []
        for _ in range(2 * turns):  # an even number: the launcher finds both as it left them
            one, began = {}, time.monotonic()
            for key, name, path in (("sleep_ms", awake, "/sleep?level=1"), ("wake_ms", asleep, "/wake_up")):
                call_began = time.monotonic()
                status, answer = call(at[name], "POST", path)
                one[key] = ms_since(call_began)
                if status != 200:
                    raise Failed(f"{name} {path}: {status} {answer}")
            one["total_ms"] = ms_since(began)
            awake, asleep = asleep, awake
            said, one["token_ms"] = tokens(at[awake], awake, 8)
            one["same_answer"] = said == self.said[awake]
            taken.append(one)
        return {"median_total_ms": statistics.median(t["total_ms"] for t in taken),
                "median_sleep_ms": statistics.median(t["sleep_ms"] for t in taken),
                "median_wake_ms": statistics.median(t["wake_ms"] for t in taken), "swaps": taken}

    def delete(self, name):
        began = time.monotonic()
        status, answer = call(API, "DELETE", f"/v2/vllm/instances/{name}")
        return {"status": status, "ms": ms_since(began), "held": self.held(), "answer": answer if status >= 400 else answer.get("state")}

    def delete_all(self):
        began = time.monotonic()
        status, answer = call(API, "DELETE", "/v2/vllm/instances")
        took = ms_since(began)
        return {"status": status, "ms": took, "stopped": answer.get("total_stopped"), "held": self.held(), "nvidia_smi": nvidia_smi()}

    def close(self):
        ended(self.server)
        self.server = None
        for log in glob.glob(os.path.join(self.state(), "logs", "*")):
            shutil.copy(log, os.path.join(self.o.out, "engine-" + os.path.basename(log)))
        return {"nvidia_smi": nvidia_smi()}

    def small(self):
        """The walk with the two models of 3.5 GiB."""
        if self.o.bare:
            self.must("bare engine", self.bare, "a", needs=60)
        self.must("launcher and preloader", self.serve, needs=40)
        self.step("a preloader is ready", self.preloader)
        if self.o.exec:
            self.must("start a by exec", self.start, "a", "exec", needs=40)
            self.step("start b by exec", self.start, "b", "exec", needs=40)
            self.step("delete b", self.delete, "b")
        else:
            self.fork("a")
        self.fork("b")
        self.step("swaps at level 1", self.swaps, ("a", "b"), self.o.turns, needs=30)
        self.step("the same swaps by hand", self.by_hand, self.o.turns, needs=20)
        self.step("a request for a model that sleeps", self.held_request, needs=10)
        self.step("kill -9 of the launcher", self.kill, needs=20)
        if self.o.level2:
            self.step("swaps at level 2", self.swaps, ("a", "b"), 2, {"level": 2}, needs=30)
            self.step("half awake", self.half_awake, needs=20)
        if self.o.failures:
            self.fail()
        self.step("delete all", self.delete_all)
        self.step("close", self.close, needs=0)
        if self.o.failures:
            self.step("launchers with CUDA_VISIBLE_DEVICES", self.told_gpus, needs=10)

    def fail(self):
        """Everything that is refused, fails or dies."""
        self.step("launcher run without --gpu", self.run_without_gpu)
        self.step("refused", self.refused, needs=20)
        self.step("undone", self.undone, needs=30)
        if self.o.level2:
            self.step("a reload that is cut", self.cut_reload, needs=30)
        if not self.o.exec:
            self.step("a preloader is ready again", self.preloader_again, needs=60)
            self.step("first starts of an architecture", self.architecture, 2, needs=40)
        for level in (1, 2) if self.o.level2 else (1,):
            for seconds in self.o.robs.split(","):
                self.step(f"a stranger takes the memory for {seconds} s, level {level}", self.robbed, level, float(seconds), needs=40 + float(seconds))
        for kind in ("start", "wake", "reload"):
            if self.o.level2 or kind != "reload":
                self.step(f"kill -9 of the launcher in a swap: {kind}", self.kill_in_swap, kind, needs=30)

    def fork(self, name):
        """Starts by fork; by exec where that fails, so that the walk can go on."""
        if not self.step(f"start {name} by fork", self.start, name, "fork", needs=30):
            self.step(f"delete {name}", self.delete, name)
            self.step(f"start {name} by exec instead", self.start, name, "exec", needs=40)

    def large(self):
        """Starts and swaps of the two models of 15 GiB."""
        if self.o.bare:
            self.must("bare engine, large", self.bare, "large-a", needs=100)
        self.must("launcher and preloader", self.serve, needs=40)
        self.step("a preloader is ready", self.preloader)
        if self.o.exec:
            self.must("start large-a by exec", self.start, "large-a", "exec", needs=60)
        else:
            self.fork("large-a")
        self.fork("large-b")
        self.step("swaps at level 1, large", self.swaps, ("large-a", "large-b"), self.o.turns, needs=30)
        self.step("the same swaps by hand, large", self.by_hand, self.o.turns, needs=20)
        if self.o.exec and self.step("delete large-a", self.delete, "large-a"):
            self.step("start large-a by exec again", self.start, "large-a", "exec", needs=60)
        self.step("delete all", self.delete_all)
        self.step("close", self.close, needs=0)


def summary(taken):
    """Medians, fastest and slowest of the swaps, by phase."""
    done = [s for s in taken if s.get("outcome") == "done"]
    columns = {"total": [s["total_ms"] for s in done], "wall": [s["wall_ms"] for s in done], "token": [s["token_ms"] for s in done]}
    for s in done:
        for p in s["phases"]:
            columns.setdefault(p["name"], []).append(p["duration_ms"])
        for i in s["in"]:
            if "canary" in i["timings"]:
                columns.setdefault("canary of the instance", []).append(i["timings"]["canary"])
    figures = {name: [round(f(values), 2) for f in (statistics.median, min, max)] for name, values in columns.items() if values}
    return {"swaps": len(taken), "done": len(done), "same_answers": sum(s.get("same_answer", False) for s in taken), "median_min_max_ms": figures}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--launcher", required=True, help="the program launcher")
    parser.add_argument("--vllm", required=True, help="the command vllm")
    parser.add_argument("--python", default=sys.executable, help="a Python with torch and transformers (default: this one)")
    parser.add_argument("--work", required=True, help="folder for the models and the state folder; 10 GiB")
    parser.add_argument("--out", required=True, help="folder for results.json and the logs")
    parser.add_argument("--part", choices=("small", "large"), default="small", help="models of 3.5 or of 15 GiB")
    parser.add_argument("--seconds", type=float, default=1800, help="begin no step for which less than this is left")
    parser.add_argument("--turns", type=int, default=6, help="swaps each way")
    parser.add_argument("--utilization", type=float, default=0.8, help="--gpu-memory-utilization of each model")
    parser.add_argument("--engine-args", default="", help="further arguments of vLLM, such as --enforce-eager")
    parser.add_argument("--foreign-gib", type=float, default=10, help="device memory that a stranger takes")
    parser.add_argument("--short", default="300ms,600ms,1s", help="time limits of swaps that are to fail")
    parser.add_argument("--cuts", default="150ms,250ms,500ms,800ms", help="time limits of swaps to sleepers of level 2")
    parser.add_argument("--robs", default="3,40", help="seconds for which a stranger keeps memory that a swap has freed")
    parser.add_argument("--no-bare", dest="bare", action="store_false", help="leave out the engine without the launcher")
    parser.add_argument("--no-exec", dest="exec", action="store_false", help="start by fork alone")
    parser.add_argument("--no-doctor", dest="doctor", action="store_false", help="leave out launcher doctor")
    parser.add_argument("--no-failures", dest="failures", action="store_false", help="leave out the swaps that are refused or undone")
    parser.add_argument("--no-level2", dest="level2", action="store_false", help="leave out level 2")
    parser.add_argument("--gpus", action="append", default=[], help="a further flag of the launcher, such as --gpus=--visible-gpus=1")
    options = parser.parse_args()
    options.models = os.path.join(options.work, "models")
    return options


def main():
    options = parse()
    for folder in (options.work, options.out, options.models):
        os.makedirs(folder, exist_ok=True)
    walk = Walk(options)
    walk.step("machine", walk.machine)
    if options.doctor:
        walk.step("doctor", walk.doctor)
    if not os.path.isdir(os.path.join(options.models, "large-b")):
        walk.step("models", walk.make_models)
    try:
        getattr(walk, options.part)()
    except Failed as error:
        print(error)
    finally:
        if walk.server:
            walk.step("close", walk.close, needs=0)
        walk.write()
    failed = [s["step"] for s in walk.results["steps"] if "error" in s or "skipped" in s]
    print("failed or skipped:", failed or "nothing")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
