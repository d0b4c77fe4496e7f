package supervisor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file has the folders for what instances save before they sleep without a process.

// saveDir returns the folder for what an instance keeps while it has no process.
func (s *Supervisor) saveDir(id string) string { return filepath.Join(s.opts.SaveDir, id) }

// makeSaveDir makes the folder of an instance that is about to start, empty unless it wakes.
func (s *Supervisor) makeSaveDir(i *instance, wakes bool) error {
	if !i.restarts() {
		return nil
	}
	dir := s.saveDir(i.facts.ID)
	return boundedCall(s, "make the folder "+dir, func() error {
		if !wakes {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
		return os.MkdirAll(dir, 0o700)
	}, nil)
}

// removeSaved removes what an instance has saved.
func (s *Supervisor) removeSaved(id string) {
	dir := s.saveDir(id)
	if err := boundedCall(s, "remove the folder "+dir, func() error { return os.RemoveAll(dir) }, nil); err != nil {
		s.log.Warn("cannot remove what an instance has saved", "instance", id, "error", err)
	}
}

// removeSavedOfOthers removes what instances have saved that are gone.
func (s *Supervisor) removeSavedOfOthers(state SavedState) {
	needed := map[string]bool{}
	for _, saved := range state.Instances {
		needed[saved.Facts.ID] = !saved.State.Ended()
	}
	dirs, err := os.ReadDir(s.opts.SaveDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("cannot look for what instances have saved", "error", err)
	}
	for _, dir := range dirs {
		if dir.IsDir() && launcherapi.IsID(dir.Name()) && !needed[dir.Name()] {
			s.removeSaved(dir.Name())
		}
	}
}
