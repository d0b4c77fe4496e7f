package supervisor

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
)

func TestInstanceWithoutRecordKeepsItsPublicAddress(t *testing.T) {
	for name, c := range map[string]struct {
		public string // what the process says instead; empty: what it was started with
		kept   bool
	}{
		"as it was started":           {kept: true},
		"with an address of nonsense": {public: "elsewhere.example:9123"},
		"with a port of nonsense":     {public: ":99123"},
	} {
		t.Run(name, func(t *testing.T) {
			own := func(o *Options) { o.Mark = "own" }
			in(t, func(t *testing.T, r *rig) {
				wanted := spec("0.5")
				wanted.Args = append(wanted.Args, "--port", "9123", "--host", "127.0.0.1")
				_, err := r.Create(launcher.CreateRequest{ID: "a", Spec: wanted})
				require.NoError(t, err)
				_, err = r.AwaitState(t.Context(), "a", launcher.Awake)
				require.NoError(t, err)
				tree, started := r.runner.tree("a"), r.runner.started[0]
				if c.public != "" {
					started.Public = c.public
				}
				r.runner.found = []process.Found{{Name: "a", Root: tree.ID(), PIDs: []int{tree.pid}}}
				fresh, hard := nextLife(t, r, own, func(o *Options) {
					o.Processes = processTable{tree.pid: {
						args: started.Args, env: append(started.Env, "HOTSEAT_INSTANCE=a", "HOTSEAT_LAUNCHER=own", "HOTSEAT_PUBLIC="+started.Public),
					}}
				})
				defer fresh.Close(t.Context(), false)
				close(hard.ending)
				require.NoError(t, fresh.Recover(t.Context(), SavedState{}))
				view, err := fresh.Get("a")
				require.NoError(t, err)
				assert.Equal(t, "awake", view.State)
				assert.Equal(t, c.kept, view.Port == 9123, "port %d", view.Port)
				assert.Equal(t, c.kept, fresh.instances["a"].facts.PublicHost == "127.0.0.1", "it listens no wider than it was asked to")
				assert.Contains(t, view.Reason, "without a record")
			}, own)
		})
	}
}

func TestPublicPortComesBackOnceItIsFree(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		wanted := spec("0.3")
		wanted.Args = append(wanted.Args, "--port", "9123")
		_, err := r.Create(launcher.CreateRequest{ID: "a", Spec: wanted})
		require.NoError(t, err)
		_, err = r.AwaitState(t.Context(), "a", launcher.Awake)
		require.NoError(t, err)
		restart := func(taken ...int) *rig {
			memory := remembered(t, r)
			fresh, hard := nextLife(t, r)
			close(hard.ending)
			fresh.gates.next = 10 * len(taken) // no port comes twice
			for _, port := range taken {
				fresh.gates.taken[port] = true
			}
			require.NoError(t, fresh.Recover(t.Context(), memory))
			return fresh
		}
		requirePort := func(port int, reason string) {
			view, err := r.Get("a")
			require.NoError(t, err)
			require.Equal(t, port, view.Port)
			require.Equal(t, reason, view.Reason)
		}
		const taken = "another process took its port 9123 while the launcher was down: port 9123 is taken; it has port %d until the launcher is restarted while port 9123 is free"
		r = restart(9123)
		requirePort(8111, fmt.Sprintf(taken, 8111))
		b := spec("0.3")
		b.Args = append(b.Args, "--port", "9123")
		_, err = r.Create(launcher.CreateRequest{ID: "b", Spec: b})
		require.ErrorContains(t, err, "port 9123 is that of instance a, which gets it back")
		r.asleep("a")
		r.wakes("a")
		requirePort(8111, fmt.Sprintf(taken, 8111))
		r = restart(9123)
		requirePort(8111, fmt.Sprintf(taken, 8111))
		r = restart(9123, 8111)
		requirePort(8121, fmt.Sprintf(taken, 8121))
		r = restart()
		requirePort(9123, "")
		r = restart()
		requirePort(9123, "")
		require.NoError(t, r.Close(t.Context(), false))
	})
}
