package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A mark is a small file for each instance that runs, written when its process
// has started and before it is told to sleep at another level than before. With
// it an engine can be found again when the journal is lost, and no record that
// is missing makes a sleeper wake by the sequence of a wrong level. While the
// journal is behind on an instance there is none: to remove a file takes no room
// on a disk that is full, and the next life of the launcher then believes what
// the engine does, and not what was written of it.

func (s *Supervisor) markPath(id string) string {
	return filepath.Join(s.opts.MarkDir, id+".json")
}

// writeMark writes the instance's mark. One that cannot be written is removed:
// an old one would tell an old level. The lock is held.
func (s *Supervisor) writeMark(i *instance) {
	path := s.markPath(i.facts.ID)
	data, err := json.Marshal(i.saved())
	if err == nil {
		err = os.WriteFile(path+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err == nil {
		i.marked, i.unmarked = i.level, false
		return
	}
	_ = os.Remove(path + ".new") // what there is of it takes room
	s.unmark(i)
	s.log.Error("cannot write the mark of an instance: only the journal knows it now", "instance", i.facts.ID, "error", err)
}

// unmark removes the instance's mark until it can be written again. The lock is
// held.
func (s *Supervisor) unmark(i *instance) {
	i.marked, i.unmarked = 0, true
	s.removeMark(i.facts.ID)
}

// hasMark says whether there is a mark of an instance.
func (s *Supervisor) hasMark(id string) bool {
	_, err := os.Stat(s.markPath(id))
	return err == nil
}

// markLevel sees to it that the mark tells the level of a sleep that is about to
// begin.
func (s *Supervisor) markLevel(i *instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.marked != i.level {
		s.writeMark(i)
	}
}

// removeMark removes the mark of an instance that is forgotten.
func (s *Supervisor) removeMark(id string) {
	if err := os.Remove(s.markPath(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("cannot remove the mark of an instance", "instance", id, "error", err)
	}
}

// readMark reads a mark. A damaged one is kept aside.
func (s *Supervisor) readMark(id string) (SavedInstance, error) {
	var saved SavedInstance
	path := s.markPath(id)
	data, err := os.ReadFile(path)
	if err != nil {
		return saved, err
	}
	if err = json.Unmarshal(data, &saved); err == nil && saved.Facts.ID != id {
		err = fmt.Errorf("it is that of %q", saved.Facts.ID)
	}
	if err != nil {
		return SavedInstance{}, fmt.Errorf("cannot read the mark of an instance, kept as %s.broken: %w", path, errors.Join(err, os.Rename(path, path+".broken")))
	}
	return saved, nil
}
