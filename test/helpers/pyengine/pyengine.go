// Package pyengine writes a stand-in for an installation of vLLM in Python: a
// real script and a package with the names that the launcher's preloader looks
// for, and hardly anything in it. So starts by fork can be tested in
// milliseconds; test/vllm does the same with vLLM itself.
package pyengine

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

//go:embed all:site
var site embed.FS

// Install writes the installation to a folder, and gives the path of its
// command. The command does what vllm/engine.py says.
func Install(dir string) (command string, err error) {
	python, err := Python()
	if err != nil {
		return "", err
	}
	files, err := fs.Sub(site, "site")
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(dir, files); err != nil {
		return "", fmt.Errorf("cannot write the stand-in engine: %w", err)
	}
	if err := os.Mkdir(filepath.Join(dir, moments), 0o700); err != nil {
		return "", fmt.Errorf("cannot write the stand-in engine: %w", err)
	}
	command = filepath.Join(dir, "vllm.cmd")
	script := "#!" + python + "\nimport sys\nfrom vllm.engine import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
	if err := os.WriteFile(command, []byte(script), 0o700); err != nil {
		return "", fmt.Errorf("cannot write the stand-in engine: %w", err)
	}
	return command, nil
}

// moments is the folder of what happens while an engine is forked;
// vllm/moments.py tells of it.
const moments = "moments"

// Moment is one at which a preloader can be killed.
type Moment string

// The moments of a fork.
const (
	BeforeFork Moment = "kill-before" // there is no child yet
	AfterFork  Moment = "kill-after"  // the child lives, and nobody has been told
)

// KillAt has the process that loaded the installation killed once, at its next
// fork.
func KillAt(dir string, m Moment) error {
	return os.WriteFile(filepath.Join(dir, moments, string(m)), nil, 0o600)
}

// Birth is a process that was forked by one that had loaded the installation:
// of the first generation are those that fork an engine, of the second engines.
type Birth struct {
	PID        int
	Generation int
	Groups     []string // lines of its /proc/self/cgroup, when it had just begun
}

// Births lists the processes that were forked, in their order.
func Births(dir string) (all []Birth, err error) {
	data, err := os.ReadFile(filepath.Join(dir, moments, "births"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for lines := json.NewDecoder(bytes.NewReader(data)); lines.More(); {
		var b Birth
		if err := lines.Decode(&b); err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

// Python returns the path of a real interpreter: the python3 on PATH may be a script
// that looks for it. It looks once, since such a script starts dozens of programs.
func Python() (string, error) { return python() }

var python = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("python3", "-c", "import os, sys; print(os.path.realpath(sys.executable))").Output()
	if err != nil {
		return "", fmt.Errorf("cannot find a Python: the tests need python3 on PATH: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
})
