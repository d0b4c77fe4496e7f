package e2e

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/hubserver"
)

// Of the section "Models of a launcher" of spec/rows.md: which models go when
// there is no room for another.

// evicting is what a pull answers of models that had to go.
type evicting struct {
	Evicted []shown `json:"evicted"`
}

// hubWith makes a hub with models of 2 MiB.
func hubWith(t *testing.T, names ...string) *hubserver.Hub {
	t.Helper()
	hub := hubserver.New(t)
	for n, name := range names {
		hub.Put(name, tiny(2<<20+n)) // no two share their weights
	}
	return hub
}

func TestPullMakesRoomIfAskedAndKeptModelsStay(t *testing.T) {
	t.Parallel()
	f := models(t, hubWith(t, "org/a", "org/b", "org/c", "org/d"))
	a := f.pull("hf://org/a")
	b := f.pull("hf://org/b")
	keep := func(args ...string) shown {
		t.Helper()
		out, errs, code := f.call("models", append([]string{"keep", "-o", "json"}, args...)...)
		require.Zero(t, code, errs)
		var kept shown
		require.NoError(t, json.Unmarshal([]byte(out), &kept))
		return kept
	}
	assert.Equal(t, launcherapi.RetentionKeep, keep("hf://org/a").Retention)

	_, errs, code := f.call("pull", "--storage-limit", "5MiB", "hf://org/c")
	assert.Equal(t, 1, code)
	assert.Contains(t, errs, "CapacityExceeded")
	assert.Contains(t, errs, "hf://org/a (2.0 MiB), kept by a person (launcher models keep")
	assert.Len(t, f.list(), 2, "nothing goes unless it is asked for")

	out, errs, code := f.call("pull", "-o", "json", "--storage-limit", "5MiB", "--model-retention", "lru", "hf://org/c")
	require.Zero(t, code, errs)
	assert.Contains(t, errs, "evicted hf://org/b, revision "+commit+", to make room")
	var gone evicting
	require.NoError(t, json.Unmarshal([]byte(out), &gone))
	require.Len(t, gone.Evicted, 1)
	assert.Equal(t, b.ID, gone.Evicted[0].ID)
	assert.NoDirExists(t, b.Path)
	assert.DirExists(t, a.Path)

	_, errs, code = f.call("pull", "--storage-limit", "3MiB", "--model-retention", "lru", "hf://org/d")
	assert.Equal(t, 1, code)
	assert.Contains(t, errs, "hf://org/a (2.0 MiB), kept by a person (launcher models keep")
	assert.Len(t, f.list("--verify"), 2, "nothing goes where it is not enough")
	assert.Empty(t, keep("--off", "hf://org/a").Retention)
	f.pull("--storage-limit", "3MiB", "--model-retention", "lru", "hf://org/d")
	all := f.list("--verify")
	require.Len(t, all, 1)
	assert.Equal(t, "hf://org/d", all[0].URI)
	blobs, err := filepath.Glob(filepath.Join(f.dir, "blobs", "*"))
	require.NoError(t, err)
	assert.Len(t, blobs, 2)

	_, errs, code = f.call("pull", "--model-retention", "fifo", "hf://org/a")
	assert.Equal(t, 2, code)
	assert.Contains(t, errs, "must be keep or lru")
	for flag, instead := range map[string]string{"--pin": "launcher models keep MODEL", "--model-gc-high-threshold=90": "set the storage limit"} {
		_, errs, code = f.call("pull", flag, "hf://org/a")
		assert.Equal(t, 2, code)
		assert.Contains(t, errs, instead)
	}
}

func TestALauncherMakesRoomOfModelsThatNoInstanceHasAndThatNobodyKeeps(t *testing.T) {
	t.Parallel()
	f := models(t, hubWith(t, "org/a", "org/b", "org/c", "org/d"))
	n := NewStoppedNode(t, "--model-store", f.dir, "--model-storage-limit", "5MiB", "--model-retention", "lru")
	n.env = append(n.env, f.env...)
	n.Start()
	names := func() (all []string) {
		for _, m := range n.models().Models {
			all = append(all, m.URI)
		}
		return all
	}
	n.pull("hf://org/a")
	n.pull("hf://org/b")
	n.Create("i", of("org/a", 0, "model_cache", "require"))
	n.Await("i", "awake")
	n.pull("hf://org/c")
	assert.Equal(t, []string{"hf://org/a", "hf://org/c"}, names(), "one that an instance has stays")
	n.Create("j", of("org/c", 1, "model_cache", "require"))
	n.Await("j", "awake")
	refused := n.ask("hf://org/b")
	assert.Equal(t, 507, refused.Status)
	assert.Contains(t, refused.Problem(t).Detail, "hf://org/a (2.0 MiB), in use by instance i of the launcher of "+n.State)
	n.Delete("j")
	n.Delete("i") // org/a was used last
	m := n.pull("hf://org/b")
	assert.Equal(t, []string{"hf://org/a", "hf://org/b"}, names())
	require.NotNil(t, m.LastUsed)
	assert.WithinDuration(t, time.Now(), *m.LastUsed, patience)

	cached := model(t, n.Call("PUT", "/v2/models", map[string]any{"uri": "hf://org/a", "wanted_by": "pool", "retention": "lru"}))
	assert.Equal(t, []string{"pool"}, cached.LRUBy)
	kept := model(t, n.Call("PUT", "/v2/models", map[string]any{"uri": "hf://org/b", "wanted_by": "pool"}))
	assert.Equal(t, launcherapi.RetentionKeep, kept.Retention)
	assert.Empty(t, kept.LRUBy)
	for range 2 {
		refused = n.Call("PUT", "/v2/models", map[string]any{"uri": "hf://org/c", "wanted_by": "other", "retention": "lru"})
		assert.Equal(t, 507, refused.Status)
		assert.Contains(t, refused.Problem(t).Detail, "no model is evicted for one with retention lru")
		assert.Equal(t, []string{"hf://org/a", "hf://org/b"}, names(), "what nobody keeps takes no place of another")
	}
	n.pull("hf://org/d")
	assert.Equal(t, []string{"hf://org/b", "hf://org/d"}, names())
	assert.Contains(t, string(n.Call("GET", "/metrics", nil).Body), "hotseat_model_evictions_total 3")
	assert.Equal(t, 422, n.Call("PUT", "/v2/models", map[string]any{"uri": "hf://org/a", "retention": "fifo"}).Status)
}

func TestAStoreThatMayOnlyBeReadIsToldApartFromOneWithoutRoom(t *testing.T) {
	t.Parallel()
	f := models(t, hubWith(t, "org/a", "org/b"))
	f.pull("hf://org/a")
	if err := unix.Mount(f.dir, f.dir, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("NOT TESTED: A STORE CANNOT BE MADE READ-ONLY, SINCE ONLY ROOT MAY MOUNT ONE: %v", err)
	}
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(f.dir, unix.MNT_DETACH)) })
	require.NoError(t, unix.Mount("", f.dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	n := NewStoppedNode(t, "--model-store", f.dir)
	n.env = append(n.env, f.env...)
	n.Start()
	all := n.models().Models
	require.Len(t, all, 1)
	assert.Equal(t, "Ready", all[0].State)
	for _, refused := range []Answer{
		n.Call("PUT", "/v2/vllm/instances/i", of("org/a", 0, "model_cache", "require")),
		n.ask("hf://org/b"), n.Call("DELETE", "/v2/models/"+all[0].ID, nil),
	} {
		p := refused.Problem(t)
		assert.Equal(t, 500, p.Status, p.Detail)
		assert.Equal(t, launcherapi.CodeNoAccess, p.Code)
		assert.Contains(t, p.Detail, f.dir)
		assert.Contains(t, p.Detail, "read-only file system")
	}
	n.Create("i", of("org/a", 0, "model_cache", "off"))
	n.Await("i", "awake")
}
