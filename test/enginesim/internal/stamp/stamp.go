// Package stamp writes the moment at which this process began to run Go code,
// and the one at which it began to take connections.
//
// It imports only syscall, so that its variable is initialised before nearly
// everything else in the program. Benches read the files.
package stamp

import (
	"strconv"
	"syscall"
	"unsafe"
)

// EnvFile names the file that the stamp is written to; unset means no stamp.
// EnvReady is the same for the stamp of Ready.
const (
	EnvFile  = "ENGINESIM_STAMP"
	EnvReady = "ENGINESIM_READY_STAMP"
)

// Written says whether this process wrote a stamp.
var Written = write(EnvFile)

// Ready writes the moment of the call, at which the port has just begun to
// take connections. It says whether it wrote.
func Ready() bool { return write(EnvReady) }

const (
	clockRealtime  = 0
	clockMonotonic = 1
)

// write puts one line into the file that the variable names:
// "<CLOCK_MONOTONIC ns> <CLOCK_REALTIME ns> <pid>\n".
func write(variable string) bool {
	mono, real := clock(clockMonotonic), clock(clockRealtime)
	path, ok := syscall.Getenv(variable)
	if !ok || path == "" {
		return false
	}
	fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_TRUNC|syscall.O_CLOEXEC, 0o644)
	if err != nil {
		return false
	}
	line := strconv.FormatInt(mono, 10) + " " + strconv.FormatInt(real, 10) + " " + strconv.Itoa(syscall.Getpid()) + "\n"
	_, err = syscall.Write(fd, []byte(line))
	return syscall.Close(fd) == nil && err == nil
}

func clock(id uintptr) int64 {
	var ts syscall.Timespec
	// The kernel fills the struct during the call.
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0
	}
	return ts.Nano()
}
