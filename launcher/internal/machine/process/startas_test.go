package process_test

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cloneArgs is struct clone_args, see clone(2).
type cloneArgs struct {
	flags, pidFD, childTID, parentTID, exitSignal, stack, stackSize, tls uint64

	setTID     *int32
	setTIDSize uint64
}

// startAs starts a child that has a certain process id and leads a session; unix.EEXIST
// when a process or a thread has that id. The kernel gives the id to this child or to
// nobody. To write ns_last_pid before an ordinary fork does not do: a thread that any
// process of the test starts in between takes the id, and keeps it.
func startAs(pid int) error {
	path, err := syscall.BytePtrFromString("/bin/sleep")
	if err != nil {
		return err
	}
	argv, err := syscall.SlicePtrFromStrings([]string{"sleep", "300"})
	if err != nil {
		return err
	}
	id := int32(pid)
	// By CLONE_VFORK the call ends when the child runs its program.
	args := cloneArgs{flags: unix.CLONE_VFORK, exitSignal: uint64(unix.SIGCHLD), setTID: &id, setTIDSize: 1}
	if errno := cloneAndExec(&args, path, &argv[0], new(*byte)); errno != 0 {
		return errno
	}
	return nil
}

// cloneAndExec makes system calls only after the clone, as the child has none of the
// threads that the runtime needs.
//
//go:norace
//go:nosplit
func cloneAndExec(args *cloneArgs, path *byte, argv, env **byte) syscall.Errno {
	pid, _, errno := syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(args)), unsafe.Sizeof(*args), 0)
	if errno != 0 || pid != 0 {
		return errno
	}
	_, _, errno = syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0)
	if errno == 0 {
		_, _, errno = syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(path)), uintptr(unsafe.Pointer(argv)), uintptr(unsafe.Pointer(env)))
	}
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(errno), 0, 0)
	}
}
