// Package procfs quickly reads what the watch of process trees needs from /proc: a stop
// reads all of /proc in its last milliseconds.
package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Stat is one line of /proc/PID/stat, see proc_pid_stat(5).
type Stat struct {
	PID       int
	State     byte   // field 3, 'Z' for a zombie
	PPID      int    // field 4
	Session   int    // field 6
	Threads   int    // field 20
	StartTime uint64 // field 22, in clock ticks since boot
	// Exec: the process is in the middle of execve(2), so that it shows no environment:
	// it is no thread of the kernel, and has no end of its environment (field 51). Other
	// users' processes, and all of gVisor's, never show that end.
	Exec bool
	// Hangs: the kernel shows neither the start time nor the environment of the process, as
	// it hangs in a driver or on a disk.
	Hangs bool
}

// kernelThread is the flag PF_KTHREAD of field 9, see the kernel's include/linux/sched.h.
const kernelThread = 0x00200000

// Alive is false for a process that only waits to be reaped. A process whose first
// thread has ended while others run is alive.
func (s Stat) Alive() bool {
	return (s.State != 'Z' && s.State != 'X') || s.Threads > 1
}

// Read reads the stat of one process; os.ErrNotExist when there is none, [ErrHangs] when the
// kernel does not answer.
func Read(pid int) (Stat, error) {
	r := readStats([]int{pid})[0]
	return r.stat, r.err
}

// All reads the stat of every process that can be seen, in no order. It lists the
// processes first and then reads each; vanished says that one ended in between, or
// may not be read. On any other error, such as too many open files, there is no
// list.
func All() (all []Stat, vanished bool, err error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, false, err
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, false, err
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	for _, r := range readStats(pids) {
		if errors.Is(r.err, ErrHangs) {
			r.stat, r.err = hung(pids[r.n])
		}
		if errors.Is(r.err, os.ErrNotExist) || errors.Is(r.err, os.ErrPermission) {
			vanished = true
			continue
		}
		if r.err != nil {
			return nil, false, r.err
		}
		all = append(all, r.stat)
	}
	return all, vanished, nil
}

func read(pid int, buf []byte) (Stat, error) {
	n, err := readInto(statFile(pid), buf)
	if err != nil {
		return Stat{}, err
	}
	return parse(buf[:n])
}

// readInto reads a whole stat file with one call. If the process ends meanwhile, each
// call may fail with ESRCH. The open fails so if the process ends between the lookup of
// its folder and the permission check (proc_pid_permission in the kernel's
// fs/proc/base.c).
func readInto(path string, buf []byte) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, &os.PathError{Op: "open", Path: path, Err: gone(err)}
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, &os.PathError{Op: "read", Path: path, Err: gone(err)}
		}
		return n, nil
	}
}

// gone turns the errors for a process that has ended into os.ErrNotExist.
func gone(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return os.ErrNotExist
	}
	return err
}

// parse reads a line in which the name, in parentheses, may itself hold spaces and
// parentheses.
func parse(line []byte) (Stat, error) {
	open, end := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return Stat{}, fmt.Errorf("cannot read stat line %q", line)
	}
	fields := strings.Fields(string(line[end+1:])) // fields[0] is field 3
	if len(fields) < 20 {
		return Stat{}, fmt.Errorf("cannot read stat line %q", line)
	}
	s, flags := Stat{State: fields[0][0]}, 0
	var err error
	for _, number := range []struct {
		text string
		into *int
	}{
		{strings.TrimSpace(string(line[:open])), &s.PID},
		{fields[4-3], &s.PPID},
		{fields[6-3], &s.Session},
		{fields[20-3], &s.Threads},
		{fields[9-3], &flags},
	} {
		if *number.into, err = strconv.Atoi(number.text); err != nil {
			return Stat{}, fmt.Errorf("cannot read stat line %q: %w", line, err)
		}
	}
	if s.StartTime, err = strconv.ParseUint(fields[22-3], 10, 64); err != nil {
		return Stat{}, fmt.Errorf("cannot read stat line %q: %w", line, err)
	}
	s.Exec = flags&kernelThread == 0 && len(fields) > 51-3 && fields[51-3] == "0"
	return s, nil
}

// Arguments are the arguments that a process shows; empty when it has ended or may
// not be read, or hangs.
func Arguments(pid int) []string {
	text, err := readMemory(pid, "cmdline")
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
}

// Environ is the environment a process was started with, KEY=VALUE; empty
// when it has ended or may not be read. The error is [ErrHangs] for a process that hangs.
func Environ(pid int) ([]string, error) {
	text, err := readMemory(pid, "environ")
	switch {
	case errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) || errors.Is(err, unix.ESRCH):
		return nil, nil
	case err != nil:
		return nil, err
	case len(text) == 0:
		return nil, nil
	}
	return strings.Split(string(text), "\x00"), nil
}

// Maps is the text of /proc/PID/maps, the files that a process has mapped; empty when it has
// ended or may not be read, or hangs.
func Maps(pid int) []byte {
	text, err := readMemory(pid, "maps")
	if err != nil {
		return nil
	}
	return text
}

// BelongsTo reports whether a process acts for a user alone: as its real, effective and
// saved user, see credentials(7). os.ErrNotExist: there is no such process.
func BelongsTo(pid, user int) (bool, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false, gone(err)
	}
	_, line, _ := bytes.Cut(text, []byte("\nUid:"))
	var found, effective, saved int
	if _, err := fmt.Sscan(string(line), &found, &effective, &saved); err != nil {
		return false, fmt.Errorf("cannot read the user of process %d: %w", pid, err)
	}
	return found == user && effective == user && saved == user, nil
}

// Sleeps reports whether a thread of a process is in uninterruptible sleep: it waits for a
// driver or a disk, and no signal ends it before that answers.
func Sleeps(pid int) bool {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return err == nil && slices.ContainsFunc(threads, func(thread os.DirEntry) bool {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			return false
		}
		stat, err := hung(id)
		return err == nil && stat.State == 'D'
	})
}

// Children are the processes, zombies too, whose parent is this process. One
// may be missing when another is reaped at the same moment.
func Children() ([]int, error) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, thread := range threads {
		text, err := os.ReadFile("/proc/self/task/" + thread.Name() + "/children")
		if err != nil {
			continue // the thread has ended; its children are another thread's now
		}
		for _, field := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("cannot read the children of thread %s: %w", thread.Name(), err)
			}
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// BootID is the id of the machine's present boot.
func BootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("cannot read the boot id: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
