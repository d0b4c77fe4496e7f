package simulation

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"hotseat.dev/hotseat/launcher/internal/core/statedir"
)

// diskTime bounds what a disk that stalls adds to a call: for its lease, its log, its record
// and their undoing.
const diskTime = 4 * statedir.Patience

// diskTime is that time if the disk ever stalled.
func (w *world) diskTime() time.Duration {
	if !w.everWrong("disk stalls") {
		return 0
	}
	return diskTime
}

// stallDisk has the disk not answer for a while, and at most until the end of the script.
func (w *world) stallDisk(limit time.Duration) {
	w.m.remember("disk stalls")
	w.mu.Lock()
	defer w.mu.Unlock()
	until := time.Now().Add(min(limit, time.Until(w.end)))
	if until.After(w.stalled) {
		w.stalled = until
	}
}

func (w *world) untilDiskAnswers() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Until(w.stalled)
}

// awaitDisk waits until the disk answers. The error says that the launcher is dead.
func (l *life) awaitDisk() error {
	for {
		left := l.w.untilDiskAnswers()
		if left <= 0 {
			return nil
		}
		select {
		case <-time.After(left):
		case <-l.died:
			return errDead
		}
	}
}

// checkLevelWritten checks that the record of an instance has the level that its engine is
// told to sleep at, unless the record is marked as stale.
func (w *world) checkLevelWritten(id string, level int) {
	text, err := os.ReadFile(w.recordOf(id, ".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return // checkRest looks for records that are lost
	}
	var written struct {
		Record struct {
			Level int `json:"level"`
		} `json:"record"`
	}
	if err == nil {
		err = json.Unmarshal(text, &written)
	}
	if err != nil || written.Record.Level != level {
		w.m.wrong(actsAreRecorded, "%s is put to sleep at level %d, and its record says level %d (%v)", id, level, written.Record.Level, err)
	}
}

// checkInstanceWritten checks that there is a record of an instance whose process starts.
func (w *world) checkInstanceWritten(id string) {
	_, err := os.Stat(w.recordOf(id, ".json"))
	if _, stale := os.Stat(w.recordOf(id, ".doubted")); err != nil && stale != nil {
		w.m.wrong(actsAreRecorded, "a process of %s starts without a record: %v", id, err)
	}
}

func (w *world) recordOf(id, end string) string { return filepath.Join(w.dir, "instances", id+end) }
