package supervisor

import (
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
