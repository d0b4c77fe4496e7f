package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/harness"
)

// Of the section "Models of a launcher" of spec/rows.md: what a fetch may take
// of the machine, beside engines.

// modelfetch gives the child of the launcher that fetches.
func (n *Node) modelfetch() (pid int) {
	n.t.Helper()
	n.Eventually("modelfetch runs", func() bool {
		for _, p := range harness.Processes(func(p harness.Process) bool { return p.Parent == n.PID() }) {
			if strings.HasSuffix(cmdline(p.PID), "org/tiny") {
				pid = p.PID
			}
		}
		return pid != 0
	})
	return pid
}

// groupsOfFetch are the folders of the control groups that a process has to itself.
func groupsOfFetch(t *testing.T, pid int) (all []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		_, at, _ := strings.Cut(line, ":/") // hierarchy:controllers:path
		if at = strings.TrimSpace(at); !strings.HasSuffix(at, "/i-@modelfetch-1") {
			continue
		}
		found, err := filepath.Glob("/sys/fs/cgroup/" + at)
		require.NoError(t, err)
		below, err := filepath.Glob("/sys/fs/cgroup/*/" + at)
		require.NoError(t, err)
		all = append(append(all, found...), below...)
	}
	return all
}

func TestAFetchGivesWayToEnginesAndNothingIsLeftOfItWhoeverIsKilled(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"auto", "none"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			hub, f, n := keeper(t, "--cgroups", mode, "--model-bytes-per-second", "20MiB", "--model-fetch-memory", "100MiB")
			hub.Put("org/tiny", tiny(32<<20))
			model(t, n.ask("hf://org/tiny"))
			pid := n.modelfetch()
			n.Eventually("it gives way", func() bool {
				score, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "oom_score_adj"))
				require.NoError(t, err)
				return strings.TrimSpace(string(score)) == "1000"
			})
			threads, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
			require.NoError(t, err)
			for _, thread := range threads {
				tid, err := strconv.Atoi(thread.Name())
				require.NoError(t, err)
				n.Eventually("each of its threads does", func() bool {
					nice, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
					class, _, errno := unix.Syscall(unix.SYS_IOPRIO_GET, 1, uintptr(tid), 0)
					return err == nil && errno == 0 && nice == 20-10 && class == 2<<13|7 // the kernel tells 20 less the niceness
				})
			}
			groups := groupsOfFetch(t, pid)
			assert.Equal(t, !strings.Contains(n.Log(), "mode=none"), len(groups) > 0, "%s", n.Log())
			n.halt(pid) // so that it does not end by itself
			n.Kill9()
			n.Start()
			assert.Empty(t, cmdline(pid), "the next launcher ends it")
			for _, g := range groups {
				assert.NoDirExists(t, g)
			}
			m := n.pull("hf://org/tiny")
			assert.Equal(t, launcherapi.ModelReady, m.State)
			assert.Equal(t, "Ready", f.list("--verify")[0].State)
			for _, g := range groups {
				assert.NoDirExists(t, g)
			}
		})
	}
}
