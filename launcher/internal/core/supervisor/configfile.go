package supervisor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// An instance's --config file may change before its engine reads it, to something that
// the launcher would have refused. So the launcher gives the engine a copy of what it
// has read. The copy may hold secrets; the launcher removes it as soon as
// the instance has left the state starting. A worker leaves that state before its engine has
// read the copy: its copy stays until the worker sleeps or ends.

// copied is the suffix of the copy's name.
const copied = ".yaml"

func (s *Supervisor) configPath(id string) string { return filepath.Join(s.opts.ConfigDir, id+copied) }

// withConfig copies the --config file of a plan, if it has one, and returns the plan
// with the path of the copy.
func (s *Supervisor) withConfig(id string, plan engine.Plan) (engine.Plan, error) {
	if plan.Config == nil {
		return plan, nil
	}
	plan.ConfigPath = s.configPath(id)
	return plan, os.WriteFile(plan.ConfigPath, plan.Config, 0o600)
}

func (s *Supervisor) removeConfig(id string) {
	if err := os.Remove(s.configPath(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("cannot remove the copy of an instance's --config file", "instance", id, "error", err)
	}
}

// mayReadConfig reports whether the engine may not have read its copy yet.
func (f *facts) mayReadConfig(state launcher.State) bool {
	return state == launcher.Starting || state == launcher.Awake && f.isWorker()
}

// removeConfigs removes the copies that an earlier launcher left. It keeps those of
// engines that may not have read theirs yet.
func (s *Supervisor) removeConfigs(state SavedState) {
	needed := map[string]bool{}
	for _, saved := range state.Instances {
		needed[saved.Facts.ID] = saved.Facts.mayReadConfig(saved.State)
	}
	files, err := os.ReadDir(s.opts.ConfigDir)
	if err != nil {
		s.log.Warn("cannot look for copies of --config files", "error", err)
	}
	for _, file := range files {
		if id, ok := strings.CutSuffix(file.Name(), copied); ok && file.Type().IsRegular() && launcherapi.IsID(id) && !needed[id] {
			s.removeConfig(id)
		}
	}
}
