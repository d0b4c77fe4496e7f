package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Of the section "Life of an instance" of spec/rows.md: 1,000 cycles of
// create and delete leave no process, file descriptor, goroutine, port, group
// or file over.

// envLong asks for all the cycles, which take minutes on a busy machine.
const envLong = "HOTSEAT_TEST_LONG"

// stateFiles lists what is in the state folder, but for two folders that are
// bounded in another way: the logs, kept until retention drops them, and the
// exits that were seen, of which the latest are kept.
func (n *Node) stateFiles() (found []string) {
	n.t.Helper()
	require.NoError(n.t, filepath.WalkDir(n.State, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "logs" || d.Name() == "exits") {
			return filepath.SkipDir
		}
		found = append(found, path)
		return nil
	}))
	return found
}

// cycles runs so many lives of instances, some at once, that end in each of
// the ways that there are.
func (n *Node) cycles(count int) {
	n.t.Helper()
	const atOnce = 4
	var all sync.WaitGroup
	for lane := range atOnce {
		all.Go(func() {
			for k := lane; k < count; k += atOnce {
				if err := n.cycle(fmt.Sprintf("i%d", lane), On(lane%2), k/atOnce); err != nil {
					assert.NoError(n.t, err, "cycle %d", k)
					return
				}
			}
		})
	}
	all.Wait()
}

// cycle makes an instance, lets it come as far as k says, and deletes it.
func (n *Node) cycle(id string, gpus []string, k int) error {
	args := []string{"--gpu-memory-utilization", "0.4"}
	if k%5 == 4 {
		args = append(args, "--sim-crash-at-load", "core:signal:KILL", "--sim-dead-delay", "0s")
	}
	path := "/v2/vllm/instances/" + id
	steps := []step{{"PUT", path, 201}}
	switch k % 5 {
	case 1: // deleted while it starts
	case 4:
		steps = append(steps, step{"POST", path + "/wake", 502})
	case 3:
		steps = append(steps, step{"POST", path + "/wake", 200}, step{"POST", path + "/sleep", 200})
	default:
		steps = append(steps, step{"POST", path + "/wake", 200}) // joins the start
	}
	for _, s := range append(steps, step{"DELETE", path, 200}) {
		var body any
		if s.method == "PUT" {
			body = Spec(id, gpus, args...)
		}
		a, err := tryCall(context.Background(), s.method, n.URL+s.path, body)
		if err != nil {
			return err
		}
		early := s.status == 502 && a.Status == 409 // it had failed before it was asked for
		if a.Status != s.status && !early {
			return fmt.Errorf("%s %s: %d %s", s.method, s.path, a.Status, a.Body)
		}
	}
	return nil
}

// step is a call, and the status that it is to get.
type step struct {
	method, path string
	status       int
}

func TestManyCyclesOfCreateAndDeleteLeaveNothingOver(t *testing.T) {
	t.Parallel()
	count := 200
	if os.Getenv(envLong) != "" {
		count = 1000
	} else {
		t.Logf("ONLY %d OF THE 1,000 CYCLES ARE RUN: %s=1 RUNS THEM ALL, AS make test-long DOES", count, envLong)
	}
	n := NewNode(t, "--starting-grace", "100ms", "--log-max-files", "0")
	n.cycles(20) // what is made once and kept is there after these
	held, files := n.held(), n.stateFiles()
	began := time.Now()
	n.cycles(count)
	t.Logf("%d cycles took %s; before them %+v", count, time.Since(began).Round(time.Millisecond), held)
	n.gaveBack(held)
	assert.Empty(t, n.living())
	assert.Empty(t, n.groupFolders())
	assert.Equal(t, files, n.stateFiles())
	logs, err := filepath.Glob(filepath.Join(n.State, "logs", "*.log"))
	require.NoError(t, err)
	assert.Len(t, logs, 20+count, "the logs stay until retention drops them")
	exits, err := filepath.Glob(filepath.Join(n.State, "exits", "*"))
	require.NoError(t, err)
	assert.Less(t, len(exits), 1500)
	assert.Equal(t, 1, listening(t, n.PID()), "only the control API's port is open")
}

// listening counts the sockets of a process that listen.
func listening(t *testing.T, pid int) (count int) {
	t.Helper()
	sockets := map[string]bool{}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	require.NoError(t, err)
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		if inode, ok := strings.CutPrefix(target, "socket:["); err == nil && ok {
			sockets[strings.TrimSuffix(inode, "]")] = true
		}
	}
	for _, table := range []string{"tcp", "tcp6"} {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		require.NoError(t, err)
		for line := range strings.Lines(string(data)) {
			fields := strings.Fields(line)
			const listen = "0A" // TCP_LISTEN, see proc_pid_net(5)
			if len(fields) > 9 && fields[3] == listen && sockets[fields[9]] {
				count++
			}
		}
	}
	return count
}
