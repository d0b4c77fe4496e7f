package process

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

// A process that hangs shows no start time, so that it may be another one with the same id.
func TestHungProcessBelongsToATreeOnlyIfItCanBeTheSame(t *testing.T) {
	const other = 1<<22 + 1 // no process has that id
	ended := make(chan struct{})
	close(ended)
	own := os.Getpid()
	strangers := strangerPID(t)
	for name, tt := range map[string]struct {
		root  ID
		done  chan struct{}
		seen  []procfs.Stat
		now   procfs.Stat
		owned bool
	}{
		"the root":                             {root: ID{PID: own, StartTime: 5}, now: procfs.Stat{PID: own, Session: own}, owned: true},
		"in another session than the root":     {root: ID{PID: own, StartTime: 5}, now: procfs.Stat{PID: own, Session: other}},
		"with the id of a root that has ended": {root: ID{PID: own, StartTime: 5}, done: ended, now: procfs.Stat{PID: own, Session: own}},
		"another user's, with the root's id":   {root: ID{PID: strangers, StartTime: 5}, now: procfs.Stat{PID: strangers, Session: strangers}},
		"seen before":                          {seen: []procfs.Stat{{PID: own, Session: 7, StartTime: 5}}, now: procfs.Stat{PID: own, Session: 7}, owned: true},
		"seen before, hanging":                 {seen: []procfs.Stat{{PID: own, Session: 7, Hangs: true}}, now: procfs.Stat{PID: own, Session: 7}, owned: true},
		"in another session than when seen":    {seen: []procfs.Stat{{PID: own, Session: 7, StartTime: 5}}, now: procfs.Stat{PID: own, Session: 8}},
		"another user's, with a seen id":       {seen: []procfs.Stat{{PID: strangers, Session: 7, StartTime: 5}}, now: procfs.Stat{PID: strangers, Session: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.root.PID == 0 {
				tt.root.PID = other
			}
			tt.now.Hangs, tt.now.State = true, 'D'
			h := &Host{processes: map[string]*Process{"a": {name: "a", id: tt.root, done: tt.done, seen: tt.seen}}}
			c := &census{living: map[int]procfs.Stat{tt.now.PID: tt.now}, owner: map[int]string{}, sessions: map[int]string{}}
			h.byRoot(c)
			c.spread()
			assert.Equal(t, tt.owned, c.owner[tt.now.PID] == "a")
		})
	}
}

// strangerPID returns the id of a process of another user.
func strangerPID(t *testing.T) int {
	t.Helper()
	if os.Geteuid() != 0 {
		return 1
	}
	stranger := exec.Command("/bin/sleep", "300")
	stranger.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	require.NoError(t, stranger.Start())
	t.Cleanup(func() {
		assert.NoError(t, stranger.Process.Kill())
		_ = stranger.Wait()
	})
	return stranger.Process.Pid
}
