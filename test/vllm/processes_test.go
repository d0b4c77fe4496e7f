//go:build vllm

package vllm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

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

// kill9 kills a process of an instance: the API server when title is empty.
func kill9(t *testing.T, i launcherapi.Instance, title string) {
	t.Helper()
	pid := i.PID
	if title != "" {
		pid = find(t, i, title)
	}
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
}
