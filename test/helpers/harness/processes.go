package harness

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
)

// Process is a live process.
type Process struct {
	PID, Parent, Session int
	Args                 []string // as the process shows them, which may have given itself a title
}

// CommandLine is the arguments with blanks between them.
func (p Process) CommandLine() string { return strings.TrimSpace(strings.Join(p.Args, " ")) }

// Has says whether the process was started with a variable of that value.
func (p Process) Has(variable, value string) bool {
	return p.hasVariable(func(v string) bool { return v == variable+"="+value })
}

// HasBelow says whether the process was started with a variable whose value
// begins so.
func (p Process) HasBelow(variable, begin string) bool {
	return p.hasVariable(func(v string) bool { return strings.HasPrefix(v, variable+"="+begin) })
}

func (p Process) hasVariable(is func(string) bool) bool {
	proc, err := procfs.NewProc(p.PID)
	if err != nil {
		return false
	}
	env, err := proc.Environ()
	return err == nil && slices.ContainsFunc(env, is)
}

// Processes lists the live processes of this machine that match, this one left
// out. One that ends meanwhile may or may not be listed.
func Processes(match func(Process) bool) []Process {
	all, err := procfs.AllProcs()
	if err != nil {
		panic(fmt.Sprintf("cannot list the processes of this machine: %v", err))
	}
	var found []Process
	for _, proc := range all {
		stat, err := proc.Stat()
		if err != nil || stat.State == "Z" || stat.State == "X" || proc.PID == os.Getpid() {
			continue
		}
		args, _ := proc.CmdLine() // a process that has ended meanwhile has none
		if p := (Process{PID: proc.PID, Parent: stat.PPID, Session: stat.Session, Args: args}); match(p) {
			found = append(found, p)
		}
	}
	return found
}

// PIDs are those of the processes.
func PIDs(all []Process) []int {
	pids := make([]int, len(all))
	for n, p := range all {
		pids[n] = p.PID
	}
	return pids
}

// ArgsOf are the arguments of a process; none when it has ended.
func ArgsOf(pid int) []string {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return nil
	}
	args, _ := proc.CmdLine() // as before
	return args
}

// Descriptors are what a process has open.
func Descriptors(pid int) ([]string, error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return nil, fmt.Errorf("cannot look at process %d: %w", pid, err)
	}
	targets, err := proc.FileDescriptorTargets()
	if err != nil {
		return nil, fmt.Errorf("cannot list what process %d has open: %w", pid, err)
	}
	return targets, nil
}
