package supervisor

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// A mark is a small file for each instance that runs, written when its process
// has started: with it an engine can be found again when the journal is lost.

func (s *Supervisor) markPath(id string) string {
	return filepath.Join(s.opts.MarkDir, id+".json")
}

// writeMark writes the instance's mark. The lock is held.
func (s *Supervisor) writeMark(i *instance) {
	data, err := json.Marshal(i.saved())
	if err == nil {
		err = os.WriteFile(s.markPath(i.facts.ID), data, 0o600)
	}
	if err != nil {
		s.opts.Observer.JournalFailed()
		s.log.Error("cannot write the mark of an instance: only the journal knows it now", "instance", i.facts.ID, "error", err)
	}
}

// removeMark removes the mark of an instance that is forgotten.
func (s *Supervisor) removeMark(id string) {
	if err := os.Remove(s.markPath(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("cannot remove the mark of an instance", "instance", id, "error", err)
	}
}

func (s *Supervisor) readMark(id string) (SavedInstance, error) {
	var saved SavedInstance
	data, err := os.ReadFile(s.markPath(id))
	if err != nil {
		return saved, err
	}
	return saved, json.Unmarshal(data, &saved)
}
