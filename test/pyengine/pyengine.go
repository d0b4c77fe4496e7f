// Package pyengine writes a stand-in for an installation of vLLM in Python: a
// real script and a package with the names that the launcher's preloader looks
// for, and hardly anything in it. So starts by fork can be tested in
// milliseconds; test/vllm does the same with vLLM itself.
package pyengine

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	command = filepath.Join(dir, "vllm.cmd")
	script := "#!" + python + "\nimport sys\nfrom vllm.engine import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
	if err := os.WriteFile(command, []byte(script), 0o700); err != nil {
		return "", fmt.Errorf("cannot write the stand-in engine: %w", err)
	}
	return command, nil
}

// Python is the path of a real interpreter: the python3 on PATH may be a script
// that looks for it.
func Python() (string, error) {
	out, err := exec.Command("python3", "-c", "import os, sys; print(os.path.realpath(sys.executable))").Output()
	if err != nil {
		return "", fmt.Errorf("cannot find a Python: the tests need python3 on PATH: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
