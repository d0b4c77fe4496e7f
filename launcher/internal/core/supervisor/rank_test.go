package supervisor

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// fakeLeases has leases that the test makes, and records what becomes of them.
type fakeLeases struct {
	ports map[string][]int
	calls []string
	ended error // of Take
}

func (f *fakeLeases) Of(id string) []int { return f.ports[id] }
func (f *fakeLeases) Yield(id string)    { f.calls = append(f.calls, "yield "+id) }
func (f *fakeLeases) End(id string)      { f.calls = append(f.calls, "end "+id) }
func (f *fakeLeases) Take(id string, _ []int) error {
	f.calls = append(f.calls, "take "+id)
	return f.ended
}

// ranked makes a launcher whose instances entry and worker have leased ports.
func ranked(o *Options) {
	o.Leases = &fakeLeases{ports: map[string][]int{"entry": {41000, 41001}, "worker": {41000}}}
	o.RankAddress = "10.0.0.8"
	o.Interface = func(string) (string, error) { return "eth0", nil }
}

func (r *rig) leases() *fakeLeases { return r.opts.Leases.(*fakeLeases) }

// rankSpec is that of one of two ranks, which share two GPUs.
func rankSpec(index int, args ...string) launcherapi.InstanceSpec {
	return launcherapi.InstanceSpec{
		Args: append([]string{"model", "-tp", "2"}, args...), GPUUUIDs: []string{"g0"},
		Rank: &launcherapi.Rank{Group: "group", Index: index, Size: 2, Entry: "10.0.0.7:41000"},
	}
}

func (r *rig) createRank(id string, index int, args ...string) launcherapi.Instance {
	r.t.Helper()
	view, err := r.Create(launcher.CreateRequest{ID: id, Spec: rankSpec(index, args...)})
	require.NoError(r.t, err)
	return view
}

func TestEngineIsToldItsLeasedPortsAndTheyAreNoPartOfItsSpec(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		spec := spec("0.9")
		spec.Args = append(spec.Args, "--kv-transfer-config", `{"port": $(PORT_1)}`)
		spec.EnvVars = map[string]launcherapi.EnvValue{"A": {Value: "$(PORT_0) $(HOME)"}}
		view, err := r.Create(launcher.CreateRequest{ID: "entry", Spec: spec})
		require.NoError(t, err)
		assert.Equal(t, spec.Args, view.Args)
		assert.Equal(t, spec.EnvVars, view.EnvVars)
		assert.Equal(t, []int{41000, 41001}, view.Leased)
		assert.Contains(t, r.runner.started[0].Args, `{"port": 41001}`)
		assert.Contains(t, r.runner.started[0].Env, "A=41000 $(HOME)")
		assert.Equal(t, []string{"take entry", "yield entry"}, r.leases().calls)
		synctest.Wait()
		_, err = r.Delete(t.Context(), "entry")
		require.NoError(t, err)
		assert.Equal(t, []string{"take entry", "yield entry", "end entry"}, r.leases().calls)
	}, ranked)
}

func TestInstanceThatNamesAPortWithoutALeaseIsRefused(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		for id, want := range map[string]string{
			"other":  "lease ports by PUT /v2/port-leases/ID with a count of at least 2",
			"worker": "the port lease of worker has 1",
		} {
			spec := spec("0.9")
			spec.Args = append(spec.Args, "--x", "$(PORT_1)")
			_, err := r.Create(launcher.CreateRequest{ID: id, Spec: spec})
			assert.Equal(t, launcherapi.CodeInvalid, launcher.CodeOf(err))
			assert.ErrorContains(t, err, want)
			refused, _ := errors.AsType[*launcher.Error](err)
			assert.Equal(t, "body.args[4]", refused.Location)
		}
	}, ranked)
}

func TestInstanceWhoseLeaseHasEndedIsNotCreated(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.leases().ended = launcher.Conflictf("the lease has ended")
		_, err := r.Create(launcher.CreateRequest{ID: "entry", Spec: spec("0.9")})
		assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err))
		_, err = r.Get("entry")
		assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err))
		assert.Equal(t, []string{"take entry", "end entry"}, r.leases().calls)
	}, ranked)
}

func TestEntryIsStartedWithItsRank(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		view := r.createRank("entry", 0, "--size", "$(GROUP_SIZE)")
		assert.NotZero(t, view.Port)
		assert.Equal(t, 0, view.Rank.Index)
		assert.Equal(t, []string{
			"/bin/engine", "serve", "model", "--host", "127.0.0.1", "--port", "40001",
			"--nnodes", "2", "--node-rank", "0", "--master-addr", "10.0.0.7", "--master-port", "41000", "--distributed-executor-backend", "mp",
			"-tp", "2", "--size", "2",
		}, r.runner.started[0].Args)
		for _, v := range []string{"VLLM_HOST_IP=10.0.0.8", "GLOO_SOCKET_IFNAME=eth0", "GROUP_SIZE=2", "WORKER_INDEX=0", "ENTRY_ADDRESS=10.0.0.7"} {
			assert.Contains(t, r.runner.started[0].Env, v)
		}
		_, err := r.AwaitState(t.Context(), "entry", launcher.Awake)
		require.NoError(t, err)
	}, ranked)
}

func TestRankThatCannotBeIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		at, text string
		change   func(o *Options, s *launcherapi.InstanceSpec)
	}{
		"a port that the entry has not leased":    {"body.rank.entry", "port 42000 is not leased to instance entry", func(_ *Options, s *launcherapi.InstanceSpec) { s.Rank.Entry = "10.0.0.7:42000" }},
		"an index beyond the size":                {"body.rank.index", "rank.index must be 0 to 1", func(_ *Options, s *launcherapi.InstanceSpec) { s.Rank.Index = 2 }},
		"GPUs that cannot be shared":              {"body.rank.size", "3 ranks cannot share 2 GPUs evenly", func(_ *Options, s *launcherapi.InstanceSpec) { s.Rank.Size = 3 }},
		"another number of GPUs":                  {"body.gpu_uuids", "the arguments need 1 GPU", func(_ *Options, s *launcherapi.InstanceSpec) { s.GPUUUIDs = []string{"g0", "g1"} }},
		"a leased port as the public one":         {"body", "--port 41001 is a leased port", func(_ *Options, s *launcherapi.InstanceSpec) { s.Args = append(s.Args, "--port", "$(PORT_1)") }},
		"a launcher without an address":           {"body.rank", "start it with --rank-address", func(o *Options, _ *launcherapi.InstanceSpec) { o.RankAddress = "" }},
		"an entry that cannot reach its loopback": {"body.rank", "the entry is at 10.0.0.7, but the ranks of this launcher listen at 127.0.0.1, which other machines cannot reach; start the launcher with --rank-address", func(o *Options, _ *launcherapi.InstanceSpec) { o.RankAddress = "127.0.0.1" }},
		"an entry at the loopback of its machine": {"body.rank.entry", "the entry is at 127.0.0.1, which other machines cannot reach, but the ranks of this launcher listen at 10.0.0.8; name the entry by the rank_address of its launcher", func(_ *Options, s *launcherapi.InstanceSpec) { s.Rank.Entry = "127.0.0.1:41000" }},
		"an address of another machine": {"body.rank", "no address of this machine", func(o *Options, _ *launcherapi.InstanceSpec) {
			o.Interface = func(string) (string, error) { return "", errors.New("no address of this machine") }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := rankSpec(0)
			in(t, func(t *testing.T, r *rig) {
				_, err := r.Create(launcher.CreateRequest{ID: "entry", Spec: spec})
				refused, ok := errors.AsType[*launcher.Error](err)
				require.True(t, ok, "%v", err)
				assert.Equal(t, launcherapi.CodeInvalid, refused.Code)
				assert.Equal(t, c.at, refused.Location)
				assert.Contains(t, refused.Detail, c.text)
			}, ranked, func(o *Options) { c.change(o, &spec) })
		})
	}
}

func TestClaimTakesTheLeaseOfTheInstanceThatItCreates(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.claims(dry(r.toMake("s", "entry"))).Release()
		assert.Empty(t, r.leases().calls)
		r.claims(r.toMake("s", "entry")).Release()
		assert.Equal(t, []string{"take entry", "end entry"}, r.leases().calls)
		r.leases().calls = nil
		c := r.claims(r.toMake("s", "entry"))
		require.NoError(t, c.Start(t.Context()))
		require.NoError(t, c.SendBack(t.Context()))
		c.Release()
		assert.Equal(t, []string{"take entry", "yield entry", "end entry"}, r.leases().calls)
		r.leases().ended = launcher.Conflictf("the lease has ended")
		_, err := r.tryClaim(r.toMake("s", "entry"))
		assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err))
	}, ranked)
}

func TestConfigCopyOfAWorkerStaysUntilItSleeps(t *testing.T) {
	in(t, func(t *testing.T, old *rig) {
		original := filepath.Join(t.TempDir(), "c.yaml")
		require.NoError(t, os.WriteFile(original, []byte("seed: 1\n"), 0o600))
		old.createRank("worker", 1, "--config", original)
		_, err := old.AwaitState(t.Context(), "worker", launcher.Awake)
		require.NoError(t, err)
		state := remembered(t, old)
		told := old.configPath("worker")
		assert.FileExists(t, told, "the engine may not have read it yet")
		r, _ := nextLife(t, old, ranked)
		require.NoError(t, r.Recover(t.Context(), state))
		assert.FileExists(t, told)
		r.gpus.hold("g0", r.runner.tree("worker").pid, 70)
		r.asleepAt("worker", 2)
		synctest.Wait()
		assert.NoFileExists(t, told)
	}, ranked)
}
