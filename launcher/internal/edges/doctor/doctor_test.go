package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/launcher/internal/edges/config"
	"hotseat.dev/hotseat/launcher/internal/machine/cgroup"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/harness"
	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestVerdicts(t *testing.T) {
	noDriver := errors.New("no libnvidia-ml.so.1")
	well := gpu.Health{OK: true}
	var noBytes groupLimit[uint64]
	var noCPUs groupLimit[float64]
	for name, c := range map[string]struct {
		got            Result
		want           Status
		says, remedies string
	}{
		"NVML with GPUs is well": {
			judgeDriver(gpuFacts{source: "auto", devices: make([]deviceFacts, 2)}, "550.54.15"), OK, "2 GPUs; driver 550.54.15", ""},
		"no driver is a warning where GPUs may be simulated": {
			judgeDriver(gpuFacts{source: "auto", err: noDriver}, ""), Warn, "will simulate them", "--gpus nvml"},
		"no driver is a failure where it is asked for": {
			judgeDriver(gpuFacts{source: "nvml", err: noDriver}, ""), Fail, "libnvidia-ml", "install the NVIDIA driver"},
		"simulated GPUs need no driver": {
			judgeDriver(gpuFacts{source: "simulated:2"}, ""), OK, "simulated:2", ""},
		"a GPU that is well shows its free memory": {
			judgeGPU(deviceFacts{Device: gpu.Device{Product: "H100", UUID: "GPU-1"}, health: well, memory: gpu.Memory{TotalBytes: 80 << 30, FreeBytes: 79 << 30}}),
			OK, "H100 GPU-1, 79.0 GiB of 80.0 GiB free", ""},
		"a lost GPU is a failure": {
			judgeGPU(deviceFacts{health: gpu.Health{Reason: "fallen off the bus"}}), Fail, "fallen off the bus", "do not use it in gpu_uuids"},
		"a GPU whose memory cannot be read is a failure": {
			judgeGPU(deviceFacts{health: well, err: noDriver}), Fail, "libnvidia-ml", "reset"},

		"shared memory of 8 GiB is enough":              {judgeSharedMemory("/dev/shm", 8<<30, 8<<30), OK, "8.0 GiB", ""},
		"the 64 MiB of a container are too little":      {judgeSharedMemory("/dev/shm", 64<<20, 64<<20), Warn, "64.0 MiB", "--shm-size"},
		"shared memory that is full is too little":      {judgeSharedMemory("/dev/shm", 8<<30, 1<<20), Warn, "1.0 MiB", "--shm-size"},
		"1048576 open files are enough":                 {judgeOpenFiles(1048576), OK, "1048576", ""},
		"no limit of open files is enough":              {judgeOpenFiles(math.MaxUint64), OK, "unlimited", ""},
		"fewer open files than vLLM asks for":           {judgeOpenFiles(16384), Warn, "16384", "LimitNOFILE"},
		"1024 open files are too few":                   {judgeOpenFiles(1024), Fail, "1024", "LimitNOFILE"},
		"no limit of locked memory is well":             {judgeMemoryLock(math.MaxUint64, true), OK, "no limit", ""},
		"a limit of locked memory matters with a GPU":   {judgeMemoryLock(8<<20, true), Warn, "limit", "LimitMEMLOCK"},
		"and does not without one":                      {judgeMemoryLock(8<<20, false), OK, "limit", ""},
		"a host with more memory than its GPUs is well": {judgeHostMemory(512<<30, noBytes, 160<<30), OK, "the GPUs have 160.0 GiB", ""},
		"a host with less is warned of":                 {judgeHostMemory(64<<30, noBytes, 160<<30), Warn, "64.0 GiB", "max-host-sleeper-bytes"},
		"a host without GPUs is not":                    {judgeHostMemory(1<<30, noBytes, 0), OK, "1.0 GiB", ""},

		"a host whose memory is limited to less than its GPUs have is warned of": {
			judgeHostMemory(512<<30, groupLimit[uint64]{64 << 30, "/c/memory.max"}, 160<<30), Warn, "64.0 GiB of 512.0 GiB for this process and its engines (limit in /c/memory.max)", "max-host-sleeper-bytes"},
		"a limit above the memory of the host limits nothing": {
			judgeHostMemory(64<<30, groupLimit[uint64]{1 << 62, "/c/memory.max"}, 0), OK, "64.0 GiB for this process", ""},
		"as many CPUs as vLLM asks for are well": {judgeCPUs(10, noCPUs, 8), OK, "10 for this process", ""},
		"fewer CPUs are warned of":               {judgeCPUs(9, noCPUs, 8), Warn, "9 for this process", "needs 10 CPUs"},
		"a limit to fewer CPUs is warned of": {
			judgeCPUs(64, groupLimit[float64]{2.5, "/c/cpu.max"}, 1), Warn, "2.5 of 64 for this process and its engines (limit in /c/cpu.max)", "CPUQuota="},
		"a limit without GPUs is told":                    {judgeCPUs(64, groupLimit[float64]{2.5, "/c/cpu.max"}, 0), OK, "2.5 of 64", ""},
		"a limit above the CPUs there are limits nothing": {judgeCPUs(4, groupLimit[float64]{8, "/c/cpu.max"}, 1), OK, "4 for this process", ""},

		"cgroup v2 is well":                 {judgeCgroups(cgroup.V2, nil), OK, "mode v2", ""},
		"v1 says why not v2":                {judgeCgroups(cgroup.V1, errors.New("read-only\nreally")), OK, "mode v1 (read-only; really)", ""},
		"the memory of fetches is limited":  {judgeFetches(64<<20, nil), OK, "each may take 64.0 MiB of main memory", ""},
		"fetches have no limit":             {judgeFetches(64<<20, cgroup.ErrNoLimit), Warn, "cannot limit their main memory: no memory controller", "--cgroups v1"},
		"no cgroups at all are warned of":   {judgeCgroups(cgroup.None, errors.New("read-only")), Warn, "read-only", "Delegate=yes"},
		"a state folder with room is well":  {judgeDisk("/s", false, 9<<30), OK, "/s is writable, 9.0 GiB free", ""},
		"one that is not there can be made": {judgeDisk("/s", true, 9<<30), OK, "/s can be created", ""},
		"one on a full disk is warned of":   {judgeDisk("/s", false, 1<<20), Warn, "1.0 MiB free", "--log-max-bytes"},
		"a vllm shows its version":          {judgeProgram("/v/vllm", "0.30.0", false), OK, "/v/vllm, version 0.30.0", ""},
		"the stand-in is warned of":         {judgeProgram("/v/enginesim", "0.30.0", true), Warn, "made up", "--vllm"},

		"a Python script can be forked, and its Python is named": {
			judgePreloading(preloading{method: "auto", python: []string{"/v/python", "-s"}, limit: 8 << 30, host: 24 << 30}), OK, "by /v/python -s (preload_memory_limit: 8.0 GiB)", ""},
		"several kinds of GPU have preloaders of their own": {
			judgePreloading(preloading{method: "auto", python: []string{"/v/python"}, limit: 8 << 30, kinds: []string{"H100", "L4"}}), OK, "each kind of GPU has a preloader of its own: H100, L4", ""},
		"what NVML leaves is told with what follows from it": {
			judgePreloading(preloading{method: "auto", python: []string{"/v/python"}, limit: 8 << 30, left: "cuda0001"}), OK, "helper processes ask NVML for the forked engines, since NVML leaves this in each process that asks it: cuda0001", ""},
		"start_method exec means no preloading, and that is well": {
			judgePreloading(preloading{method: "exec", err: noDriver, limit: 1}), OK, "start_method is exec", ""},
		"what cannot be forked is told with the reason": {
			judgePreloading(preloading{method: "auto", err: errors.New("no interpreter")}), Warn, "no interpreter", "--preload-python"},
		"and is a failure where forks are insisted on": {
			judgePreloading(preloading{method: "fork", err: errors.New("no interpreter")}), Fail, "start_method is fork", "--preload-python"},
		"what a launcher has tried in vain is told": {
			judgePreloading(preloading{method: "auto", tried: "it refuses to fork engines: 1 more thread(s)"}), Warn, "1 more thread(s)", "launcher preloaders"},
		"a limit below that of one preloader is warned of": {
			judgePreloading(preloading{method: "auto", limit: 512 << 20, host: 24 << 30}), Warn, "512.0 MiB", "raise"},
		"a limit above half of the memory is warned of": {
			judgePreloading(preloading{method: "auto", limit: 8 << 30, host: 15 << 30}), Warn, "15.0 GiB", "lower"},
		"no limit is above half of the memory": {
			judgePreloading(preloading{method: "auto", host: 15 << 30}), Warn, "preload_memory_limit: none", "lower"},
		"half of an unknown memory is not guessed": {
			judgePreloading(preloading{method: "auto", limit: 8 << 30}), OK, "8.0 GiB", ""},

		"engines on sockets are out of reach":                  {judgeSocket("auto", "/s/run", nil), OK, "no other user reaches, in /s/run", ""},
		"sockets that do not fit are elsewhere":                {judgeSocket("always", "/"+strings.Repeat("s", 60)+"/run", nil), OK, "its path is too long for the addresses of sockets", ""},
		"engines on ports are warned of, and why":              {judgeSocket("auto", "/s/run", errors.New("it has no --uds")), Warn, "/collective_rpc): it has no --uds", "--engine-socket always"},
		"engines on ports are warned of where they are wanted": {judgeSocket("never", "/s/run", nil), Warn, "engine_socket is never", "leave out --engine-socket"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, c.got.Status)
			require.Contains(t, c.got.Finding, c.says)
			require.Contains(t, c.got.Remedy, c.remedies)
			require.Equal(t, c.want == OK, c.got.Remedy == "", "there is a remedy if and only if something is wrong")
		})
	}
}

func TestTheWholeReportOnThisMachine(t *testing.T) {
	dir := t.TempDir()
	report := Run(t.Context(), Options{
		Config:  config.Config{Listen: freeAddress(t), StateDir: filepath.Join(dir, "not", "made"), GPUs: "simulated:2", Cgroups: "none"},
		Program: Program{Argv: []string{script(t, "echo warning >&2; echo 0.30.0")}},
	})
	names := map[string]Result{}
	for _, r := range report.Checks {
		require.NotEmpty(t, r.Finding, r.Name)
		names[r.Name] = r
	}
	for _, name := range []string{"driver", "cgroups", "shared memory", "open files", "locked memory", "main memory", "cpus", "state folder", "vllm", "python", "preloading", "engine socket", "address"} {
		require.Contains(t, names, name)
	}
	require.Contains(t, names["vllm"].Finding, "version 0.30.0")
	require.Equal(t, OK, names["address"].Status)
	require.NoDirExists(t, filepath.Join(dir, "not"), "nothing is made")
}

func TestAReportIsAsBadAsItsWorstCheck(t *testing.T) {
	require.Equal(t, OK, worse(OK, OK))
	require.Equal(t, Warn, worse(Warn, OK))
	require.Equal(t, Warn, worse(OK, Warn))
	require.Equal(t, Fail, worse(Fail, Warn))
	require.Equal(t, Fail, worse(OK, Fail))
}

func TestTheDriversVersionIsReadFromTheKernel(t *testing.T) {
	proc := t.TempDir()
	require.Equal(t, "of unknown version", driverVersion(proc))
	write(t, filepath.Join(proc, "driver/nvidia/version"), "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version:  12.2.0\n")
	require.Equal(t, "550.54.15", driverVersion(proc))
}

func TestHostMemoryIsBoundByTheContainersLimit(t *testing.T) {
	root, proc := t.TempDir(), t.TempDir()
	write(t, filepath.Join(proc, "meminfo"), "MemTotal:       16777216 kB\nMemFree: 1 kB\n")
	look := func() string {
		e := &examination{Options: Options{proc: proc, cgroupRoot: root}}
		return checkHostMemory(t.Context(), e)[0].Finding
	}
	require.Contains(t, look(), "16.0 GiB")
	write(t, filepath.Join(proc, "self/cgroup"), "4:memory:/pod/a\n2:cpu,cpuacct:/pod\n0::/pod/b\n")
	require.Contains(t, look(), "16.0 GiB", "no file, no limit")
	write(t, filepath.Join(root, "memory/pod/a/memory.limit_in_bytes"), fmt.Sprintln(8<<30))
	require.Contains(t, look(), "8.0 GiB", "the group of cgroup v1")
	write(t, filepath.Join(root, "pod/b/memory.max"), "max\n")
	write(t, filepath.Join(root, "pod/memory.max"), fmt.Sprintln(4<<30))
	require.Contains(t, look(), "4.0 GiB of 16.0 GiB", "the group above that of cgroup v2")
	require.Contains(t, look(), filepath.Join(root, "pod/memory.max"), "the file that says so")
}

func TestCPUsAreBoundByTheContainersLimit(t *testing.T) {
	root, proc := t.TempDir(), t.TempDir()
	look := func() string {
		e := &examination{Options: Options{proc: proc, cgroupRoot: root, cpus: 16}}
		return checkCPUs(t.Context(), e)[0].Finding
	}
	require.Contains(t, look(), "16 for this process", "nothing tells of groups")
	write(t, filepath.Join(proc, "self/cgroup"), "4:memory:/pod/a\n2:cpuacct,cpu:/pod/c\n0::/pod/b\n")
	require.Contains(t, look(), "16 for this process", "no file, no limit")
	write(t, filepath.Join(root, "cpu/pod/c/cpu.cfs_period_us"), "100000\n")
	write(t, filepath.Join(root, "cpu/pod/c/cpu.cfs_quota_us"), "-1\n")
	require.Contains(t, look(), "16 for this process", "no limit of cgroup v1")
	write(t, filepath.Join(root, "cpu/pod/c/cpu.cfs_quota_us"), "800000\n")
	require.Contains(t, look(), "8.0 of 16", "the group of cgroup v1")
	write(t, filepath.Join(root, "pod/b/cpu.max"), "max 100000\n")
	require.Contains(t, look(), "8.0 of 16", "no limit of cgroup v2")
	write(t, filepath.Join(root, "cpu.max"), "75000 50000\n")
	require.Contains(t, look(), "1.5 of 16", "the root that a container sees")
	require.Contains(t, look(), filepath.Join(root, "cpu.max"), "the file that says so")
}

func TestTheStateFolder(t *testing.T) {
	look := func(dir string) Result {
		return checkStateFolder(t.Context(), &examination{Options: Options{Config: config.Config{StateDir: dir}}})[0]
	}
	t.Run("that exists is tried, and left as it was", func(t *testing.T) {
		dir := t.TempDir()
		require.Contains(t, look(dir).Finding, "is writable")
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left)
	})
	t.Run("that is a file is a failure", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		write(t, file, "")
		require.Equal(t, Fail, look(file).Status)
		require.Contains(t, look(file).Remedy, "--state-dir")
		require.Equal(t, Fail, look(filepath.Join(file, "below")).Status)
	})
	t.Run("that serve refuses is a failure", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.Chmod(dir, 0o777))
		require.Equal(t, Fail, look(dir).Status)
		require.Contains(t, look(dir).Finding, "others may write to it")
	})
	t.Run("that has files of others is a failure", func(t *testing.T) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "main.py"), "")
		require.Equal(t, Fail, look(dir).Status)
		require.Contains(t, look(dir).Finding, "it has files that no launcher has written (main.py)")
	})
	t.Run("that cannot be written is a failure", func(t *testing.T) {
		require.Equal(t, Fail, look("/proc/self").Status, "a file system that nobody can write to")
	})
}

func TestTheEnginesVersion(t *testing.T) {
	look := func(program Program, limit time.Duration) Result {
		e := &examination{Options: Options{Program: program, VersionTimeout: limit}}
		return checkProgram(t.Context(), e)[0]
	}
	t.Run("a program that fails says how", func(t *testing.T) {
		r := look(Program{Argv: []string{script(t, "echo no module named vllm; exit 3")}}, time.Minute)
		require.Equal(t, Fail, r.Status)
		require.Contains(t, r.Finding, "exit status 3: no module named vllm")
	})
	t.Run("a program that hangs is ended with its children", func(t *testing.T) {
		pid := filepath.Join(t.TempDir(), "pid")
		r := look(Program{Argv: []string{script(t, "sleep 1000 & echo $! > "+pid+"; wait")}}, 300*time.Millisecond)
		require.Equal(t, Fail, r.Status)
		require.Contains(t, r.Finding, "did not end in time")
		content, err := os.ReadFile(pid)
		if errors.Is(err, os.ErrNotExist) {
			return // it was ended before it had a child
		}
		require.NoError(t, err)
		stat := filepath.Join("/proc", strings.TrimSpace(string(content)), "stat")
		require.Eventually(t, func() bool {
			line, err := os.ReadFile(stat)
			return err != nil || strings.Contains(string(line), ") Z ")
		}, patience.Wait(), 5*time.Millisecond)
	})
	t.Run("a program that is not there is the error of looking for it", func(t *testing.T) {
		r := look(Program{Err: errors.New("cannot find an engine")}, time.Minute)
		require.Equal(t, Fail, r.Status)
		require.Contains(t, r.Finding, "cannot find an engine")
	})
	t.Run("its own arguments come before --version", func(t *testing.T) {
		r := look(Program{Argv: []string{script(t, "echo $*"), "-m", "vllm"}}, time.Minute)
		require.Contains(t, r.Finding, "version -m vllm --version")
	})
}

func TestThePythonOfVLLM(t *testing.T) {
	dir := t.TempDir()
	python := filepath.Join(dir, "python3.11")
	write(t, python, "#!/bin/sh\necho Python 3.11.9\n")
	require.NoError(t, os.Chmod(python, 0o700))
	look := func(firstLine string) []Result {
		vllm := filepath.Join(dir, "vllm")
		write(t, vllm, firstLine+"\n")
		return checkPython(t.Context(), &examination{Options: Options{Program: Program{Argv: []string{vllm}}, VersionTimeout: time.Minute}})
	}
	require.Equal(t, []Result{{Name: "python", Status: OK, Finding: python + ", Python 3.11.9"}}, look("#!"+python))
	require.Contains(t, look("#!/bin/sh")[0].Finding, "does not name its Python")
	require.Contains(t, look("\x7fELF")[0].Finding, "does not name its Python")
	gone := look("#!" + dir + "/gone/python3")[0]
	require.Equal(t, Fail, gone.Status)
	require.Contains(t, gone.Remedy, "moved or is broken")
	t.Setenv("PATH", dir)
	require.Contains(t, look("#!/usr/bin/env python3.11")[0].Finding, "Python 3.11.9")
	require.Contains(t, look("#!/usr/bin/env -S python3.11 -u")[0].Finding, "Python 3.11.9")
	require.Empty(t, checkPython(t.Context(), &examination{Options: Options{Program: Program{StandIn: true}}}), "the stand-in has none")
}

func TestWhetherEnginesCanBeForked(t *testing.T) {
	dir := t.TempDir()
	python, vllm := filepath.Join(dir, "python3"), filepath.Join(dir, "vllm")
	write(t, python, "#!/bin/sh\n")
	require.NoError(t, os.Chmod(python, 0o700))
	write(t, vllm, "#!"+python+"\n")
	look := func(o Options) Result {
		o.StartMethod = cmp.Or(o.StartMethod, "auto")
		e := &examination{Options: o}
		e.fill()
		e.PreloadMemoryLimit = 1 << 30
		return checkPreloading(t.Context(), e)[0]
	}
	require.Contains(t, look(Options{Program: Program{Argv: []string{vllm}}}).Finding, "run by "+python)
	require.Contains(t, look(Options{Program: Program{Argv: []string{"/bin/sh"}}, Config: config.Config{PreloadPython: python}}).Finding, "run by "+python)
	for script, finding := range map[string]string{
		"echo cuda0001": "NVML leaves this in each process that asks it: cuda0001",
		"case \"$*\" in *nvml*) echo broken >&2; exit 3; esac": "cannot ask NVML by " + filepath.Join(dir, "python3.8") + ": exit status 3: broken",
	} {
		asks := filepath.Join(dir, "python3.8")
		write(t, asks, "#!/bin/sh\n"+script+"\n")
		require.NoError(t, os.Chmod(asks, 0o700))
		require.Contains(t, look(Options{Program: Program{Argv: []string{vllm}}, Config: config.Config{PreloadPython: asks}}).Finding, finding)
	}
	without := filepath.Join(dir, "python3.9")
	write(t, without, "#!/bin/sh\necho False\n")
	require.NoError(t, os.Chmod(without, 0o700))
	for reason, o := range map[string]Options{
		without + " has no module vllm":                         {Program: Program{Argv: []string{vllm}}, Config: config.Config{PreloadPython: without}},
		"/bin/sh is not a Python script":                        {Program: Program{Argv: []string{"/bin/sh"}}},
		`it has the arguments ["-m" "vllm"]`:                    {Program: Program{Argv: []string{python, "-m", "vllm"}}},
		"cannot find the interpreter":                           {Program: Program{Argv: []string{vllm}}, Config: config.Config{PreloadPython: dir + "/gone"}},
		"start_method is fork, but the launcher cannot fork en": {Program: Program{Argv: []string{"/bin/sh"}}, Config: config.Config{StartMethod: "fork"}},
	} {
		require.Contains(t, look(o).Finding, reason)
	}
	require.Empty(t, checkPreloading(t.Context(), &examination{Options: Options{Program: Program{StandIn: true}}}), "the stand-in has none")

	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "/v2/vllm/preloaders", r.URL.Path)
		fmt.Fprint(w, `{"preloaders":[{"state":"waiting","variables":["A"],"reason":"uncommon"},{"state":"waiting","reason":"it refuses to fork engines: a thread"}]}`)
	}))
	defer s.Close()
	r := look(Options{Program: Program{Argv: []string{vllm}}, Config: config.Config{Listen: s.Listener.Addr().String()}})
	require.Equal(t, Warn, r.Status)
	require.Contains(t, r.Finding, "refuses to fork engines: a thread", "of the launcher that runs")
}

func TestTheAddress(t *testing.T) {
	look := func(address string) Result {
		return checkAddress(t.Context(), &examination{Options: Options{Config: config.Config{Listen: address}}})[0]
	}
	serve := func(t *testing.T, h http.HandlerFunc) string {
		t.Helper()
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	t.Run("that is free is well", func(t *testing.T) {
		address := freeAddress(t)
		require.Equal(t, address+" is free", look(address).Finding)
	})
	t.Run("of a launcher shows its version", func(t *testing.T) {
		r := look(serve(t, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"name":%q,"server":"hotseat 1.2"}`, launcherapi.ServiceName)
		}))
		require.Equal(t, OK, r.Status)
		require.Contains(t, r.Finding, "hotseat 1.2")
	})
	t.Run("of a launcher that wants a token is told by its health", func(t *testing.T) {
		r := look(serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/health" {
				w.WriteHeader(http.StatusUnauthorized)
			}
			fmt.Fprint(w, `{"status":"OK"}`)
		}))
		require.Equal(t, OK, r.Status)
		require.Contains(t, r.Finding, "needs a token")
	})
	t.Run("of something else is a failure", func(t *testing.T) {
		r := look(serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
		require.Equal(t, Fail, r.Status)
		require.Contains(t, r.Remedy, "--listen")
	})
	t.Run("that is not of this machine is a failure", func(t *testing.T) {
		require.Equal(t, Fail, look("192.0.2.1:1").Status)
	})
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := harness.FreeAddress()
	require.NoError(t, err)
	return address
}

func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	write(t, path, "#!/bin/sh\n"+body+"\n")
	require.NoError(t, os.Chmod(path, 0o700))
	return path
}

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

func TestModelStoreOfOthersIsSeen(t *testing.T) {
	look := func(dir string) []Result {
		return checkModelStore(t.Context(), &examination{Options: Options{Config: config.Config{ModelStore: dir}}})
	}
	require.Empty(t, look(""))
	dir := t.TempDir()
	require.Equal(t, []Result{{Name: "model store", Status: OK, Finding: dir}}, look(dir))
	require.Equal(t, OK, look(filepath.Join(dir, "missing"))[0].Status)
	require.NoError(t, os.Chmod(dir, 0o777))
	require.Equal(t, Warn, look(dir)[0].Status)
	require.Contains(t, look(dir)[0].Finding, "run: chmod o-w "+dir)
	require.NoError(t, os.Symlink("/tmp", filepath.Join(dir, "staging")))
	require.Equal(t, Fail, look(dir)[0].Status)
	require.Contains(t, look(dir)[0].Finding, "staging in it is a link")
}
