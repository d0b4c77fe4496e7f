package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/hubserver"
)

// A token that is looked for wherever it must not be.
const hubToken = "hf_theTokenOfTheCall"

func (n *Node) askBy(uri, holder string, credentials map[string]any) Answer {
	body := map[string]any{"uri": uri}
	if holder != "" {
		body["wanted_by"] = holder
	}
	if credentials != nil {
		body["credentials"] = credentials
	}
	return n.Call("PUT", "/v2/models", body)
}

// whole waits until a model is there.
func (n *Node) whole(id string) launcherapi.Model {
	n.t.Helper()
	var m launcherapi.Model
	n.Eventually(id+" is there", func() bool {
		m = model(n.t, n.Call("GET", "/v2/models/"+id, nil))
		require.NotEqual(n.t, launcherapi.ModelFailed, m.State, m.Reason)
		return m.State == launcherapi.ModelReady
	})
	return m
}

// found are the files below a folder that have a text in them, or in their names.
func found(t *testing.T, dir, text string) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if strings.Contains(string(content), text) || strings.Contains(path, text) {
			files = append(files, path)
		}
		return err
	}))
	return files
}

// shownByProc is what /proc tells of the children of a process: how they were called,
// and their environment.
func shownByProc(t *testing.T, pid int) (calls string) {
	t.Helper()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	require.NoError(t, err)
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	for _, thread := range threads { // a child is that of the thread that made it
		more, err := os.ReadFile(thread)
		if err == nil {
			children = append(children, more...)
		}
	}
	for child := range strings.FieldsSeq(string(children)) {
		for _, what := range []string{"cmdline", "environ"} {
			text, err := os.ReadFile("/proc/" + child + "/" + what)
			if err == nil {
				calls += strings.ReplaceAll(string(text), "\x00", " ") + "\n"
			}
		}
	}
	return calls
}

func TestAGatedModelIsFetchedByTheCredentialsOfTheCallWhichNobodySees(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]string{"the launcher has none": "", "the launcher has another": "HF_TOKEN=hf_theLaunchersOwn"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub, f, n := keeper(t, "--model-bytes-per-second", "1MiB")
			hub.Put("org/tiny", tiny(5<<20))
			hub.Gate(hubToken)
			if own != "" {
				require.Zero(t, n.Stop())
				n.env = append(n.env, own)
				n.Start()
			}
			events, leave := n.WatchAt("/v2/models/watch")
			defer leave()
			require.Equal(t, 403, n.ask("hf://org/tiny").Status, "by the launcher's own")
			hub.Seen()
			asked := n.askBy("hf://org/tiny", "", map[string]any{"HF_TOKEN": hubToken + "\n"})
			m := model(t, asked)
			seen := string(asked.Body)
			calls := shownByProc(t, n.PID())
			require.Contains(t, calls, "modelfetch")
			seen += calls
			for m.State != launcherapi.ModelReady {
				e := next(t, events)
				seen += string(e.Object)
				a := n.Call("GET", "/v2/models/"+m.ID, nil)
				seen += string(a.Body) + string(n.Call("GET", "/v2/models", nil).Body)
				m = model(t, a)
				require.NotEqual(t, launcherapi.ModelFailed, m.State, m.Reason)
			}
			for _, r := range hub.Seen() {
				if !r.Content {
					assert.Equal(t, "Bearer "+hubToken, r.Authorization, r.Path)
				}
			}
			assert.NotContains(t, seen, hubToken)
			assert.NotContains(t, n.Log(), hubToken)
			assert.NotContains(t, string(n.Call("GET", "/metrics", nil).Body), hubToken)
			assert.Empty(t, found(t, n.State, hubToken))
			assert.Empty(t, found(t, f.dir, hubToken))
			assert.Equal(t, 403, n.ask("hf://org/tiny").Status, "they are not kept for the next call")
		})
	}
}

// The hub tells anybody which files a gated model has: that proves no right to them.
func TestWhoMayNotReadAGatedModelDoesNotGetItFromWhoMay(t *testing.T) {
	t.Parallel()
	hub, f, n := keeper(t, "--model-bytes-per-second", "2MiB")
	hub.Put("org/tiny", tiny(6<<20))
	hub.GateFiles(hubToken)
	right, wrong := map[string]any{"HF_TOKEN": hubToken}, map[string]any{"HF_TOKEN": "hf_aWrongOne"}
	privately := func(holder string) Answer {
		return n.Call("PUT", "/v2/models", map[string]any{"uri": "hf://org/tiny", "wanted_by": holder, "private": true, "credentials": right})
	}
	wanted := func(m launcherapi.Model, by ...string) { t.Helper(); assert.Equal(t, by, m.WantedBy) }

	early := n.askBy("hf://org/tiny", "early", wrong) // nobody fetches it yet
	if early.Status == 202 {
		id := model(t, early).ID
		n.Eventually("it is refused", func() bool {
			m := model(t, n.Call("GET", "/v2/models/"+id, nil))
			return m.State == launcherapi.ModelFailed && m.Cause == "AccessDenied"
		})
	} else {
		require.Equal(t, 403, early.Status)
	}
	m := model(t, privately("first"))
	wanted(m, "first")
	for _, when := range []string{"while it is fetched", "when it is there"} {
		for who, credentials := range map[string]map[string]any{"of none": nil, "of a wrong one": wrong} {
			a := n.askBy("hf://org/tiny", "second", credentials)
			assert.Equal(t, 403, a.Status, "%s, %s", when, who)
			assert.Equal(t, "AccessDenied", a.Problem(t).Cause)
		}
		assert.Contains(t, n.askBy("hf://org/tiny", "", wrong).Problem(t).Detail, "give them the right to read it, or give other credentials")
		_, errs, code := f.call("pull", "hf://org/tiny")
		assert.Equal(t, 1, code, errs)
		wanted(n.whole(m.ID), "first")
	}
	model(t, privately("third"))
	wanted(n.whole(m.ID), "first", "third")

	// Another version that has the weights of the first is not made of these for who may not read them.
	next := tiny(6 << 20)
	next.Commit = strings.Repeat("b", 40)
	next.Files["config.json"] = []byte(`{"a": 1}`)
	hub.Put("org/tiny", next)
	a := n.askBy("hf://org/tiny", "second", nil)
	if a.Status == 202 {
		id := model(t, a).ID
		n.Eventually("it is refused", func() bool {
			return model(t, n.Call("GET", "/v2/models/"+id, nil)).Cause == "AccessDenied"
		})
	} else {
		assert.Equal(t, 403, a.Status)
	}
	for _, m := range n.models().Models {
		if m.Revision == next.Commit {
			assert.NotEqual(t, launcherapi.ModelReady, m.State)
		}
	}
}

// A model that is not private is open to each caller of this launcher, however it was fetched.
func TestRightToPublicModelsIsNotAskedFor(t *testing.T) {
	t.Parallel()
	hub, _, n := keeper(t)
	hub.Put("org/tiny", tiny(1000))
	hub.GateFiles(hubToken)
	m := n.whole(model(t, n.askBy("hf://org/tiny", "first", map[string]any{"HF_TOKEN": hubToken})).ID)
	hub.Seen()
	second := model(t, n.askBy("hf://org/tiny", "second", map[string]any{"HF_TOKEN": "hf_aWrongOne"}))
	assert.Equal(t, m.ID, second.ID)
	assert.Equal(t, []string{"first", "second"}, second.WantedBy)
	for _, r := range hub.Seen() {
		assert.False(t, r.Content, "it is only asked which commit the branch means: %s", r.Path)
	}
}

func TestCredentialsThatCannotBeUsedAreRefusedInWordsAndNotRepeated(t *testing.T) {
	t.Parallel()
	hub, _, n := keeper(t)
	hub.Put("org/tiny", tiny(1000))
	hub.Gate(hubToken)
	for name, c := range map[string]struct {
		uri         string
		credentials map[string]any
		says        string
	}{
		"a name that is not known":          {"hf://org/tiny", map[string]any{"HF_TOKN": hubToken}, `"HF_TOKN" is not known: hf:// takes HF_TOKEN`},
		"where the source is":               {"hf://org/tiny", map[string]any{"HF_TOKEN": hubToken, "HF_ENDPOINT": "https://" + hubToken}, "HF_ENDPOINT is not taken"},
		"none of that scheme":               {"s3://bucket/m", map[string]any{"HF_TOKEN": hubToken}, "there are no credentials for s3://"},
		"half of what is needed":            {"s3://bucket/m", map[string]any{"AWS_ACCESS_KEY_ID": hubToken}, "a part of that is missing"},
		"a source that takes none":          {"file:///etc", map[string]any{"HF_TOKEN": hubToken}, "takes no credentials"},
		"no text":                           {"hf://org/tiny", map[string]any{"HF_TOKEN": 17}, "body.credentials.HF_TOKEN"},
		"an empty one":                      {"hf://org/tiny", map[string]any{"HF_TOKEN": " \n"}, "HF_TOKEN is empty"},
		"too many bytes":                    {"hf://org/tiny", map[string]any{"HF_TOKEN": strings.Repeat(hubToken, 4000)}, "more than 65536 bytes"},
		"a registry that is not among them": {"oci://127.0.0.1:1/m", map[string]any{"DOCKER_AUTH_CONFIG": `{"auths": {"elsewhere": {"username": "u", "password": "` + hubToken + `"}}}`}, "has no credential for 127.0.0.1:1"},
		"a login that is none":              {"oci://127.0.0.1:1/m", map[string]any{"DOCKER_AUTH_CONFIG": hubToken}, "is not the JSON that docker login writes"},
		"a key that is none":                {"gs://bucket/m", map[string]any{"GOOGLE_APPLICATION_CREDENTIALS_JSON": `{"type": "external_account", "x": "` + hubToken + `"}`}, "service_account or authorized_user"},
	} {
		a := n.askBy(c.uri, "", c.credentials)
		assert.Contains(t, []int{403, 422}, a.Status, "%s: %s", name, a.Body)
		assert.Contains(t, a.Problem(t).Detail, c.says, name)
		assert.NotContains(t, string(a.Body), hubToken, name)
	}
	assert.NotContains(t, n.Log(), hubToken)
	assert.Empty(t, found(t, n.State, hubToken))
	assert.Eventually(t, func() bool { return len(n.models().Models) == 0 }, patience, 10*time.Millisecond)
}

func TestAPrivateModelIsServedToWhoShowsARightOfHisOwn(t *testing.T) {
	t.Parallel()
	hub, _, n := keeper(t)
	hub.Put("org/tiny", tiny(1000))
	hub.GateFiles(hubToken)
	ask := func(holder string, private bool) launcherapi.Model {
		t.Helper()
		return n.whole(model(t, n.Call("PUT", "/v2/models", map[string]any{
			"uri": "hf://org/tiny", "wanted_by": holder, "private": private, "credentials": map[string]any{"HF_TOKEN": hubToken},
		})).ID)
	}
	create := func(env map[string]any, more ...any) Answer {
		t.Helper()
		a := n.Call("PUT", "/v2/vllm/instances/a", of("org/tiny", 0, append([]any{"env_vars", env}, more...)...))
		assert.NotContains(t, string(a.Body), hubToken)
		return a
	}
	m := ask("a", true)
	assert.Equal(t, []string{"a"}, m.PrivateBy)
	for name, env := range map[string]map[string]any{"no token": {}, "another token": {"HF_TOKEN": "hf_aWrongOne"}} {
		a := create(env)
		require.Equal(t, 403, a.Status, "%s: %s", name, a.Body)
		assert.Equal(t, "AccessDenied", a.Problem(t).Cause, name)
		assert.Contains(t, a.Problem(t).Detail, "private, and its source does not let this instance read it", name)
	}
	swap := n.Swap(map[string]any{"gpu_uuids": On(0), "in": map[string]any{"id": "b", "args": []string{"org/tiny"}}})
	assert.Equal(t, 403, swap.Status, "%s", swap.Body)
	right := map[string]any{"HF_TOKEN": hubToken}
	for _, when := range []string{"by its source", "by what its source has said, which is away"} {
		a := create(right, "model_cache", "require")
		require.Equal(t, 201, a.Status, "%s: %s", when, a.Body)
		assert.Equal(t, "cache", n.Await("a", "awake").ModelFrom)
		n.Delete("a")
		hub.Answer(slices.Repeat([]hubserver.Trouble{{Status: 503}}, 99)...)
	}
	assert.Equal(t, "Unavailable", create(map[string]any{"HF_TOKEN": "hf_another"}).Problem(t).Cause)
	require.Equal(t, 201, create(map[string]any{}, "model_cache", "off").Status, "the engine's own way is its own")
	n.Delete("a")
	assert.NotContains(t, n.Log(), hubToken)
	assert.Empty(t, found(t, n.State, hubToken))
	assert.Empty(t, found(t, m.Path, hubToken))
}
