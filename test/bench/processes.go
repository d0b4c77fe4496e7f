package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/test/figures"
)

// marked lists the living processes that carry KEY=VALUE, or a variable that
// begins so, in the environment they were started with.
func marked(variable string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && bytes.Contains(append([]byte{0}, env...), []byte("\x00"+variable)) && !isZombie(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// session lists the living processes of a session.
func session(sid int) (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		// After the name: state, parent, group, session (proc_pid_stat(5)).
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if fields[3] == strconv.Itoa(sid) && fields[0] != "Z" && fields[0] != "X" {
			pids = append(pids, pid)
		}
	}
	return pids
}

func isZombie(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := bytes.Cut(data, []byte(") ")) // the name may hold a parenthesis, but ours do not
	return bytes.HasPrefix(rest, []byte("Z")) || bytes.HasPrefix(rest, []byte("X"))
}

// sweep kills whatever the run has left. It is an error when there was
// anything: each part ends its own processes.
func sweep(dir string) error {
	var left []string
	for _, pid := range marked("HOTSEAT_SIMGPU_DIR=" + dir + "/") {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		left = append(left, strconv.Itoa(pid)+" "+strings.ReplaceAll(string(cmdline), "\x00", " "))
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
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

// descriptors counts the open ones of a process.
func descriptors(pid int) (int, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return 0, fmt.Errorf("cannot count the descriptors of process %d: %w", pid, err)
	}
	return len(entries), nil
}
