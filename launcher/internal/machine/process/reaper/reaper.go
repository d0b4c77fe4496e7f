// Package reaper reaps children that have ended, one by one and by their id,
// so that the caller can leave some to their owners.
package reaper

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

// Reap reaps the ended children of this process, except those for which skip returns
// true. It calls tell with the last stat and the wait status of each child, and returns
// how many it has reaped.
func Reap(skip func(procfs.Stat) bool, tell func(procfs.Stat, syscall.WaitStatus)) (reaped int, err error) {
	pids, err := procfs.Children()
	if err != nil {
		return 0, fmt.Errorf("cannot list children: %w", err)
	}
	var errs []error
	for _, pid := range pids {
		stat, err := procfs.Read(pid)
		if err != nil || stat.Alive() || skip(stat) {
			continue
		}
		status, ok, err := Wait(pid)
		if ok {
			reaped++
			tell(stat, status)
		}
		errs = append(errs, err)
	}
	return reaped, errors.Join(errs...)
}

// Wait reaps a child if it has ended. ok is false if it has not ended, or if the process
// is no child.
func Wait(pid int) (status syscall.WaitStatus, ok bool, err error) {
	for {
		got, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.ECHILD):
			return 0, false, nil
		case err != nil:
			return 0, false, os.NewSyscallError("wait4", err)
		}
		return status, got == pid, nil
	}
}
