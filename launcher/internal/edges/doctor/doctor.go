// Package doctor looks at a machine with the eyes of somebody who is about to
// run the launcher on it: each check says what it found, whether that is well,
// and what to do about it when it is not. Nothing is changed.
package doctor

import (
	"cmp"
	"context"
	"runtime"
	"time"

	"hotseat.dev/hotseat/launcher/internal/edges/config"
)

// Status is the verdict of one check.
type Status string

// The verdicts.
const (
	OK   Status = "ok"
	Warn Status = "warn" // it works, and something will be missed or go slower
	Fail Status = "fail" // the launcher, or an engine, will not work so
)

// Result is what one check found.
type Result struct {
	Name    string `json:"name"`
	Status  Status `json:"status"`
	Finding string `json:"finding"`
	Remedy  string `json:"remedy,omitempty"` // what to do; empty when all is well
}

// Report is every result, and the worst of their verdicts.
type Report struct {
	Status Status   `json:"status"`
	Checks []Result `json:"checks"`
}

// Options say what would be run, and where to look.
type Options struct {
	config.Config // what serve would run with
	Program       Program

	VersionTimeout time.Duration // for `vllm --version`, which imports much of vLLM; 0: a minute

	shm, proc, cgroupRoot string // for tests; empty: /dev/shm, /proc, /sys/fs/cgroup
	cpus                  int    // for tests; 0: those that this process may run on
}

// Program is the engine's program as serve would find it.
type Program struct {
	Argv    []string // before the engine's own arguments; argv[0] is a path
	StandIn bool     // it is the stand-in, for want of a vllm
	Err     error    // why there is none
}

// examination is one look at the machine. What several checks ask for is found
// once.
type examination struct {
	Options
	gpus gpuFacts
}

// checks are all of them, in the order of the report.
var checks = []func(context.Context, *examination) []Result{
	checkDriver,
	checkGPUs,
	checkCgroups,
	checkSharedMemory,
	checkOpenFiles,
	checkMemoryLock,
	checkHostMemory,
	checkCPUs,
	checkStateFolder,
	checkModelStore,
	checkModels,
	checkProgram,
	checkPython,
	checkPreloading,
	checkSocket,
	checkAddress,
}

// Run makes every check. Checks that wait for something end with ctx.
func Run(ctx context.Context, opts Options) Report {
	e := &examination{Options: opts}
	e.fill()
	e.gpus = findGPUs(opts.GPUs, opts.VisibleGPUs)
	report := Report{Status: OK, Checks: []Result{}}
	for _, check := range checks {
		for _, r := range check(ctx, e) {
			report.Checks = append(report.Checks, r)
			report.Status = worse(report.Status, r.Status)
		}
	}
	return report
}

func (e *examination) fill() {
	e.VersionTimeout = cmp.Or(e.VersionTimeout, time.Minute)
	e.shm = cmp.Or(e.shm, "/dev/shm")
	e.proc = cmp.Or(e.proc, "/proc")
	e.cgroupRoot = cmp.Or(e.cgroupRoot, "/sys/fs/cgroup")
	e.cpus = cmp.Or(e.cpus, runtime.NumCPU())
}

func worse(a, b Status) Status {
	if a == Fail || b == Fail {
		return Fail
	}
	if a == Warn || b == Warn {
		return Warn
	}
	return OK
}

func one(r Result) []Result { return []Result{r} }
