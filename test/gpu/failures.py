"""The steps of the walk in which something is refused, fails or dies."""

import contextlib
import glob
import http.client
import json
import os
import shutil
import signal
import subprocess
import threading
import time

from calls import API, Failed, call, ended, ms_since, nvidia_smi, ready, run, started, tokens

# THIEF takes nine GiB more than were free when it began, at a word, and keeps them for some seconds.
THIEF = """
import sys, time, torch
torch.zeros(1, device="cuda")
first = torch.cuda.mem_get_info()[0]
print("free", first, flush=True)
sys.stdin.readline()
began = time.monotonic()
x = torch.empty(first + 9 * 2**30, dtype=torch.uint8, device="cuda")
print("took", x.numel(), "in ms", round((time.monotonic() - began) * 1000, 1), "left", torch.cuda.mem_get_info()[0], flush=True)
time.sleep(float(sys.argv[1]))
"""


class Failures:
    def refused(self):
        """A create beside the awake model, a swap that can never fit, and one that a stranger's memory prevents."""
        arguments = self.arguments("c", "a")
        create = call(API, "PUT", "/v2/vllm/instances/c", {"args": arguments, "gpu_uuids": [self.gpu]})
        greedy = [*arguments]
        greedy[greedy.index("--gpu-memory-utilization") + 1] = "0.999"
        never = self.swap({"gpu_uuids": [self.gpu], "in": {"id": "c", "args": greedy, "gpu_uuids": [self.gpu]}})
        result = {"create_beside": create, "never_fits": never}
        awake, asleep = self.turn()
        with self.stranger(self.o.foreign_gib) as told:
            result.update(stranger=told, held=self.held(), nvidia_smi=nvidia_smi())
            result["beside_stranger"] = self.swap({"in": {"instance_id": asleep}})
        result["all_asleep"] = self.swap({"out": {}, "gpu_uuids": [self.gpu]})
        with self.stranger(3 * self.o.foreign_gib):
            result["no_room_beside_stranger"] = self.swap({"in": {"instance_id": awake}})
        result["room_again"] = self.swap({"in": {"instance_id": awake}})
        result["held_after"] = self.held()
        result["wrong"] = wrong(create_beside=create[0] == 409, never_fits=never["status"] == 409, no_room=result["no_room_beside_stranger"]["status"] == 409,
                                **{name: result[name]["status"] == 200 for name in ("beside_stranger", "all_asleep", "room_again")})
        return result

    @contextlib.contextmanager
    def stranger(self, gib):
        """Another process that holds device memory."""
        process = subprocess.Popen([self.o.python, "-c", "import sys, torch; x = torch.zeros(int(sys.argv[1]), dtype=torch.uint8, device='cuda'); "
                                    "torch.cuda.synchronize(); print('holds', flush=True); sys.stdin.read()", str(int(gib * 2**30))],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait(30)

    def undone(self):
        """Swaps that fail: the model is not there; the time is up while the sleeper wakes."""
        awake, asleep = self.turn()
        result = {"before": self.held(), "nvidia_smi_before": nvidia_smi()}
        result["no_model"] = self.swap({"gpu_uuids": [self.gpu], "in": {
            "id": "broken", "args": self.arguments("broken", "nowhere"), "gpu_uuids": [self.gpu]}})
        result["after_no_model"] = self.held()
        call(API, "DELETE", "/v2/vllm/instances/broken")
        result["short"] = []
        for limit in self.o.short.split(","):
            one = {"limit": limit, "swap": self.swap({"in": {"instance_id": asleep}, "timeout": limit})}
            one["held"], one["nvidia_smi"] = self.held(), nvidia_smi()
            if one["swap"].get("outcome") == "done":
                one["back"] = self.swap({"in": {"instance_id": awake}})
            result["short"].append(one)
        said, _ = tokens(self.port(awake), awake, 8)
        result["same_answer"] = said == self.said[awake]
        undone = [result["no_model"], *(one["swap"] for one in result["short"] if one["swap"]["status"] != 200)]
        result["wrong"] = wrong(undone=all(one["problem"]["outcome"] == "undone" for one in undone), answer=result["same_answer"],
                                memory=all(near(held, result["before"]) for held in (result["after_no_model"], self.held())))
        return result

    def half_awake(self):
        """A stranger wakes the weights of a sleeper behind the launcher's back; then a swap to it."""
        awake, asleep = self.turn()
        result = {"asleep": self.held()}
        result["level_2"] = self.swap({"in": {"instance_id": asleep}, "out": {"level": 2}})
        result["asleep_level_2"] = self.held()
        socket_of = self.socket(awake)
        result["wake_weights"] = call(socket_of, "POST", "/wake_up?tags=weights")
        result["weights_awake"] = self.held()
        result["swap"] = self.swap({"in": {"instance_id": awake}})
        result["after"] = self.held()
        said, _ = tokens(self.port(awake), awake, 8)
        result["same_answer"] = said == self.said[awake]
        return result

    def held_request(self):
        """A request that comes while its model sleeps waits, and is answered once it is awake."""
        _, asleep = self.turn()
        answer, port, began = {}, self.port(asleep), time.monotonic()

        def ask():
            try:
                said, _ = tokens(port, asleep, 8, timeout=60)
                answer.update(answered_at_ms=ms_since(began), same_answer=said == self.said[asleep])
            except (OSError, Failed, http.client.HTTPException) as error:
                answer["error"] = f"{type(error).__name__}: {error}"[:300]

        client = threading.Thread(target=ask)
        client.start()
        while not self.instance(asleep)["held"] and not answer and ms_since(began) < 5000:
            time.sleep(0.01)
        result = {"held": self.instance(asleep)["held"], "asked_for_models": call(port, "GET", "/v1/models", timeout=5)[0]}
        result["swap_began_at_ms"] = ms_since(began)
        result["swap"] = self.swap({"in": {"instance_id": asleep}})
        result["swap_ended_at_ms"] = ms_since(began)
        client.join()
        result.update(answer)
        result["wrong"] = wrong(held=result["held"] == 1, answered=answer.get("same_answer", False))
        return result

    def run_without_gpu(self):
        """launcher run without --gpu is refused where there is a GPU; beside an awake model with it too."""
        before, result = self.held(), {}
        for name, flags in (("without", []), ("beside", ["--gpu", "0"])):
            done = subprocess.run([self.o.launcher, "run", *flags, "--", *self.arguments("typed", "a")],
                                  capture_output=True, text=True, timeout=60, check=False)
            result[name] = {"exit_code": done.returncode, "says": (done.stdout + done.stderr).strip()}
        result["wrong"] = wrong(without="--gpu is missing" in result["without"]["says"] and result["without"]["exit_code"] != 0,
                                beside=result["beside"]["exit_code"] != 0, untouched=self.held() == before)
        return result

    def told_gpus(self):
        """A launcher heeds its CUDA_VISIBLE_DEVICES: the GPUs of it, or a refusal."""
        result = []
        good = {self.gpu: True, self.gpu[:12]: True, "0": True, "0,7": True, "7": False, "7,0": False, "": False}
        for value in good:
            log = os.path.join(self.o.out, "visible.log")
            if os.path.exists(log):
                os.remove(log)
            process = started([self.o.launcher, "serve", "--vllm", self.o.vllm, "--start-method", "exec", "--state-dir", self.state() + "-visible", *self.o.gpus],
                              log, {"CUDA_VISIBLE_DEVICES": value})
            try:
                ready(API, process, timeout=20)
                told = [g["uuid"] for g in self.gpus()]
            except Failed:
                told = None
            finally:
                ended(process)
            with open(log, encoding="utf-8") as file:
                says = [line.strip() for line in file if "CUDA_VISIBLE_DEVICES" in line]
            result.append({"value": value, "gpus": told, "says": says})
        return {"launchers": result, "wrong": [r["value"] for r in result
                                               if r["gpus"] != ([self.gpu] if good[r["value"]] else None) or not r["says"]]}

    def architecture(self, turns):
        """Starts by fork without and with what vLLM has kept of the model's class."""
        taken = []
        for turn in range(2 * turns):
            self.delete("b")
            kept = turn % 2 == 1
            folders = glob.glob(os.path.join(self.state(), "**", "modelinfos"), recursive=True)
            for folder in folders if not kept else ():
                shutil.rmtree(folder)
            one = self.start("b", "fork")
            with open(os.path.join(self.state(), "logs", self.instance("b")["log_name"]), encoding="utf-8", errors="replace") as file:
                says = [line.strip() for line in file if "hotseat:" in line]
            phases = {p["name"]: p["duration_ms"] for p in one["phases"]}
            taken.append({"kept": kept, "folders": len(folders), "start_ms": round(phases["start"] + phases["healthy"], 2), "says": says, "start": one})
        return {"first_ms": [t["start_ms"] for t in taken if not t["kept"]], "later_ms": [t["start_ms"] for t in taken if t["kept"]], "starts": taken,
                "wrong": wrong(folders=all(t["folders"] for t in taken), forked_inspection=not any(t["says"] for t in taken))}

    def cut_reload(self):
        """Swaps to a sleeper of level 2 whose time is up in the calls of its wake."""
        taken = []
        for limit in self.o.cuts.split(","):
            one = {"limit": limit}
            awake, asleep = self.at_level_2(one)
            before = self.held()
            one["swap"] = self.swap({"in": {"instance_id": asleep}, "timeout": limit})
            if one["swap"]["status"] == 200:
                awake, asleep = asleep, awake
            one["after"] = self.aftermath(awake, asleep, before)
            taken.append(one)
        return {"cuts": taken, "wrong": [t["limit"] + ": " + w for t in taken for w in t["after"]["wrong"]]}

    def at_level_2(self, record):
        """Puts the awake model to sleep at level 2 by a swap to the other; says which is awake and which asleep then."""
        awake, asleep = self.turn()
        record["level_2"] = self.swap({"in": {"instance_id": asleep}, "out": {"level": 2}})
        if record["level_2"]["status"] != 200:
            raise Failed(json.dumps(record))
        return asleep, awake

    def robbed(self, level, seconds):
        """A stranger takes device memory while the sleeper wakes, so that the wake fails in the
        engine. It keeps the memory for some seconds."""
        result, told = {}, {}
        awake, asleep = self.at_level_2(result) if level == 2 else self.turn()
        before = self.held()
        thief = subprocess.Popen([self.o.python, "-c", THIEF, str(seconds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        client = threading.Thread(target=lambda: told.update(self.swap({"in": {"instance_id": asleep}})))
        try:
            result["thief"] = [thief.stdout.readline().strip()]
            client.start()
            while self.state_of(asleep) != "waking" and client.is_alive():
                time.sleep(0.002)
            time.sleep(0.05)
            result["robbed_in"] = self.state_of(asleep)
            result["thief"] += thief.communicate("now\n", timeout=seconds + 20)[0].splitlines()
            client.join()
        finally:
            thief.kill()
            thief.wait()
        result["swap"] = told
        if told["status"] == 200:
            awake, asleep = asleep, awake
        result["after"] = self.aftermath(awake, asleep, before, must=told.get("problem", {}).get("outcome") != "undo_failed")
        result["wrong"] = wrong(failed=told["status"] != 200) + result["after"]["wrong"]
        return result

    def aftermath(self, awake, other, before, must=True):
        """What a failed swap leaves: both models in a known state with their memory. The awake one
        answers the same, and after a swap the other one does."""
        states = self.rest()
        result = {"states": states, "reasons": {i: self.instance(i).get("reason") for i in states},
                  "held": self.held(), "nvidia_smi": nvidia_smi()}
        result["wrong"] = wrong(awake=states.get(awake) == "awake" or not must, other=states.get(other) in ("sleeping", "failed"),
                                memory=result["held"]["used"] < before["used"] + 2**29)
        for name, step in ((awake, "awake"), (other, "other"), (awake, "back")):
            if step != "awake" or self.instance(name)["state"] != "awake":
                result["swap_to_" + step] = self.swap({"in": {"instance_id": name}})
            try:
                same = tokens(self.port(name), name, 8, timeout=60)[0] == self.said[name]
            except (OSError, Failed, http.client.HTTPException) as error:
                same, result["error_of_" + step] = False, f"{type(error).__name__}: {error}"[:500]
            result["wrong"] += wrong(**{"answer of " + step: same})
        result["held_at_end"] = self.held()
        return result

    def rest(self):
        """Waits until no instance is changing its state; returns the states."""
        began = time.monotonic()
        while True:
            states = {i["instance_id"]: i["state"] for i in call(API, "GET", "/v2/vllm/instances")[1]["instances"]}
            if not set(states.values()) & {"starting", "waking", "falling_asleep", "stopping"} or ms_since(began) > 60000:
                return states
            time.sleep(0.02)

    def kill_in_swap(self, kind):
        """kill -9 of the launcher while a model wakes from level 1 or 2, or starts by fork."""
        result, gone = {}, {}
        awake, other = self.at_level_2(result) if kind == "reload" else self.turn()
        before, body = self.held(), {"in": {"instance_id": other}}
        if kind == "start":
            self.said["c"] = self.said["a"]  # the same model
            other, body = "c", {"gpu_uuids": [self.gpu], "in": {"id": "c", "args": self.arguments("c", "a"), "gpu_uuids": [self.gpu], "start_method": "fork"}}
        pids = {i["instance_id"]: i.get("pid") for i in call(API, "GET", "/v2/vllm/instances")[1]["instances"]}

        def ask():
            try:
                gone["answer"] = self.swap(body)
            except (OSError, http.client.HTTPException) as error:
                gone["error"] = f"{type(error).__name__}: {error}"

        client, began, serve = threading.Thread(target=ask), time.monotonic(), self.serve_pid()
        client.start()
        wanted, delay = {"wake": ("waking", 0.1), "reload": ("waking", 0.3), "start": ("starting", 1.5)}[kind]
        while self.state_of(other) != wanted and client.is_alive():
            time.sleep(0.002)
        time.sleep(delay)
        result["killed_in"] = self.state_of(other)
        os.kill(serve, signal.SIGKILL)
        killed = time.monotonic()
        client.join()
        while not self.serves_anew(serve):
            time.sleep(0.005)
        ready(API, self.server)
        result.update(call=gone, launcher_back_ms=ms_since(killed), states_at_first={n: self.state_of(n) for n in {*pids, other}})
        states = self.rest()
        result.update(rest_ms=ms_since(killed), pids_before=pids, pids_after={i["instance_id"]: i.get("pid") for i in call(API, "GET", "/v2/vllm/instances")[1]["instances"]})
        if states.get(other) == "awake":
            awake, other = other, awake
        if other in states:
            result["after"] = self.aftermath(awake, other, before if kind != "start" else {"used": before["used"] + 2**30})
            result["wrong"] = result["after"]["wrong"]
        else:
            result["after"] = {"states": states, "held": self.held()}
            result["wrong"] = wrong(awake=states.get(awake) == "awake", answer=tokens(self.port(awake), awake, 8)[0] == self.said[awake])
        if kind == "start" and "c" in states:
            if self.state_of("c") == "awake":
                result["swap_from_c"] = self.swap({"in": {"instance_id": "a"}})
            result["delete_c"] = self.delete("c")
        return result

    def preloader_again(self):
        """Waits until a preloader is ready: each new launcher loads one."""
        began = time.monotonic()
        while "ready" not in [p["state"] for p in call(API, "GET", "/v2/vllm/preloaders")[1]["preloaders"]]:
            if ms_since(began) > 60000:
                raise Failed("no preloader is ready after 60 s")
            time.sleep(0.1)
        return {"waited_ms": ms_since(began)}

    def state_of(self, name):
        status, answer = call(API, "GET", f"/v2/vllm/instances/{name}")
        return answer["state"] if status == 200 else None

    def serves_anew(self, old):
        try:
            return self.serve_pid() != old
        except Failed:
            return False

    def turn(self):
        states = {i["instance_id"]: i["state"] for i in call(API, "GET", "/v2/vllm/instances")[1]["instances"]}
        awake = next(i for i, s in states.items() if s == "awake")
        return awake, next(i for i, s in states.items() if s == "sleeping")

    def socket(self, name):
        """The Unix socket of an engine: the one at which it says its name."""
        for path in glob.glob(os.path.join(self.state(), "run", "**", "http"), recursive=True):
            try:
                if name in [m["id"] for m in call(path, "GET", "/v1/models", timeout=5)[1]["data"]]:
                    return path
            except OSError:
                continue
        raise Failed(f"no socket of {name} in {self.state()}")

    def kill(self):
        """kill -9 of the launcher: the engine answers on, and the next launcher takes it over."""
        awake, asleep = self.turn()
        port, direct = self.port(awake), self.socket(awake)
        serve = self.serve_pid()
        engine = self.instance(awake)["pid"]
        through, alone, stop = [], [], threading.Event()
        began = time.monotonic()

        def client(at, answers):
            while not stop.is_set():
                at_ms = ms_since(began)
                try:
                    said, took = tokens(at, awake, 4, timeout=20)
                    answers.append({"at_ms": at_ms, "took_ms": took, "same_answer": self.said[awake].startswith(said)})
                except (OSError, Failed, http.client.HTTPException) as error:
                    answers.append({"at_ms": at_ms, "error": f"{type(error).__name__}: {error}"[:200]})
                    time.sleep(0.002)

        clients = [threading.Thread(target=client, args=(port, through)), threading.Thread(target=client, args=(direct, alone))]
        for one in clients:
            one.start()
        time.sleep(0.5)
        killed = ms_since(began)
        os.kill(serve, signal.SIGKILL)
        time.sleep(3)
        stop.set()
        for one in clients:
            one.join()
        ready(API, self.server)
        result = {"killed_at_ms": killed, "through_the_port": outage(through, killed), "at_the_socket": outage(alone, killed),
                  "engine_pid_before": engine, "engine_pid_after": self.instance(awake)["pid"], "serve_pid_after": self.serve_pid(),
                  "states": {awake: self.instance(awake)["state"], asleep: self.instance(asleep)["state"]}, "held": self.held()}
        result["swap_after"] = self.swap({"in": {"instance_id": asleep}})
        said, _ = tokens(self.port(asleep), asleep, 8)
        result["same_answer"] = said == self.said[asleep]
        return result

    def serve_pid(self):
        """The child of the launcher's init that runs its program: init has adopted engines too."""
        program = os.path.realpath(self.o.launcher)
        for pid in run(["pgrep", "-P", str(self.server.pid)]).split():
            try:
                if os.readlink(f"/proc/{pid}/exe") == program:
                    return int(pid)
            except OSError:
                continue
        raise Failed("the launcher's init has no child that serves")


def near(held, before):
    """Whether about as much memory is used, by as many instances."""
    return held.keys() == before.keys() and abs(held["used"] - before["used"]) < 2**29


def wrong(**expected):
    """The names of what is not as expected."""
    return [name for name, good in expected.items() if not good]


def outage(answers, killed):
    """How many requests were answered before and after the kill, and between which times none was."""
    good = [a for a in answers if "error" not in a]
    before = [a["at_ms"] + a["took_ms"] for a in good if a["at_ms"] + a["took_ms"] <= killed]
    after = [a["at_ms"] + a["took_ms"] for a in good if a["at_ms"] + a["took_ms"] > killed]
    errors = [a["error"] for a in answers if "error" in a]
    return {"answered": len(good), "all_the_same": all(a["same_answer"] for a in good), "failed": len(errors), "errors": sorted(set(errors)),
            "last_before_ms": max(before, default=None), "first_after_ms": min(after, default=None),
            "longest_ms": max((a["took_ms"] for a in good), default=None)}
