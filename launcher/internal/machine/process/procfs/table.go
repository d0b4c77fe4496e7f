package procfs

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Table is the processes of this machine.
type Table struct{}

// Read is [Read].
func (Table) Read(pid int) (Stat, error) { return Read(pid) }

// Session is the id of the process that leads the session of pid. It costs less
// than Read.
func (Table) Session(pid int) (int, error) { return unix.Getsid(pid) }

// Resident is [ReadResident].
func (Table) Resident(pid int) Resident { return ReadResident(pid) }

// Arguments is [Arguments].
func (Table) Arguments(pid int) []string { return Arguments(pid) }

// Environ is [Environ].
func (Table) Environ(pid int) ([]string, error) { return Environ(pid) }

// IsOwn reports whether a process belongs to this process's user, see [BelongsTo].
func (Table) IsOwn(pid int) (bool, error) { return BelongsTo(pid, os.Geteuid()) }

// Output is the path of the file that a process writes its standard output to.
func (Table) Output(pid int) (string, error) { return os.Readlink(fmt.Sprintf("/proc/%d/fd/1", pid)) }
