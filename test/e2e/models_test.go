package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/hubserver"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// folderOfModels is a model store of a test, and how it is worked on.
type folderOfModels struct {
	t   *testing.T
	dir string
	env []string
}

// models makes a store that pulls from the hub.
func models(t *testing.T, hub *hubserver.Hub) *folderOfModels {
	t.Helper()
	f := &folderOfModels{t: t, dir: filepath.Join(t.TempDir(), "models")}
	if hub != nil {
		f.env = append(f.env, "HF_ENDPOINT="+hub.URL)
	}
	return f
}

// shown is a model as commands show it.
type shown struct {
	ID           string `json:"id"`
	URI          string `json:"uri"`
	Revision     string `json:"revision"`
	State        string `json:"state"`
	Reason       string `json:"reason"`
	Bytes        int64  `json:"size_bytes"`
	Path         string `json:"path"`
	Retention    string `json:"retention"`
	There        bool   `json:"already_there"`
	NetworkBytes int64  `json:"network_bytes"`
}

func (f *folderOfModels) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(bin.launcher, append([]string{name, "--model-store", f.dir}, args...)...)
	cmd.Env = append(os.Environ(), f.env...)
	return cmd
}

// call runs a command to its end.
func (f *folderOfModels) call(name string, args ...string) (out, errs string, code int) {
	f.t.Helper()
	cmd := f.command(name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

func (f *folderOfModels) pull(args ...string) shown {
	f.t.Helper()
	out, errs, code := f.call("pull", append([]string{"-o", "json"}, args...)...)
	require.Zero(f.t, code, errs)
	var m shown
	require.NoError(f.t, json.Unmarshal([]byte(out), &m))
	return m
}

func (f *folderOfModels) list(args ...string) []shown {
	f.t.Helper()
	out, errs, _ := f.call("models", append([]string{"-o", "json"}, args...)...)
	var all []shown
	require.NoError(f.t, json.Unmarshal([]byte(out), &all), errs)
	return all
}

// staged is how many bytes lie in the folder of what is fetched.
func (f *folderOfModels) staged() (sum int64) {
	_ = filepath.WalkDir(filepath.Join(f.dir, "staging"), func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			if info, err := e.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil
	})
	return sum
}

func random(n int) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = rng.Read(b)
	return b
}

func tiny(weights int) hubserver.Model {
	return hubserver.Model{Commit: commit, Files: map[string][]byte{"config.json": []byte("{}"), "sub/model.safetensors": random(weights)}}
}

func TestAModelIsPulledFromEachSchemeOnceAndRemoved(t *testing.T) {
	t.Parallel()
	hub := hubserver.New(t)
	hub.Put("org/tiny", tiny(3<<20))
	hub.Put("tiny", tiny(3<<20)) // of no organisation
	source := t.TempDir()
	weights := filepath.Join(source, "model.safetensors")
	require.NoError(t, os.WriteFile(weights, random(3<<20), 0o600))
	then := time.Now().Add(-time.Hour) // a younger date is no version for a web server's file
	require.NoError(t, os.Chtimes(weights, then, then))
	web := httptest.NewServer(http.FileServer(http.Dir(source)))
	defer web.Close()
	f := models(t, hub)
	for _, uri := range []string{"hf://org/tiny", "hf://tiny@main", "file://" + source, web.URL + "/model.safetensors"} {
		first := f.pull(uri)
		assert.Equal(t, "Ready", first.State)
		assert.False(t, first.There)
		again := f.pull(uri)
		assert.True(t, again.There, uri)
		assert.Equal(t, first.ID, again.ID)
		assert.Zero(t, again.NetworkBytes)
		var got []byte
		for _, name := range []string{"sub/model.safetensors", "model.safetensors"} {
			if content, err := os.ReadFile(filepath.Join(first.Path, name)); err == nil {
				got = content
			}
		}
		assert.True(t, bytes.Equal(random(3<<20), got), uri)
	}
	blobs, err := os.ReadDir(filepath.Join(f.dir, "blobs"))
	require.NoError(t, err)
	assert.Len(t, blobs, 2, "the weights are one file of four models")
	all := f.list("--verify")
	require.Len(t, all, 4)
	for _, m := range all {
		assert.Equal(t, "Ready", m.State)
		_, errs, code := f.call("rm", m.ID)
		assert.Zero(t, code, errs)
	}
	assert.Empty(t, f.list())
	blobs, err = os.ReadDir(filepath.Join(f.dir, "blobs"))
	require.NoError(t, err)
	assert.Empty(t, blobs)
}

func TestAModelIsExportedForTheHubsLibraries(t *testing.T) {
	t.Parallel()
	hub := hubserver.New(t)
	hub.Put("org/tiny", tiny(1000))
	f, cache := models(t, hub), t.TempDir()
	f.pull("hf://org/tiny")
	out, errs, code := f.call("models", "export", "hf://org/tiny", cache)
	require.Zero(t, code, errs)
	snapshot := filepath.Join(cache, "models--org--tiny", "snapshots", commit)
	assert.Equal(t, snapshot+"\n", out)
	for name, want := range tiny(1000).Files {
		got, err := os.ReadFile(filepath.Join(snapshot, name))
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	main, err := os.ReadFile(filepath.Join(cache, "models--org--tiny", "refs", "main"))
	require.NoError(t, err)
	assert.Equal(t, commit, string(main))
	_, errs, code = f.call("models", "export", "hf://org/none", cache)
	assert.Equal(t, 1, code)
	assert.Contains(t, errs, "there is no model")
}

func TestAFolderOfOthersIsNoModelStore(t *testing.T) {
	t.Parallel()
	source, dir := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(source, "config.json"), []byte("{}"), 0o600))
	mine := []string{"models/checkpoints/mine", "hub/models--org--name/blobs/abc", "blobs/sha256-abc"}
	for _, name := range mine {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600))
	}
	f := &folderOfModels{t: t, dir: dir}
	_, errs, code := f.call("pull", "file://"+source)
	assert.Equal(t, 2, code, errs)
	line := refused(t, nil, "--state-dir", filepath.Join(t.TempDir(), "state"), "--model-store", dir)
	for _, said := range []string{errs, line} {
		assert.Contains(t, said, "cannot use "+dir+" as a model store")
		assert.Contains(t, said, "choose an empty folder")
	}
	for _, name := range mine {
		assert.FileExists(t, filepath.Join(dir, name))
	}
	f.dir = filepath.Join(dir, "hotseat-models")
	f.pull("file://" + source)
}

func TestAUserWithoutRightsReadsModelsAndCannotChangeThem(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("NOT SHOWN: only root can run a command as somebody else")
	}
	hub := hubserver.New(t)
	hub.Put("org/tiny", tiny(1000))
	f := models(t, hub)
	m := f.pull("hf://org/tiny")
	own := t.TempDir()
	for _, dir := range []string{filepath.Dir(f.dir), own} { // others do not get into the folders of a test
		require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	}
	stranger := func(name string, args ...string) (string, error) {
		cmd := exec.Command(name, args...)
		cmd.Env, cmd.Dir = append(os.Environ(), f.env...), "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	launcher := filepath.Join(own, "launcher")
	require.NoError(t, os.Link(bin.launcher, launcher))
	require.NoError(t, os.Link(filepath.Join(filepath.Dir(bin.launcher), "modelfetch"), filepath.Join(own, "modelfetch")))
	out, err := stranger(launcher, "models", "--verify", "--model-store", f.dir)
	require.NoError(t, err, out)
	assert.Contains(t, out, "Ready")
	weights := filepath.Join(m.Path, "sub", "model.safetensors")
	out, err = stranger("cat", weights)
	require.NoError(t, err, out)
	for _, change := range [][]string{
		{launcher, "rm", "--model-store", f.dir, m.ID}, {launcher, "pull", "--model-store", f.dir, "hf://org/tiny"},
		{"sh", "-c", "echo x >> " + weights}, {"rm", "-f", weights}, {"touch", filepath.Join(m.Path, "more")},
	} {
		out, err := stranger(change[0], change[1:]...)
		require.Error(t, err, change)
		assert.Contains(t, strings.ToLower(out), "permission denied", change)
	}
	assert.Equal(t, "Ready", f.list("--verify")[0].State)
}

func TestTenPullsOfOneModelAreOneDownload(t *testing.T) {
	t.Parallel()
	hub := hubserver.New(t)
	hub.Put("org/tiny", tiny(2<<20))
	f := models(t, hub)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { assert.Equal(t, "Ready", f.pull("hf://org/tiny").State) })
	}
	all.Wait()
	var sent int64
	for _, r := range hub.Seen() {
		if r.Content {
			sent += r.Sent
		}
	}
	assert.EqualValues(t, 2<<20, sent, "the nine others read nothing")
}

func TestAPullThatCannotBeSaysWhyAndPublishesNothing(t *testing.T) {
	t.Parallel()
	announce := func(key string, value any) func([]map[string]any) []map[string]any {
		return func(siblings []map[string]any) []map[string]any {
			for _, s := range siblings {
				if s["rfilename"] == "config.json" {
					s[key] = value
				}
			}
			return siblings
		}
	}
	for name, c := range map[string]struct {
		model func(m *hubserver.Model)
		hub   func(h *hubserver.Hub)
		args  []string
		says  []string
	}{
		"a model that is not there":        {args: []string{"hf://org/none"}, says: []string{"NotFound", "Repository not found"}},
		"a revision that is not there":     {args: []string{"hf://org/tiny@v9"}, says: []string{"NotFound", "Invalid rev id: v9"}},
		"a model that is gated":            {hub: func(h *hubserver.Hub) { h.Gate("secret") }, says: []string{"AccessDenied", "--token-file"}},
		"a wrong hash":                     {model: func(m *hubserver.Model) { m.Announce = announce("blobId", strings.Repeat("a", 40)) }, says: []string{"IntegrityMismatch", "config.json has another Git hash than expected: want aaaa"}},
		"a size that lies":                 {model: func(m *hubserver.Model) { m.Announce = announce("size", 1<<20) }, says: []string{"IntegrityMismatch", "1048576 bytes", "sends 2 bytes"}},
		"a name that leaves the folder":    {model: func(m *hubserver.Model) { m.Announce = announce("rfilename", "../../x") }, says: []string{"Invalid", `".."`}},
		"a name that is absolute":          {model: func(m *hubserver.Model) { m.Announce = announce("rfilename", "/etc/x") }, says: []string{"Invalid", "absolute"}},
		"a model without files":            {model: func(m *hubserver.Model) { m.Files = nil }, says: []string{"Invalid", "has no files"}},
		"more than the limit":              {args: []string{"--storage-limit", "1MiB", "hf://org/tiny"}, says: []string{"CapacityExceeded", "limit of 1.0 MiB"}},
		"more than the declared size":      {args: []string{"--size", "1MiB", "hf://org/tiny"}, says: []string{"IntegrityMismatch", "2097154 bytes", "allows 1048576"}},
		"another digest than expected":     {args: []string{"--digest", "sha256:" + strings.Repeat("a", 64), "hf://org/tiny"}, says: []string{"IntegrityMismatch", "the digest sha256:", "is expected"}},
		"a source that is down for longer": {hub: func(h *hubserver.Hub) { h.Answer(hubserver.Trouble{Status: 503, RetryAfter: "3600"}) }, says: []string{"Unavailable", "1h0m0s"}},
		"an unknown scheme":                {args: []string{"ftp://host/m"}, says: []string{"Invalid", "hf://org/name"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := hubserver.New(t)
			m := tiny(2 << 20)
			if c.model != nil {
				c.model(&m)
			}
			hub.Put("org/tiny", m)
			if c.hub != nil {
				c.hub(hub)
			}
			if c.args == nil {
				c.args = []string{"hf://org/tiny"}
			}
			f := models(t, hub)
			out, errs, code := f.call("pull", c.args...)
			assert.Equal(t, 1, code)
			assert.Empty(t, out)
			for _, word := range c.says {
				assert.Contains(t, errs, word)
			}
			for _, m := range f.list() {
				assert.Equal(t, "Partial", m.State)
				assert.Contains(t, errs, "IntegrityMismatch", "what the other stream has fetched meanwhile stays, to be resumed")
			}
			if strings.Contains(name, "limit") {
				for _, r := range hub.Seen() {
					assert.False(t, r.Content, "nothing is fetched")
				}
			}
		})
	}
}

func TestAPullWaitsAsLongAsTheSourceAsks(t *testing.T) {
	t.Parallel()
	hub := hubserver.New(t)
	hub.Put("org/tiny", tiny(1000))
	hub.Answer(hubserver.Trouble{Status: 429, RetryAfter: "2"})
	models(t, hub).pull("hf://org/tiny")
	seen := hub.Seen()
	require.Greater(t, len(seen), 2)
	assert.GreaterOrEqual(t, seen[1].At.Sub(seen[0].At), 2*time.Second)
}

func TestTheTokenOfAGatedModelGoesToTheHubAlone(t *testing.T) {
	t.Parallel()
	hub := hubserver.New(t)
	hub.Put("org/tiny", tiny(1000))
	hub.Gate("secret")
	f := models(t, hub)
	f.env = append(f.env, "HF_TOKEN=secret")
	m := f.pull("hf://org/tiny")
	for _, r := range hub.Seen() {
		assert.Equal(t, r.Content, r.Authorization == "", r.Path)
	}
	manifest, err := os.ReadFile(filepath.Join(filepath.Dir(m.Path), "manifest.json"))
	require.NoError(t, err)
	assert.NotContains(t, string(manifest), "secret")
}

func TestABandwidthLimitHoldsForAllStreams(t *testing.T) {
	t.Parallel()
	source := t.TempDir()
	for n := range 2 {
		require.NoError(t, os.WriteFile(filepath.Join(source, fmt.Sprint(n)), random(5<<20+n), 0o600))
	}
	began := time.Now()
	models(t, nil).pull("--streams", "2", "--bytes-per-second", "1MiB", "file://"+source)
	assert.GreaterOrEqual(t, time.Since(began), 9*time.Second)
}

func TestAPullInATerminalDrawsABarAndElsewhereSaysLines(t *testing.T) {
	t.Parallel()
	hub := hubserver.New(t)
	hub.Put("org/tiny", tiny(3<<20))
	f := models(t, hub)
	_, errs, code := f.call("pull", "hf://org/tiny")
	require.Zero(t, code, errs)
	assert.Regexp(t, `(?m)^ +\d+\.\d{3}s  3\.0 MiB of 3\.0 MiB \(100%\)$`, errs)
	assert.NotContains(t, errs, "\r")

	_, errs, code = f.call("rm", "org/tiny")
	require.Zero(t, code, errs)
	pull := f.command("pull", "hf://org/tiny")
	script := exec.Command("script", "-qec", strings.Join(pull.Args, " "), "/dev/null")
	script.Env = pull.Env
	drawn, err := script.CombinedOutput()
	require.NoError(t, err, "%s", drawn)
	assert.Contains(t, string(drawn), "\r")
	assert.Contains(t, string(drawn), "100%")
}
