package e2e

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// Of the section "Models of a launcher" of spec/rows.md: a scheme whose source
// is a program of somebody else's, the one of the examples.

const tarred = "../../examples/model-source/tarred.py"

// archive writes a model as a tar file, as of a time.
func archive(t *testing.T, path string, weights []byte, when time.Time) {
	t.Helper()
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	for name, content := range map[string][]byte{"config.json": []byte(`{"model_type": "opt"}`), "sub/model.safetensors": weights} {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: "./" + name, Size: int64(len(content)), Mode: 0o644}))
		_, err := w.Write(content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, os.WriteFile(path+".new", text.Bytes(), 0o600))
	require.NoError(t, os.Chtimes(path+".new", when, when))
	require.NoError(t, os.Rename(path+".new", path))
}

func TestAModelIsPulledFromAProgramAndServedByItsAddress(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tiny.tar")
	uri := "tar://" + path
	archive(t, path, random(1<<20), time.Unix(1, 0))
	f := models(t, nil)
	f.env = append(f.env, "HF_TOKEN=secret")
	m := f.pull("--model-source", "tar="+tarred, uri)
	assert.Equal(t, uri, m.URI)
	assert.False(t, m.There)
	content, err := os.ReadFile(filepath.Join(m.Path, "sub", "model.safetensors"))
	require.NoError(t, err)
	assert.Equal(t, random(1<<20), content)
	assert.True(t, f.pull("--model-source", "tar="+tarred, uri).There)
	archive(t, path, random(1<<20), time.Unix(2, 0))
	changed := f.pull("--model-source", "tar="+tarred, uri)
	assert.NotEqual(t, m.ID, changed.ID)

	n := NewStoppedNode(t, "--model-store", f.dir, "--model-source", "tar="+tarred)
	n.Start()
	n.Create("i", of(uri, 0))
	i := n.Await("i", "awake")
	assert.Equal(t, launcherapi.ModelFromCache, i.ModelFrom)
	other := filepath.Join(t.TempDir(), "other.tar")
	refused := n.Call("PUT", "/v2/vllm/instances/j", of("tar://"+other, 1))
	assert.Equal(t, 422, refused.Status)
	assert.Contains(t, refused.Problem(t).Detail, "pull it first: launcher pull tar://"+other)
	missing := n.ask("tar://" + other)
	assert.Equal(t, 404, missing.Status)
	assert.Contains(t, missing.Problem(t).Detail, "the source of tar:// reports: there is no archive "+other)
	archive(t, other, random(2<<20), time.Unix(1, 0))
	assert.Equal(t, launcherapi.ModelReady, n.pull("tar://"+other).State)
}

func TestAPullFromAProgramThatIsKilledGoesOnAtTheByte(t *testing.T) {
	t.Parallel()
	const whole, chunk = 60 << 20, 16 << 20
	path := filepath.Join(t.TempDir(), "tiny.tar")
	archive(t, path, random(whole), time.Unix(1, 0))
	f := models(t, nil)
	first := f.command("pull", "--bytes-per-second", "40MiB", "--model-source", "tar="+tarred, "tar://"+path)
	require.NoError(t, first.Start())
	require.Eventually(t, func() bool { return f.staged() > 20<<20 }, patience, 5*time.Millisecond)
	kill(t, "modelfetch", first)
	require.Error(t, first.Wait())
	m := f.pull("--model-source", "tar="+tarred, "tar://"+path)
	assert.LessOrEqual(t, m.NetworkBytes, int64(whole-20<<20+chunk+(2<<20)))
	assert.Equal(t, "Ready", f.list("--verify")[0].State)
}

// What a program says is not believed where it can be checked.
func TestAProgramThatLiesPublishesNothing(t *testing.T) {
	t.Parallel()
	manifest := func(files string) string {
		return `[ $1 = resolve ] && { echo '{"type": "manifest", "manifest": {"revision": "1", "files": [` + files + `]}}'; exit; }; echo '{"type": "opened", "offset": '$5'}'; `
	}
	for name, c := range map[string]struct{ script, reason, says string }{
		"more bytes than announced": {manifest(`{"path": "w", "size": 10}`) + "printf 12345678901 >&3", "IntegrityMismatch", "should have 10 bytes"},
		"another content":           {manifest(`{"path": "w", "size": 5, "sha256": "0000000000000000000000000000000000000000000000000000000000000000"}`) + "printf 12345 >&3", "IntegrityMismatch", "has another sha256 than expected: want 0000"},
		"a name that leaves":        {manifest(`{"path": "../w", "size": 5}`), "Invalid", `its part ".."`},
		"more than the disk has":    {manifest(`{"path": "w", "size": 1000000000000000000}`), "CapacityExceeded", "the disk has"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := filepath.Join(t.TempDir(), "program")
			require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"+c.script), 0o700))
			f := models(t, nil)
			_, errs, code := f.call("pull", "--model-source", "mine="+program, "mine://m")
			assert.Equal(t, 1, code)
			assert.Contains(t, errs, c.reason+": ")
			assert.Contains(t, errs, c.says)
			for _, m := range f.list() {
				assert.Equal(t, "Partial", m.State)
			}
		})
	}
	f := models(t, nil)
	_, errs, code := f.call("pull", "--model-source", "hf=/bin/true", "hf://org/a")
	assert.Equal(t, 2, code)
	assert.Contains(t, errs, "the scheme hf is hotseat's own")
}
