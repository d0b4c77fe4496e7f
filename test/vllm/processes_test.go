//go:build vllm

package vllm

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/harness"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// owns says whether a process is one of the node's.
func (n *node) owns(p harness.Process) bool {
	variable, value, _ := strings.Cut(n.mark, "=")
	return n.sessions[p.Session] || p.Has(variable, value)
}

// tree lists the processes of an instance, which has a session of its own.
func tree(i launcherapi.Instance) []harness.Process {
	return harness.Processes(func(p harness.Process) bool { return p.Session == i.PID })
}

// find gives the process of an instance with a title such as VLLM::Worker.
func find(t *testing.T, i launcherapi.Instance, title string) int {
	t.Helper()
	all := tree(i)
	k := slices.IndexFunc(all, func(p harness.Process) bool { return p.CommandLine() == title })
	require.GreaterOrEqual(t, k, 0, "%v", all)
	return all[k].PID
}

// gone waits until no process of an instance is left.
func (n *node) gone(i launcherapi.Instance) {
	n.t.Helper()
	n.eventually("the processes of "+i.InstanceID+" are gone", func() bool { return len(tree(i)) == 0 })
}

// sharedMemory lists the files in /dev/shm that the processes of an instance
// have mapped.
func sharedMemory(i launcherapi.Instance) []string {
	found := map[string]bool{}
	for _, p := range tree(i) {
		maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.PID))
		for line := range strings.Lines(string(maps)) {
			if at := strings.Index(line, "/dev/shm/"); at >= 0 && !strings.Contains(line, "(deleted)") {
				found[strings.TrimSpace(line[at:])] = true
			}
		}
	}
	var files []string
	for file := range found {
		files = append(files, file)
	}
	return files
}

// noteShared keeps in mind which shared memory an instance has.
func (n *node) noteShared(i launcherapi.Instance) {
	for _, file := range sharedMemory(i) {
		n.shared[file] = i.InstanceID
	}
}

// leftShared lists what is still there of the shared memory that instances had
// that are gone.
func (n *node) leftShared() (files []string) {
	for file, id := range n.shared {
		if _, err := os.Stat(file); err == nil {
			files = append(files, fmt.Sprintf("%s of %s", file, id))
		}
	}
	return files
}

// kill9 kills a process of an instance: the API server when title is empty.
func kill9(t *testing.T, i launcherapi.Instance, title string) {
	t.Helper()
	pid := i.PID
	if title != "" {
		pid = find(t, i, title)
	}
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
}

// inventory is what there is on a node while no instance is.
type inventory struct {
	processes   []int
	descriptors []string
}

func (n *node) inventory() inventory {
	n.t.Helper()
	http.DefaultClient.CloseIdleConnections()
	require.NoError(n.t, n.Health(n.t.Context())) // so that there is one connection, whatever was before
	return inventory{n.alive(), n.descriptors(n.t)}
}

// leftNothing checks that there is no more than before.
func (n *node) leftNothing(before inventory) {
	n.t.Helper()
	assert.Equal(n.t, before.processes, n.alive(), "processes")
	assert.Empty(n.t, n.temporary(), "files")
	assert.Empty(n.t, n.leftShared(), "shared memory")
	assert.Eventually(n.t, func() bool { return len(n.inventory().descriptors) <= len(before.descriptors) },
		patience.Wait(), 100*time.Millisecond, "descriptors: %q before, %q now", before.descriptors, n.inventory().descriptors)
}

// temporary lists the files in the node's temporary folder, and the sockets
// anywhere in its folders.
func (n *node) temporary() (files []string) {
	n.t.Helper()
	err := filepath.WalkDir(n.root, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it went meanwhile
		}
		if err != nil {
			return err
		}
		if e.Type()&fs.ModeSocket != 0 || strings.HasPrefix(path, n.temp+"/") && !e.IsDir() && !strings.HasPrefix(e.Name(), rendezvous) && !strings.Contains(path, torchHeaders) {
			files = append(files, strings.TrimPrefix(path, n.root+"/"))
		}
		return nil
	})
	require.NoError(n.t, err)
	return files
}

// rendezvous begins the name of a file of 2 KiB by which the workers of an engine
// on CPUs find one another (get_file_store_init_method in
// vllm/utils/network_utils.py); vLLM does not always remove it, and one that is
// killed cannot.
const rendezvous = "vllm_dist_"

// torchHeaders is in the path of the C++ headers that torch 2.11 compiles once for
// all processes of a user, and keeps in the temporary folder whatever
// TORCHINDUCTOR_CACHE_DIR says (default_cache_dir in torch/_inductor/runtime/cache_dir_utils.py).
const torchHeaders = "/torchinductor_"

// descriptors are what the launcher has open.
func (n *node) descriptors(t *testing.T) []string {
	t.Helper()
	open, err := harness.Descriptors(n.program.PID())
	require.NoError(t, err)
	return open
}

// alive lists the processes of the node, without the launcher, which may be another one by now.
func (n *node) alive() []int {
	launcher := n.program.PID()
	pids := harness.PIDs(harness.Processes(func(p harness.Process) bool { return p.PID != launcher && n.owns(p) }))
	slices.Sort(pids)
	return pids
}

// engineAddress is the Unix socket that the engine itself listens on, as its command
// line says once it runs.
func (n *node) engineAddress(i launcherapi.Instance) (address string) {
	n.t.Helper()
	n.eventually("the engine has its command line", func() (shown bool) {
		var err error
		address, err = harness.EngineAddress(i.PID)
		return err == nil
	})
	return address
}
