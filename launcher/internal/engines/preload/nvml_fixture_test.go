package preload

import (
	"path/filepath"
	"testing"
)

// This file has a stand-in for NVML, which this machine does not have, and an engine that asks
// it.

// nvml counts its users, as that of the driver does, and holds a file open while it has some.
// With LEAVES it behaves as that of driver 580.159 does: a thread and files stay after the
// shutdown. With COUNT it hangs or dies when it is asked for the number of GPUs. Asked for the
// driver's version, it sends SIGUSR1 to its parent, and answers once there is the file CAUGHT.
const nvml = `
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
enum { SUCCESS, UNINITIALIZED, INVALID_ARGUMENT };
static int users, device, event;
static struct gpu { char uuid[16]; int major, minor; } gpus[] = {{"GPU-zero", 9, 0}, {"GPU-one", 8, 6}};
static void *wait_for_ever(void *unused) { for (;;) pause(); return unused; }
int nvmlInitWithFlags(unsigned flags)
{
	if (users++) return SUCCESS;
	device = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	if (getenv("LEAVES") && !event) {
		pthread_t thread;
		event = eventfd(0, EFD_CLOEXEC);
		pthread_create(&thread, NULL, wait_for_ever, NULL);
		pthread_setname_np(thread, "cuda0001");
	}
	return SUCCESS;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlInit(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void)
{
	if (!users) return UNINITIALIZED;
	if (!--users) close(device);
	return SUCCESS;
}
int nvmlDeviceGetCount_v2(unsigned *count)
{
	const char *how = getenv("COUNT");
	if (!users) return UNINITIALIZED;
	if (how && !strcmp(how, "hangs")) wait_for_ever(NULL);
	if (how && !strcmp(how, "dies")) raise(SIGKILL);
	*count = 2;
	return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **gpu)
{
	if (!users) return UNINITIALIZED;
	if (index > 1) return INVALID_ARGUMENT;
	*gpu = &gpus[index];
	return SUCCESS;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, struct gpu **gpu)
{
	for (int n = 0; n < 2; n++)
		if (!strcmp(uuid, gpus[n].uuid)) return nvmlDeviceGetHandleByIndex_v2(n, gpu);
	return INVALID_ARGUMENT;
}
int nvmlDeviceGetUUID(struct gpu *gpu, char *uuid, unsigned size)
{
	if (!users) return UNINITIALIZED;
	return snprintf(uuid, size, "%s", gpu->uuid) < size ? SUCCESS : INVALID_ARGUMENT;
}
int nvmlDeviceGetCudaComputeCapability(struct gpu *gpu, int *major, int *minor)
{
	*major = gpu->major;
	*minor = gpu->minor;
	return users ? SUCCESS : UNINITIALIZED;
}
int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
	kill(getppid(), SIGUSR1);
	while (access(getenv("CAUGHT"), F_OK)) usleep(1000);
	memset(version, 'x', length);
	return SUCCESS;
}
const char *nvmlErrorString(int code) { return code == INVALID_ARGUMENT ? "Invalid Argument" : "another"; }
`

// pynvml keeps the library and its functions in its own variables, as vLLM's copy of pynvml
// does.
const pynvml = `
from ctypes import *

library, functions = None, {}
class Device(Structure):
    pass
Handle = POINTER(Device)

class NVMLError(Exception):
    pass

def function(name):
    if name not in functions:
        functions[name] = getattr(library, name)
    return functions[name]

def check(code):
    if code:
        fn = function("nvmlErrorString")
        fn.restype = c_char_p
        raise NVMLError(fn(code).decode())

def nvmlInit():
    global library
    library = library or CDLL("libnvidia-ml.so.1")
    check(function("nvmlInitWithFlags")(0))

def nvmlShutdown():
    check(function("nvmlShutdown")())

def nvmlDeviceGetCount():
    count = c_uint()
    check(function("nvmlDeviceGetCount_v2")(byref(count)))
    return count.value

def nvmlDeviceGetHandleByUUID(uuid):
    handle = Handle()
    check(function("nvmlDeviceGetHandleByUUID")(c_char_p(uuid.encode()), byref(handle)))
    return handle

def nvmlDeviceGetHandleByIndex(index):
    handle = Handle()
    check(function("nvmlDeviceGetHandleByIndex_v2")(c_uint(index), byref(handle)))
    return handle

def nvmlDeviceGetCudaComputeCapability(handle):
    major, minor = c_int(), c_int()
    check(function("nvmlDeviceGetCudaComputeCapability")(handle, byref(major), byref(minor)))
    return [major.value, minor.value]
`

// askingEngine asks NVML while it is imported and when it runs: by pynvml as vLLM does, and by
// ctypes as torch does, which leaves NVML initialised. Its main writes what it found.
const askingEngine = `
import contextlib, json, os, signal, socket, sys
from vllm.third_party import pynvml
from vllm.utils import system_utils

@contextlib.contextmanager
def nvml():
    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()

def uuids():
    from ctypes import byref, c_int, c_void_p, CDLL, create_string_buffer
    library, count, found = CDLL("libnvidia-ml.so.1"), c_int(-1), []
    if library.nvmlInit() or library.nvmlDeviceGetCount_v2(byref(count)):
        return None
    for index in range(count.value):
        device, text = c_void_p(), create_string_buffer(96)
        if library.nvmlDeviceGetHandleByIndex_v2(index, byref(device)) or library.nvmlDeviceGetUUID(device, text, 96):
            return None
        found.append(text.value.decode())
    return found

def ask():
    answers = {}
    with nvml():
        answers["count"] = pynvml.nvmlDeviceGetCount()
        answers["capability"] = pynvml.nvmlDeviceGetCudaComputeCapability(pynvml.nvmlDeviceGetHandleByUUID("GPU-one"))
        try:
            pynvml.nvmlDeviceGetHandleByIndex(7)
        except pynvml.NVMLError as error:
            answers["error"] = str(error)
    answers["uuids"] = uuids()
    try:
        answers["none"] = pynvml.function("nvmlNoSuchFunction")()
    except AttributeError:
        answers["none"] = 13
    return answers

def stale():
    """Uses a handle that was given out during the import."""
    with nvml():
        try:
            return pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        except pynvml.NVMLError as error:
            return str(error)

def be_interrupted():
    """Has a signal end a call. The answer comes later."""
    from ctypes import create_string_buffer
    def leave(*_):
        raise SystemExit
    signal.signal(signal.SIGUSR1, leave)
    try:
        pynvml.function("nvmlSystemGetDriverVersion")(create_string_buffer(80), 80)
    except SystemExit:
        open(os.environ["CAUGHT"], "x").close()

def count_after_another():
    """Asks while the answer to another question is still there."""
    pynvml.nvmlInit()
    question = {"number": -1, "library": "libnvidia-ml.so.1", "name": "nvmlInit", "text": False, "arguments": []}
    other = pynvml.library._hotseat_helper.socket
    other.sendall(json.dumps(question).encode() + b"\n")
    other.recv(1, socket.MSG_PEEK)
    try:
        return pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        return str(error)

def children():
    return [int(pid) for pid in open(f"/proc/self/task/{os.getpid()}/children").read().split()]

def threads():
    return sorted(open(f"/proc/self/task/{tid}/comm").read().strip() for tid in os.listdir("/proc/self/task") if tid != str(os.getpid()))

imported = ask()
with nvml():
    handle = pynvml.nvmlDeviceGetHandleByIndex(1)

def core():
    print(json.dumps({"now": ask(), "threads": threads(), "children": children()}), flush=True)
    signal.pause()

def main():
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
    if "--interrupt" in sys.argv:
        be_interrupted()
    late = count_after_another() if "--late" in sys.argv else None
    print(json.dumps({"imported": imported, "now": ask(), "stale": stale(), "late": late, "threads": threads(), "children": children()}), flush=True)
    if "--load" in sys.argv:
        import ctypes, _ctypes
        _ctypes.dlopen("libnvidia-ml.so.1", os.RTLD_NOW)
    if "--core" in sys.argv:
        process = system_utils.get_mp_context().Process(target=core)
        process.start()
        if "--load" in sys.argv:
            print(json.dumps({"kind": type(process).__name__}), flush=True)
    if "--end" not in sys.argv:
        signal.pause()
`

// asked is what the engine found.
type asked struct {
	Imported any      `json:"imported"`
	Now      any      `json:"now"`
	Stale    any      `json:"stale"`
	Late     any      `json:"late"`
	Threads  []string `json:"threads"`
	Children []int    `json:"children"`
}

// asksNVML makes the engine ask NVML while it is imported. The environment is that of its
// preloader and its instances.
func asksNVML(t *testing.T, more ...string) (change func(*fixture), env []string) {
	library := buildLibrary(t, "libnvidia-ml.so.1", nvml)
	env = append(more, "LD_LIBRARY_PATH="+filepath.Dir(library))
	return func(f *fixture) {
		f.write("vllm/third_party/pynvml.py", pynvml)
		f.write("vllm/asking.py", askingEngine)
		f.script("import sys\nfrom vllm.asking import main\nif __name__ == '__main__':\n    sys.exit(main())\n")
		f.options.Recipe.Modules = append([]string{"vllm.asking"}, f.options.Recipe.Modules...)
		f.options.Environ = append(f.environ(), env...)
	}, env
}
