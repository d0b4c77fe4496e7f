package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The row about secrets of the section "Access" of spec/rows.md.

func TestSecretsReachTheEngineAndAreSeenNowhereElse(t *testing.T) {
	t.Parallel()
	vault := t.TempDir()
	const inEnv, inFile, inOptions, inArgs, ofLauncher = "hf_s3cretEnv", "s3cretFile", "sk-s3cretOption", "sk-s3cretArg", "s3cretToken"
	require.NoError(t, os.WriteFile(filepath.Join(vault, "key"), []byte(inFile+"\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(vault, "token"), []byte(ofLauncher+"\n"), 0o600))
	n := NewStoppedNode(t, "--token-file", filepath.Join(vault, "token"), "--env-file-dirs", vault)
	n.Token = ofLauncher
	n.Start()

	var seen strings.Builder // all that the API says
	look := func(a Answer) Answer { seen.Write(a.Body); return a }
	events, leave := n.Watch("")
	defer leave()
	made := look(n.Call("PUT", instances+"/a", map[string]any{
		"options": `a --served-model-name a "--api-key" ` + inOptions, "gpu_uuids": On(0),
		"env_vars": map[string]any{
			"HF_TOKEN": inEnv, "DATABASE_URL": "x://" + inEnv + "@host", "PLAIN": "to be seen",
			"SOME_KEY": map[string]string{"from_file": filepath.Join(vault, "key")},
		},
	}))
	require.Equal(t, 201, made.Status, "%s", made.Body)
	a := n.Await("a", "awake")
	assert.Equal(t, 201, look(n.Call("PUT", instances+"/b", map[string]any{
		"args": []string{"b", "--api-key", inArgs, "--api-key=" + inArgs, "--sim-crash-at-load", "exit:3"}, "gpu_uuids": On(1),
		"env_vars": map[string]any{"SOME_KEY": map[string]string{"from_file": filepath.Join(vault, "key")}},
	})).Status)
	n.Await("b", "failed")
	assert.Equal(t, 200, call(t, "GET", publicURL(a, "/v1/models"), nil, "Authorization", "Bearer "+inOptions).Status, "the engine has its key")
	value, _ := variable(t, a.PID, "HF_TOKEN")
	assert.Equal(t, inEnv, value)
	value, _ = variable(t, a.PID, "SOME_KEY")
	assert.Equal(t, inFile, value, "without the newline at its end")
	for _, entry := range procFile(t, a.PID, "environ") {
		assert.NotContains(t, entry, ofLauncher, "the launcher's own token is not the engine's")
	}

	for _, path := range []string{instances, instances + "/a", instances + "/b", instances + "/a/log", instances + "/b/log", "/v2/gpus", "/metrics", "/"} {
		look(n.Call("GET", path, nil))
	}
	look(n.Call("PUT", instances+"/a", map[string]any{"options": "m --api-key " + inOptions}))
	look(n.Call("PUT", instances+"/c", map[string]any{"args": []string{"m", "--api-key", inArgs}, "gpu_uuids": On(0)})) // taken
	look(n.Call("PUT", instances+"/c", map[string]any{"options": "m", "env_vars": map[string]any{"HF_TOKEN": []string{inEnv}}}))
	look(n.Call("POST", "/v2/vllm/swap", map[string]any{"in": map[string]any{
		"id": "d", "options": "m --sim-crash-at-load exit:1 --api-key " + inOptions, "env_vars": map[string]string{"API_KEY": inEnv},
	}, "gpu_uuids": On(0)}))
	n.Delete("b")
	for told := ""; told != "DELETED b"; { // the events so far
		e := next(t, events)
		seen.Write(e.Object)
		if strings.Contains(string(e.Object), `"instance_id":"b"`) {
			told = string(e.Type) + " b"
		}
	}
	assert.Contains(t, seen.String(), "to be seen", "the test looks at the right things")
	assert.Contains(t, seen.String(), filepath.Join(vault, "key"), "a file is told by its name")

	places := map[string]string{
		"the API": seen.String(), "the launcher's log": n.Log(), "ps": strings.Join(procFile(t, n.PID(), "cmdline"), " "),
		"the instance's port": string(call(t, "GET", publicURL(a, "/metrics"), nil).Body),
	}
	require.NoError(t, filepath.Walk(n.State, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			data, readErr := os.ReadFile(path)
			places[path] = string(data)
			return readErr
		}
		return err
	}))
	assert.Greater(t, len(places), 5, "what is written of instances, and logs, are among them")
	for place, text := range places {
		for _, secret := range []string{inEnv, inFile, inOptions, inArgs, ofLauncher} {
			assert.NotContains(t, text, secret, place)
		}
	}
}

func TestAVariableComesOnlyFromAFileThatIsAllowed(t *testing.T) {
	t.Parallel()
	allowed, outside := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "shadow"), []byte("s3cret"), 0o600))
	require.NoError(t, os.Symlink(filepath.Join(outside, "shadow"), filepath.Join(allowed, "link")))
	require.NoError(t, os.Symlink(outside, filepath.Join(allowed, "folder")))
	require.NoError(t, os.Mkdir(filepath.Join(allowed, "sub"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(allowed, "long"), make([]byte, 1<<20), 0o600))
	require.NoError(t, syscall.Mkfifo(filepath.Join(allowed, "pipe"), 0o600))
	n := NewNode(t, "--env-file-dirs", allowed)
	for name, path := range map[string]string{
		"a file elsewhere":           filepath.Join(outside, "shadow"),
		"up and out":                 allowed + "/../" + filepath.Base(outside) + "/shadow",
		"up and out from a folder":   allowed + "/sub/../../" + filepath.Base(outside) + "/shadow",
		"a link to a file elsewhere": filepath.Join(allowed, "link"),
		"through a linked folder":    filepath.Join(allowed, "folder", "shadow"),
		"a folder":                   filepath.Join(allowed, "sub"),
		"the allowed folder itself":  allowed,
		"a sibling of a like name":   allowed + "x",
		"no such file":               filepath.Join(allowed, "missing"),
		"a file too long":            filepath.Join(allowed, "long"),
		"a pipe nobody writes to":    filepath.Join(allowed, "pipe"),
		"a relative path":            "shadow",
		"a device without end":       "/dev/zero",
		"the launcher's environment": "/proc/self/environ",
		"a zero byte":                allowed + "/a\x00b",
	} {
		t.Run(name, func(t *testing.T) {
			p := n.Call("PUT", instances+"/a", map[string]any{
				"options": "m", "env_vars": map[string]any{"KEY": map[string]string{"from_file": path}},
			}).Problem(t)
			assert.Equal(t, 422, p.Status)
			assert.Contains(t, p.Detail, "KEY")
			assert.NotContains(t, p.Detail, "s3cret")
		})
	}
	n.empty()
}

func TestASecretThatTheEngineRepeatsIsNotToldOn(t *testing.T) {
	t.Parallel()
	const inEnv, inArgs = "hf_s3cretEnv", "sk-s3cretArg"
	n := NewNode(t)
	for id, spec := range map[string]map[string]any{
		"flag": {"args": []string{"m", "--no-such-token", inArgs}},                                               // the engine complains of it
		"name": {"args": []string{"m", "--max-model-len", inEnv}, "env_vars": map[string]any{"HF_TOKEN": inEnv}}, // and of that
	} {
		a := n.Call("PUT", instances+"/"+id, spec)
		if a.Status == 201 {
			n.Await(id, "failed")
		}
		for _, secret := range []string{inEnv, inArgs} {
			assert.NotContains(t, string(a.Body), secret)
			assert.NotContains(t, string(n.Call("GET", instances, nil).Body), secret)
			assert.NotContains(t, n.Log(), secret)
		}
	}
	n.Kill9()
	n.Start()
	table := exec.Command(bin.launcher, "ps", "--server", n.URL)
	out, err := table.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, secret := range []string{inEnv, inArgs} {
		assert.NotContains(t, string(out), secret)
		assert.NotContains(t, string(n.Call("GET", instances, nil).Body), secret)
		for _, path := range []string{"instances", "swaps"} {
			assert.NotContains(t, filesText(t, filepath.Join(n.State, path)), secret)
		}
	}
}

// filesText is all that stands in a file, or in the files of a folder.
func filesText(t *testing.T, root string) (text string) {
	t.Helper()
	require.NoError(t, filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		text += string(data)
		return err
	}))
	return text
}
