//go:build vllm

package vllm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// process is a live process.
type process struct {
	pid, session int
	cmdline      string
}

func (p process) marked(mark string) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
	return err == nil && bytes.Contains(env, []byte(mark+"\x00"))
}

// processes lists the live processes of this machine that match.
func processes(match func(process) bool) []process {
	var found []process
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue
		}
		// After the name: state, parent, group, session (proc(5)).
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		p := process{cmdline: strings.TrimRight(strings.ReplaceAll(string(cmdline), "\x00", " "), " ")}
		p.pid, _ = strconv.Atoi(filepath.Base(dir))
		p.session, _ = strconv.Atoi(fields[3])
		if fields[0] != "Z" && match(p) {
			found = append(found, p)
		}
	}
	return found
}

// tree lists the processes of an instance, which has a session of its own.
func tree(i launcherapi.Instance) []process {
	return processes(func(p process) bool { return p.session == i.PID })
}

// find gives the process of an instance with a title such as VLLM::Worker.
func find(t *testing.T, i launcherapi.Instance, title string) int {
	t.Helper()
	all := tree(i)
	k := slices.IndexFunc(all, func(p process) bool { return p.cmdline == title })
	require.GreaterOrEqual(t, k, 0, "%v", all)
	return all[k].pid
}

// gone waits until no process of an instance is left.
func (n *node) gone(i launcherapi.Instance) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), 15*time.Second)
	defer cancel()
	n.eventually("the processes of "+i.InstanceID+" are gone", func() bool {
		left := tree(i)
		require.False(n.t, len(left) > 0 && ctx.Err() != nil, "they are there after 15 s: %v", left)
		return len(left) == 0
	})
}

// sharedMemory lists the files in /dev/shm that the processes of an instance
// have mapped.
func sharedMemory(i launcherapi.Instance) []string {
	found := map[string]bool{}
	for _, p := range tree(i) {
		maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.pid))
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
		15*time.Second, 100*time.Millisecond, "descriptors: %q before, %q now", before.descriptors, n.inventory().descriptors)
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
		if e.Type()&fs.ModeSocket != 0 || strings.HasPrefix(path, n.temp+"/") && !e.IsDir() && !strings.HasPrefix(e.Name(), rendezvous) {
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

// descriptors are what the launcher has open.
func (n *node) descriptors(t *testing.T) (open []string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", n.cmd.Process.Pid)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		target, _ := os.Readlink(filepath.Join(dir, e.Name()))
		open = append(open, target)
	}
	return open
}

// alive lists the processes of the node.
func (n *node) alive() (pids []int) {
	for _, p := range processes(func(p process) bool { return n.sessions[p.session] || p.marked(n.mark) }) {
		pids = append(pids, p.pid)
	}
	slices.Sort(pids)
	return pids
}

// enginePort is the port that the engine itself listens on, as its command line
// says once it runs.
func (n *node) enginePort(i launcherapi.Instance) (port string) {
	n.t.Helper()
	n.eventually("the engine has its command line", func() bool {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", i.PID))
		args := strings.Split(string(cmdline), "\x00")
		at := slices.Index(args, "--port") + 1
		if at > 0 {
			port = args[at]
		}
		return at > 0
	})
	return port
}
