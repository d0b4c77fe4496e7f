package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/containerd/cgroups/v3"
	"golang.org/x/sys/unix"
)

// v2 keeps groups in a cgroup v2 hierarchy.
type v2 struct {
	hierarchy
	folder string
}

func (d *v2) base() string { return d.folder }

// create enables no controller.
func (d *v2) create(group string) (fresh bool, err error) {
	err = os.Mkdir(d.dir(group), 0o755)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrExist) {
		return false, os.MkdirAll(d.dir(group), 0o755)
	}
	return err == nil, err
}

func (d *v2) list(group string) ([]string, error) { return folders(d.dir(group)) }

func (d *v2) procs(group string) ([]int, error) {
	pids, err := members(d.dir(group))
	if gone(err) {
		return nil, nil
	}
	return pids, err
}

// members are the processes in a folder of cgroup v1 or v2 and in those below it.
// It opens no other file than cgroup.procs: the kernel builds each file of a new
// group at the first look, which takes time.
func members(dir string) ([]int, error) {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, field := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("cannot read the processes of %s: %w", dir, err)
		}
		pids = append(pids, pid)
	}
	below, err := folders(dir)
	if err != nil {
		return nil, err
	}
	for _, folder := range below {
		more, err := members(filepath.Join(dir, folder))
		if err != nil && !gone(err) {
			return nil, err
		}
		pids = append(pids, more...)
	}
	return pids, nil
}

func (d *v2) kill(group string) error {
	dir := d.dir(group)
	if !exists(dir) {
		return nil
	}
	if err := write(filepath.Join(dir, "cgroup.kill"), "1"); err != nil {
		return d.killFrozen(group) // it also handles a group that is gone by now
	}
	return nil
}

// killFrozen is for Linux before 5.14, which has no cgroup.kill. A frozen
// group of cgroup v2 dies frozen.
func (d *v2) killFrozen(group string) error {
	return killFrozen(filepath.Join(d.dir(group), "cgroup.freeze"), "1", "0", func() error { return killEach(d, group) })
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (d *v2) fork(group string, start func(*syscall.SysProcAttr) error) error {
	dir, err := os.OpenFile(d.dir(group), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	return start(&syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())})
}

func (d *v2) dirs(group string) []string { return []string{d.dir(group)} }

func (d *v2) remove(ctx context.Context, group string) error {
	return removeWhenEmpty(ctx, d.dir(group), waitUnpopulated)
}

func (d *v2) oomKills(group string) (uint64, bool) {
	return readKey(filepath.Join(d.dir(group), "memory.events"), "oom_kill")
}

func (d *v2) groupOf(pid int) (string, error) {
	_, group, err := cgroups.ParseCgroupFileUnified(fmt.Sprintf("/proc/%d/cgroup", pid))
	switch {
	case err != nil:
		return "", err
	case group == "":
		return "", fmt.Errorf("process %d is in no group of cgroup v2", pid)
	}
	return d.fromMount(group), nil
}

// gone reports whether an error means that the group was removed meanwhile.
func gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

// killFrozen calls kill while the group is frozen. It does not wait for processes
// that do not freeze, in a driver for example; their children are for the next
// call.
func killFrozen(file, freeze, thaw string, kill func() error) error {
	_ = os.WriteFile(file, []byte(freeze), 0)
	err := kill()
	if thawErr := os.WriteFile(file, []byte(thaw), 0); thawErr != nil && !gone(thawErr) {
		err = errors.Join(err, thawErr)
	}
	return err
}

// killEach sends SIGKILL to the processes of a group one by one, never to a process
// outside of the group that has the id of a former member.
func killEach(d driver, group string) error {
	pids, err := d.procs(group)
	for _, pid := range pids {
		err = errors.Join(err, killMember(d, group, pid))
	}
	return err
}

func killMember(d driver, group string, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil // it has ended
	}
	defer unix.Close(fd)
	if where, err := d.groupOf(pid); err != nil || !within(where, group) {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return &os.SyscallError{Syscall: "pidfd_send_signal " + strconv.Itoa(pid), Err: err}
	}
	return nil
}
