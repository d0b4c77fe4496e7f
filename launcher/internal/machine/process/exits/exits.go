// Package exits keeps a folder with one small file for each process that was reaped. By
// that file, other processes than the parent learn the exit code. A restarted launcher
// needs it: it is not the parent of the processes that it adopts.
package exits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"hotseat.dev/hotseat/launcher/internal/machine/fswatch"
)

// Entry is the record of one exit.
type Entry struct {
	Code   int       `json:"code"` // −N for signal N
	At     time.Time `json:"at"`
	BootID string    `json:"boot_id"`
}

// Code of a wait status: the exit code, or −N for signal N.
func Code(status syscall.WaitStatus) int {
	if status.Signaled() {
		return -int(status.Signal())
	}
	return status.ExitStatus()
}

// keep is how many entries a folder holds; the oldest are removed first.
const keep = 1024

// names are those of entries and their drafts. Files with other names stay.
var names = regexp.MustCompile(`^\.?[0-9]+-[0-9]+$`)

// Recorder writes entries. It may be used by several goroutines and beside
// the Recorder of another process.
type Recorder struct {
	dir    string
	bootID string
	mu     sync.Mutex
	since  int // writes since the folder was pruned
}

// NewRecorder makes the folder, and prunes it.
func NewRecorder(dir, bootID string) (*Recorder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the folder of exits: %w", err)
	}
	r := &Recorder{dir: dir, bootID: bootID}
	return r, r.prune()
}

// Record writes how the process with this id and start time (clock ticks
// since boot) ended. The file appears whole or not at all.
func (r *Recorder) Record(pid int, start uint64, status syscall.WaitStatus) error {
	text, err := json.Marshal(Entry{Code: Code(status), At: time.Now(), BootID: r.bootID})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := makeAgain(r.dir); err != nil {
		return fmt.Errorf("cannot record an exit: %w", err)
	}
	path := file(r.dir, pid, start)
	draft := filepath.Join(r.dir, "."+filepath.Base(path))
	if err := errors.Join(os.WriteFile(draft, text, 0o600), os.Rename(draft, path)); err != nil {
		return fmt.Errorf("cannot record an exit: %w", err)
	}
	if r.since++; r.since < keep/4 {
		return nil
	}
	return r.prune()
}

// makeAgain makes the folder where a cleaner of temporary files has removed it.
func makeAgain(dir string) error {
	if err := os.Mkdir(dir, 0o700); !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

func (r *Recorder) prune() error {
	r.since = 0
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return fmt.Errorf("cannot prune the folder of exits: %w", err)
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !e.Type().IsRegular() || !names.MatchString(e.Name()) })
	age := map[string]time.Time{}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			age[e.Name()] = info.ModTime()
		}
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return age[b.Name()].Compare(age[a.Name()]) })
	for _, e := range entries[min(keep, len(entries)):] {
		if err := os.Remove(filepath.Join(r.dir, e.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("cannot prune the folder of exits: %w", err)
		}
	}
	return nil
}

func file(dir string, pid int, start uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%d-%d", pid, start))
}

// Find returns the entry of a process; ok is false when there is none.
func Find(dir, bootID string, pid int, start uint64) (entry Entry, ok bool) {
	text, err := os.ReadFile(file(dir, pid, start))
	if err != nil || json.Unmarshal(text, &entry) != nil || entry.BootID != bootID {
		return Entry{}, false
	}
	return entry, true
}

// Await is like Find, but waits until the reaper of the process has written the entry,
// or ctx ends.
func Await(ctx context.Context, dir, bootID string, pid int, start uint64) (entry Entry, ok bool) {
	find := func() bool {
		entry, ok = Find(dir, bootID, pid, start)
		return ok
	}
	if makeAgain(dir) != nil || fswatch.Until(ctx, dir, find) != nil {
		find() // a last time, or the only time where the folder cannot be watched
	}
	return entry, ok
}
