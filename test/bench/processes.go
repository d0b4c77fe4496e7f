package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/spec/simgpu"
	"hotseat.dev/hotseat/test/helpers/figures"
	"hotseat.dev/hotseat/test/helpers/harness"
)

// marked lists the living processes that were started with a variable of that
// value.
func marked(variable, value string) []int {
	return harness.PIDs(harness.Processes(func(p harness.Process) bool { return p.Has(variable, value) }))
}

// session lists the living processes of a session.
func session(sid int) []int {
	return harness.PIDs(harness.Processes(func(p harness.Process) bool { return p.Session == sid }))
}

// sweep kills whatever the run has left. It is an error when there was
// anything: each part ends its own processes.
func sweep(dir string) error {
	var left []string
	for _, p := range harness.Processes(func(p harness.Process) bool { return p.HasBelow(simgpu.EnvDir, dir+"/") }) {
		left = append(left, fmt.Sprintf("%d %s", p.PID, p.CommandLine()))
		_ = syscall.Kill(p.PID, syscall.SIGKILL) // it may have ended meanwhile
	}
	if left != nil {
		return fmt.Errorf("these processes were left over, and are killed now: %q", left)
	}
	return nil
}

// tree holds processes by descriptor, so that their end is seen at once and
// their numbers cannot come to mean others.
type tree []int

func hold(pids []int) (tree, error) {
	var t tree
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			t.release()
			return nil, fmt.Errorf("cannot open process %d: %w", pid, err)
		}
		t = append(t, fd)
	}
	return t, nil
}

func (t tree) release() {
	for _, fd := range t {
		_ = unix.Close(fd) // nothing was written to it
	}
}

// kill sends SIGKILL to each.
func (t tree) kill() {
	for _, fd := range t {
		_ = unix.PidfdSendSignal(fd, syscall.SIGKILL, nil, 0) // it may have ended
	}
}

// gone returns when the last of them has ended.
func (t tree) gone(ctx context.Context) (moment, error) {
	for _, fd := range t {
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1000)
			if err != nil && !errors.Is(err, unix.EINTR) {
				return 0, fmt.Errorf("cannot wait for the end of a process: %w", err)
			}
			if n == 1 {
				break
			}
			if ctx.Err() != nil {
				return 0, ctx.Err()
			}
		}
	}
	return now(), nil
}

// status reads a size of /proc/PID/status, such as VmRSS, in bytes: the kernel
// writes "kB" and means 1024 of them (proc_pid_status(5)).
func status(pid int, name string) (int, error) {
	value := figures.Field(fmt.Sprintf("/proc/%d/status", pid), name)
	number, _, _ := strings.Cut(value, " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		return 0, fmt.Errorf("cannot read %s of process %d: %w", name, pid, err)
	}
	return n << 10, nil
}
