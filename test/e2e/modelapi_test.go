package e2e

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/hubserver"
	"hotseat.dev/hotseat/test/helpers/pagecachetest"
)

// Of the section "Models of a launcher" of spec/rows.md: a launcher fetches
// models, shows and removes them over its API.

// keeper makes a node with an empty store that pulls from a hub.
func keeper(t *testing.T, flags ...string) (*hubserver.Hub, *folderOfModels, *Node) {
	t.Helper()
	hub := hubserver.New(t)
	f := models(t, hub)
	n := NewStoppedNode(t, append([]string{"--model-store", f.dir}, flags...)...)
	n.env = append(n.env, f.env...)
	n.Start()
	return hub, f, n
}

func (n *Node) ask(uri string) Answer {
	return n.Call("PUT", "/v2/models", map[string]any{"uri": uri})
}

func (n *Node) models() launcherapi.ModelList {
	n.t.Helper()
	var list launcherapi.ModelList
	n.Call("GET", "/v2/models", nil).Into(n.t, &list)
	return list
}

func model(t *testing.T, a Answer) launcherapi.Model {
	t.Helper()
	require.Contains(t, []int{200, 202}, a.Status, "%s", a.Body)
	var m launcherapi.Model
	a.Into(t, &m)
	return m
}

// pull has a model fetched, and waits until it is there.
func (n *Node) pull(uri string) launcherapi.Model {
	n.t.Helper()
	m := model(n.t, n.ask(uri))
	n.Eventually(uri+" is there", func() bool {
		m = model(n.t, n.Call("GET", "/v2/models/"+m.ID, nil))
		require.NotEqual(n.t, launcherapi.ModelFailed, m.State, m.Reason)
		return m.State == launcherapi.ModelReady
	})
	return m
}

func TestALauncherFetchesAModelShowsItServesItAndRemovesIt(t *testing.T) {
	t.Parallel()
	hub, f, n := keeper(t, "--model-bytes-per-second", "1MiB")
	hub.Put("org/tiny", tiny(4<<20))
	assert.Empty(t, n.models().Models)
	events, leave := n.WatchAt("/v2/models/watch")
	defer leave()
	a := n.ask("hf://org/tiny")
	require.Equal(t, 202, a.Status, "%s", a.Body)
	m := model(t, a)
	assert.Equal(t, launcherapi.ModelDownloading, m.State)
	assert.Equal(t, commit, m.Revision)
	assert.EqualValues(t, 4<<20+2, m.Bytes)
	joined := model(t, n.ask("hf://org/tiny@"+commit))
	assert.Equal(t, m.ID, joined.ID)

	var seen []launcherapi.Model
	for len(seen) == 0 || seen[len(seen)-1].State != launcherapi.ModelReady {
		e := next(t, events)
		require.Contains(t, []launcherapi.EventType{launcherapi.EventCreated, launcherapi.EventUpdated}, e.Type)
		var shown launcherapi.Model
		require.NoError(t, json.Unmarshal(e.Object, &shown))
		require.Equal(t, m.ID, shown.ID)
		seen = append(seen, shown)
	}
	assert.True(t, slices.ContainsFunc(seen, func(m launcherapi.Model) bool { return m.FetchedBytes > 0 && m.FetchedBytes < m.Bytes }), "progress is told")
	assert.Equal(t, 200, n.ask("hf://org/tiny").Status)
	list := n.models()
	require.Len(t, list.Models, 1)
	assert.EqualValues(t, 4<<20+2, list.UsedBytes)
	assert.Equal(t, "Ready", f.list("--verify")[0].State, "the commands see the same")

	n.Create("a", of("org/tiny", 0, "model_cache", "require"))
	n.Ask(n.Await("a", "awake"), "hello")
	used := n.models().Models[0].InUseBy
	require.Len(t, used, 1)
	assert.Contains(t, used[0], "instance a of the launcher of "+n.State)
	refused := n.Call("DELETE", "/v2/models/"+m.ID, nil)
	assert.Equal(t, 409, refused.Status)
	assert.Contains(t, refused.Problem(t).Detail, "instance a of the launcher of "+n.State)
	n.Delete("a")
	assert.Equal(t, 200, n.Call("DELETE", "/v2/models/"+m.ID, nil).Status)
	assert.Equal(t, 404, n.Call("DELETE", "/v2/models/"+m.ID, nil).Status)
	for e := next(t, events); e.Type != launcherapi.EventDeleted; {
		e = next(t, events)
	}
	metrics := string(n.Call("GET", "/metrics", nil).Body)
	for _, line := range []string{
		`hotseat_model_pulls_total{outcome="done"} 1`, `hotseat_model_pulls_total{outcome="there"} 1`,
		`hotseat_model_network_bytes_total 4.194306e+06`, `hotseat_models{state="Ready"} 0`, `hotseat_model_store_bytes 0`,
	} {
		assert.Contains(t, metrics, line+"\n")
	}
}

func TestAModelIsReadIntoMainMemoryBeforeAnybodyAsksForIt(t *testing.T) {
	t.Parallel()
	hub := hubserver.New(t)
	f := models(t, hub)
	f.dir = filepath.Join(pagecachetest.Dir(t), "models")
	n := NewStoppedNode(t, "--model-store", f.dir)
	n.env = append(n.env, f.env...)
	n.Start()
	hub.Put("org/tiny", tiny(40<<20))
	m := n.pull("hf://org/tiny")
	files := 0
	evict := func() {
		t.Helper()
		files = 0
		require.NoError(t, filepath.WalkDir(m.Path, func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				pagecachetest.Evict(t, path)
				files++
			}
			return err
		}))
		require.Equal(t, m.Files, files)
	}
	evict()
	show := func() *int64 { return model(t, n.Call("GET", "/v2/models/"+m.ID, nil)).PageCacheBytes }
	require.NotNil(t, show())
	assert.Zero(t, *show())
	warm := func() (w launcherapi.WarmedModel) {
		a := n.Call("POST", "/v2/models/"+m.ID+"/warm", nil)
		require.Equal(t, 200, a.Status, "%s", a.Body)
		a.Into(t, &w)
		return w
	}
	w := warm()
	assert.Equal(t, m.Bytes, w.Bytes)
	assert.Equal(t, m.Bytes, w.FreshBytes)
	assert.Zero(t, w.LeftBytes)
	require.NotNil(t, show())
	assert.Equal(t, m.Bytes, *show())
	assert.Zero(t, warm().FreshBytes, "nothing is read again")
	listed := n.models().Models[0]
	assert.Nil(t, listed.PageCacheBytes, "a list does not look into every file")
	assert.Equal(t, launcherapi.PageCacheWhole, listed.PageCache, "it tells what was seen at the last look")
	evict()
	assert.Zero(t, *show())
	assert.Equal(t, launcherapi.PageCacheNone, n.models().Models[0].PageCache)
	// reads has something read the model, and again where the kernel has taken pages back.
	read := func() int { return strings.Count(n.Log(), "read a model into main memory") }
	reads := func(what string, begin func() (before int)) {
		t.Helper()
		n.Eventually(what, func() bool {
			evict()
			before := begin()
			n.Eventually("it is read", func() bool { return read() > before })
			return *show() == m.Bytes
		})
	}
	reads("it is read as the request for it says", func() int {
		before := read()
		for _, warm := range []bool{false, true} {
			model(t, n.Call("PUT", "/v2/models", map[string]any{"uri": "hf://org/tiny", "warm": warm}))
		}
		return before
	})
	reads("and when the launcher starts", func() int {
		require.Zero(t, n.Stop())
		n.Start()
		return 0
	})
}

func TestTenCallsForOneModelAreOneDownload(t *testing.T) {
	t.Parallel()
	hub, _, n := keeper(t)
	hub.Put("org/tiny", tiny(2<<20))
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { n.pull("hf://org/tiny") })
	}
	all.Wait()
	var sent int64
	for _, r := range hub.Seen() {
		if r.Content && r.Range != fmt.Sprintf("bytes=%d-", 2<<20-1) { // the last byte: who joins before the want is recorded proves its right
			sent += r.Sent
		}
	}
	assert.EqualValues(t, 2<<20, sent, "the nine others read nothing")
}

func TestTheFetchOfAModelThatIsRemovedEndsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	hub, f, n := keeper(t, "--model-bytes-per-second", "1MiB")
	hub.Put("org/tiny", tiny(40<<20))
	m := model(t, n.ask("hf://org/tiny"))
	require.Eventually(t, func() bool { return f.staged() > 1<<20 }, patience, 5*time.Millisecond)
	assert.Equal(t, 200, n.Call("DELETE", "/v2/models/"+m.ID, nil).Status)
	assert.Empty(t, n.models().Models)
	assert.Zero(t, f.staged())
}

func TestModelsThatFitSinglyAndNotJointlyAreNotBothFetched(t *testing.T) {
	t.Parallel()
	hub, _, n := keeper(t, "--model-storage-limit", "7MiB", "--model-bytes-per-second", "1MiB")
	hub.Put("org/one", tiny(4<<20))
	hub.Put("org/two", tiny(4<<20+1))
	first := n.ask("hf://org/one")
	require.Equal(t, 202, first.Status, "%s", first.Body)
	hub.Seen()
	second := n.ask("hf://org/two")
	assert.Equal(t, 507, second.Status)
	p := second.Problem(t)
	assert.Equal(t, "CapacityExceeded", p.Cause)
	assert.Contains(t, p.Detail, "4.0 MiB are promised to other fetches")
	for _, r := range hub.Seen() {
		assert.NotContains(t, r.Path, "org/two/resolve", "no byte of it is fetched")
	}
}

// A fetch ends with its launcher, and the next one goes on where it was.
func TestAFetchThatEndsWithItsLauncherGoesOnAtTheByte(t *testing.T) {
	t.Parallel()
	const whole, chunk = 80 << 20, 16 << 20
	for _, end := range []string{"killed", "told to end"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			hub, f, n := keeper(t, "--model-bytes-per-second", "60MiB")
			hub.Put("org/tiny", tiny(whole))
			m := model(t, n.ask("hf://org/tiny"))
			require.Eventually(t, func() bool { return f.staged() > 40<<20 }, patience, 5*time.Millisecond)
			if end == "killed" {
				n.Kill9()
			} else {
				require.Zero(t, n.Stop())
			}
			n.Start()
			shown := model(t, n.Call("GET", "/v2/models/"+m.ID, nil))
			assert.Equal(t, launcherapi.ModelPartial, shown.State)
			hub.Seen()
			n.pull("hf://org/tiny")
			var sent int64
			for _, r := range hub.Seen() {
				if r.Content {
					sent += r.Sent
				}
			}
			assert.LessOrEqual(t, sent, int64(whole-40<<20+chunk+(2<<20)))
			assert.Equal(t, "Ready", f.list("--verify")[0].State)
		})
	}
}

func TestAModelThatCannotBeFetchedIsRefusedInWords(t *testing.T) {
	t.Parallel()
	hub, _, n := keeper(t, "--model-storage-limit", "1MiB")
	hub.Put("org/tiny", tiny(1000))
	hub.Put("org/large", tiny(2<<20))
	wrong := tiny(1000)
	wrong.Announce = func(siblings []map[string]any) []map[string]any {
		for _, s := range siblings {
			if s["rfilename"] == "config.json" {
				s["blobId"] = strings.Repeat("a", 40)
			}
		}
		return siblings
	}
	hub.Put("org/wrong", wrong)
	for name, c := range map[string]struct {
		uri    string
		status int
		cause  string
		says   string
	}{
		"a model that is not there":    {"hf://org/none", 404, "NotFound", "Repository not found"},
		"a revision that is not there": {"hf://org/tiny@v9", 404, "NotFound", "Invalid rev id: v9"},
		"more than the limit":          {"hf://org/large", 507, "CapacityExceeded", "limit of 1.0 MiB"},
		"an unknown scheme":            {"ftp://host/m", 422, "Invalid", "hf://org/name"},
		"no address":                   {"tiny", 422, "Invalid", "hf://org/name"},
	} {
		a := n.ask(c.uri)
		assert.Equal(t, c.status, a.Status, name)
		p := a.Problem(t)
		assert.Equal(t, c.cause, p.Cause, name)
		assert.Contains(t, p.Detail, c.says, name)
		if c.status == 422 {
			require.NotEmpty(t, p.Errors, name)
			assert.Equal(t, "body.uri", p.Errors[0].Location)
		}
	}
	assert.Empty(t, n.models().Models)

	a := n.ask("hf://org/wrong")
	if a.Status == 202 { // its fetch has only begun
		m := model(t, a)
		n.Eventually("the fetch has failed", func() bool {
			m = model(t, n.Call("GET", "/v2/models/"+m.ID, nil))
			return m.State == launcherapi.ModelFailed
		})
		assert.Equal(t, "IntegrityMismatch", m.Cause)
		assert.Contains(t, m.Reason, "config.json has another Git hash than expected: want aaaa")
		assert.Equal(t, 200, n.Call("DELETE", "/v2/models/"+m.ID, nil).Status)
	} else {
		assert.Equal(t, 502, a.Status)
	}
	assert.Equal(t, 422, n.Call("PUT", "/v2/models", map[string]any{"url": "x"}).Status)
	hub.Gate("secret")
	denied := n.ask("hf://org/tiny")
	assert.Equal(t, 403, denied.Status)
	assert.Equal(t, "AccessDenied", denied.Problem(t).Cause)

	without := NewNode(t)
	for _, call := range [][2]string{{"GET", ""}, {"PUT", ""}, {"GET", "/x"}, {"DELETE", "/x"}, {"GET", "/watch"}} {
		var body any
		if call[0] == "PUT" {
			body = map[string]any{"uri": "hf://org/tiny"}
		}
		a := without.Call(call[0], "/v2/models"+call[1], body)
		assert.Equal(t, 404, a.Status)
		assert.Contains(t, a.Problem(t).Detail, "--model-store")
	}
}

func TestWatchersHearWhatCommandsDoToTheStore(t *testing.T) {
	t.Parallel()
	hub, f, n := keeper(t)
	hub.Put("org/tiny", tiny(1000))
	events, leave := n.WatchAt("/v2/models/watch")
	defer leave()
	m := f.pull("hf://org/tiny")
	until := func(right func(launcherapi.RawEvent, launcherapi.Model) bool) {
		t.Helper()
		for {
			e := next(t, events)
			var shown launcherapi.Model
			require.NoError(t, json.Unmarshal(e.Object, &shown))
			require.Equal(t, m.ID, shown.ID)
			if right(e, shown) {
				return
			}
		}
	}
	until(func(_ launcherapi.RawEvent, m launcherapi.Model) bool { return m.State == launcherapi.ModelReady })
	n.Create("a", of("org/tiny", 0))
	until(func(_ launcherapi.RawEvent, m launcherapi.Model) bool { return len(m.InUseBy) == 1 })
	n.Await("a", "awake")
	n.Delete("a")
	until(func(_ launcherapi.RawEvent, m launcherapi.Model) bool { return len(m.InUseBy) == 0 })
	_, errs, code := f.call("rm", m.ID)
	require.Zero(t, code, errs)
	until(func(e launcherapi.RawEvent, _ launcherapi.Model) bool { return e.Type == launcherapi.EventDeleted })
}
