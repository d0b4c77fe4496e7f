//go:build vllm

package vllm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// listImports has a process that was forked write, at a signal, what it has
// imported since.
const listImports = `
import os, signal, sys

before = None

def forked():
    global before
    if before is None:
        before = set(sys.modules)

def write(*_):
    path = f"{os.path.dirname(__file__)}/{os.getpid()}"
    with open(path + ".part", "w") as file:
        file.write("\n".join(name for name in sys.modules if name not in before))
    os.rename(path + ".part", path)

os.register_at_fork(after_in_child=forked)
signal.signal(signal.SIGUSR2, write)
`

// The preloader's list of modules is that of one version of vLLM. When a later
// one imports much more after the fork this test names it.
func TestAForkedStartImportsHardlyAnything(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sitecustomize.py"), []byte(listImports), 0o600))
	t.Setenv("PYTHONPATH", dir)
	n := newNode(t, auto)
	n.preloaded("")
	n.createBy(launcherapi.StartFork, "a", gpu(0))
	a := n.await("a", "awake")
	ask(t, a)
	pids := []int{a.PID, find(t, a, "VLLM::EngineCore"), find(t, a, "VLLM::Worker")}
	for _, pid := range pids {
		require.NoError(t, syscall.Kill(pid, syscall.SIGUSR2))
	}
	for _, pid := range pids {
		var names []byte
		n.eventually("a process has written what it imported", func() (done bool) {
			var err error
			names, err = os.ReadFile(filepath.Join(dir, fmt.Sprint(pid)))
			return err == nil
		})
		assert.LessOrEqual(t, len(strings.Fields(string(names))), 5, "%s", names)
	}
	n.remove("a")
}
