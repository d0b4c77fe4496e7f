package process

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"hotseat.dev/hotseat/launcher/internal/machine/process/exits"
)

// This file bounds what the start and the end of a tree do on the disk: a disk that stalls
// holds up no other tree.

// diskTime is how long a start or an end waits for the disk.
const diskTime = 2 * time.Second

var errDiskStalls = errors.New("the disk does not answer; they are removed when it does")

// inTime calls do and waits for it, for at most limit. do goes on afterwards, and ends with
// the answer of the disk.
func inTime(limit time.Duration, do func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// CanBeRead returns an error if the disk of a program, or of the interpreter that its first
// line names, does not answer. A launcher that serves must not fork then: this process is
// suspended as a whole until its child has begun the program.
func CanBeRead(path string) error {
	if !inTime(diskTime, func() {
		if interpreter, ok := strings.CutPrefix(beginning(path), "#!"); ok {
			if fields := strings.Fields(interpreter); len(fields) > 0 {
				_ = beginning(fields[0])
			}
		}
	}) {
		return fmt.Errorf("cannot run %s: the disk that it is on does not answer", path)
	}
	return nil
}

// beginning returns the first line of a file, or a part of it; empty: the file cannot be
// read.
func beginning(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "" // whoever runs it gets the error
	}
	defer f.Close()
	text := make([]byte, 256)
	n, _ := f.Read(text) // as above
	line, _, _ := strings.Cut(string(text[:n]), "\n")
	return line
}

// recordedInTime returns the paths of the shared memory that is recorded of a tree.
func (h *Host) recordedInTime(name string) []string {
	paths := make(chan []string, 1)
	if !inTime(diskTime, func() { paths <- slices.Collect(maps.Keys(h.recordedSharedMemory(name))) }) {
		h.opts.Logger.Warn("ending a process tree without looking for its shared memory, since the disk does not answer", "name", name)
		return nil
	}
	return <-paths
}

// removeFolders removes the folder and the record of a tree that has ended.
func (h *Host) removeFolders(name string) error {
	var late atomic.Bool
	removed := make(chan error, 1)
	if !inTime(diskTime, func() { removed <- h.removeFoldersUnlessTaken(name, late.Load) }) {
		late.Store(true)
		return errDiskStalls
	}
	return <-removed
}

// removeFoldersUnlessTaken removes the folder and the record of a tree. A late removal leaves
// them to a later tree of that name, which begins by removing them.
func (h *Host) removeFoldersUnlessTaken(name string, late func() bool) error {
	h.folders.Lock()
	defer h.folders.Unlock()
	if late() && h.has(name) {
		return nil
	}
	return errors.Join(h.removeScratch(name), h.forgetSharedMemory(name))
}

// has reports whether there is a tree of that name, or one is being started.
func (h *Host) has(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, has := h.processes[name]
	return has
}

// exitInTime returns the recorded exit of a process that is not our child.
func (p *Process) exitInTime() (code int, ok bool) {
	type answer struct {
		entry exits.Entry
		ok    bool
	}
	answers := make(chan answer, 1)
	if !inTime(p.host.opts.RecordWait+diskTime, func() {
		entry, ok := p.recordedExit()
		answers <- answer{entry, ok}
	}) {
		return 0, false
	}
	a := <-answers
	return a.entry.Code, a.ok
}
