package modelstore

import (
	"fmt"
	"io"
	"os"
	"regexp"
)

// ownerNote is what the owner writes into the lock file, for messages to people: its process
// id and the name of its machine, or of its Pod.
var ownerNote = regexp.MustCompile(`^([0-9]{1,10}) ([A-Za-z0-9][A-Za-z0-9.-]*)\n$`)

// noteOwner writes into the lock file who owns the store. Where that fails, as on a full
// disk, no note is better than that of an earlier owner.
func noteOwner(lock *os.File) {
	host, err := os.Hostname()
	if lock.Truncate(0) != nil || err != nil {
		return
	}
	if _, err := fmt.Fprintf(io.NewOffsetWriter(lock, 0), "%d %s\n", os.Getpid(), host); err != nil {
		_ = lock.Truncate(0)
	}
}

// owner names the process that owns the store. A child that has inherited the lock of its
// parent, which has ended, is named by the parent.
func owner(lock *os.File) string {
	note, err := io.ReadAll(io.NewSectionReader(lock, 0, 300))
	if said := ownerNote.FindSubmatch(note); err == nil && said != nil {
		return fmt.Sprintf("process %s on %s (or a child of it)", said[1], said[2])
	}
	return "another process"
}
