package modelstore

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func exported(t *testing.T, s *Store, key, cache string) (snapshot string) {
	t.Helper()
	all, err := s.Versions()
	require.NoError(t, err)
	for _, v := range all {
		if v.Key == key {
			snapshot, err = s.ExportToHub(t.Context(), &v, cache)
			require.NoError(t, err)
		}
	}
	require.NotEmpty(t, snapshot)
	return snapshot
}

func TestModelIsExportedAsTheHubsClientKeepsIt(t *testing.T) {
	s, cache := open(t, Options{Dir: t.TempDir()}), t.TempDir()
	v := putRef(t, s, "hf://org/name", "c0ffee", "main", twoFiles)
	hash := map[string]string{}
	for _, f := range v.Manifest.Files {
		hash[f.Path] = f.SHA256
	}
	config, weights := "models--org--name/blobs/"+hash["config.json"], "models--org--name/blobs/"+hash["sub/model.safetensors"]
	assert.Equal(t, filepath.Join(cache, "models--org--name", "snapshots", "c0ffee"), exported(t, s, v.Key, cache))
	want := map[string]string{
		"./": "", "models--org--name/": "", "models--org--name/blobs/": "", "models--org--name/refs/": "", "models--org--name/snapshots/": "",
		"models--org--name/snapshots/c0ffee/": "", "models--org--name/snapshots/c0ffee/sub/": "",
		config: "{}", weights: "weights", "models--org--name/refs/main": "c0ffee",
		"models--org--name/snapshots/c0ffee/config.json":           "->../../blobs/" + hash["config.json"],
		"models--org--name/snapshots/c0ffee/sub/model.safetensors": "->../../../blobs/" + hash["sub/model.safetensors"],
	}
	assert.Equal(t, want, below(t, cache))

	fill(t, cache, map[string]string{config: "of the client"})
	exported(t, s, v.Key, cache)
	later := putRef(t, s, "hf://org/name", "decaf", "main", map[string]string{"config.json": "{}"})
	exported(t, s, later.Key, cache)
	want[config], want["models--org--name/refs/main"] = "of the client", "decaf"
	want["models--org--name/snapshots/decaf/"], want["models--org--name/snapshots/decaf/config.json"] = "", "->../../blobs/"+hash["config.json"]
	assert.Equal(t, want, below(t, cache), "what is there stays, and the branch has moved")
	require.NoError(t, s.Remove(later.Key, ""))
	require.NoError(t, s.Remove(v.Key, ""))
	assert.Equal(t, want, below(t, cache), "the files are copies")
}

func TestModelThatCannotBeExportedIsRefused(t *testing.T) {
	s, cache := open(t, Options{Dir: t.TempDir()}), t.TempDir()
	other := put(t, s, "https://host/m/", "1", twoFiles)
	_, err := s.ExportToHub(t.Context(), &other, cache)
	require.ErrorContains(t, err, "only models from the Hugging Face hub")
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	require.NoError(t, os.Remove(filepath.Join(s.Files(v.Key), "config.json")))
	damaged, _ := s.Version(v.Key)
	var notWhole *NotWholeError
	_, err = s.ExportToHub(t.Context(), &damaged, cache)
	require.ErrorAs(t, err, &notWhole)
	_, err = s.ExportToHub(t.Context(), &v, cache) // it was whole a moment ago
	require.ErrorContains(t, err, "cannot export config.json of hf://org/name")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	whole := put(t, s, "hf://org/whole", "c0ffee", twoFiles)
	_, err = s.ExportToHub(ctx, &whole, cache)
	require.ErrorIs(t, err, context.Canceled)
	for name := range below(t, cache) {
		assert.NotContains(t, name, "incomplete")
	}
}

// showInHub writes what an earlier release showed of a version in the folder hub.
func showInHub(t *testing.T, dir string, v Version, ref string, withList bool) {
	t.Helper()
	model := filepath.Join(dir, hubDir, "models--org--name")
	var list []string
	add := func(name string) string {
		list = append(list, name)
		path := filepath.Join(model, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		return path
	}
	for _, f := range v.Manifest.Files {
		require.NoError(t, os.Link(filepath.Join(dir, blobsDir, f.SHA256), add("blobs/"+f.SHA256)))
		target := strings.Repeat("../", 2+strings.Count(f.Path, "/")) + "blobs/" + f.SHA256
		require.NoError(t, os.Symlink(target, add("snapshots/"+v.Manifest.Revision+"/"+f.Path)))
	}
	require.NoError(t, os.WriteFile(add("refs/"+ref), []byte(v.Manifest.Revision), 0o644))
	if withList {
		text, err := json.Marshal(list)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(model, hubList), text, 0o644))
	}
}

func TestHubLayoutOfEarlierReleaseIsRemoved(t *testing.T) {
	for name, withList := range map[string]bool{"with a list": true, "of the first releases": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := Open(Options{Dir: dir})
			require.NoError(t, err)
			v := putRef(t, s, "hf://org/name", "c0ffee", "main", twoFiles)
			require.NoError(t, s.Close())
			showInHub(t, dir, v, "release/v1", withList)
			var said []string
			note := func(text string) { said = append(said, text) }
			s, err = Open(Options{Dir: dir, Note: note})
			require.NoError(t, err)
			require.NoError(t, s.Close())
			s = open(t, Options{Dir: dir, Note: note})
			require.Len(t, said, 1, "the second owner has removed nothing")
			assert.Contains(t, said[0], filepath.Join(dir, hubDir))
			assert.Contains(t, said[0], "launcher models export")
			assert.NoDirExists(t, filepath.Join(dir, hubDir))
			require.NoError(t, s.Verify(v.Key))
			assert.Equal(t, "c0ffee", means(t, s, "main"))
			require.NoError(t, s.Remove(v.Key, ""))
			assert.Empty(t, leftBelow(t, s, modelsDir, blobsDir))
		})
	}
}

// The hub's client has fetched a later commit into the folder, and all that it has of that is
// files which were there. The first releases wrote no list.
func TestHubFilesThatTheClientNeedsStayWithoutAList(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Options{Dir: dir})
	require.NoError(t, err)
	v := putRef(t, s, "hf://org/name", "c0ffee", "main", twoFiles)
	mixed := putRef(t, s, "hf://org/name", "facade", "", map[string]string{"config.json": "of facade"})
	showInHub(t, dir, v, "main", false)
	showInHub(t, dir, mixed, "v2", false)
	shared, own := v.Manifest.Files[0].SHA256, mixed.Manifest.Files[0].SHA256
	const hub = "hub/models--org--name/"
	theirs := map[string]string{
		hub + "snapshots/decaf/shared": "->../../blobs/" + shared,
		hub + "refs/next":              "decaf",
		hub + "snapshots/facade/more":  "->../../blobs/more", // the client has fetched the rest of this one
		hub + "blobs/more":             "more",
	}
	fill(t, dir, theirs)
	text, err := os.ReadFile(s.blob(shared))
	require.NoError(t, err)
	theirs[hub+"blobs/"+shared] = string(text)
	theirs[hub+"snapshots/facade/config.json"] = "->../../blobs/" + own
	theirs[hub+"blobs/"+own], theirs[hub+"refs/v2"] = "of facade", "facade"
	require.NoError(t, s.Close())
	for range 2 {
		reopen(t, dir)
		assert.Equal(t, theirs, hubFiles(t, dir))
	}
}

// hubFiles returns the files in the folder hub, without lists.
func hubFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	has := map[string]string{}
	for name, text := range below(t, dir) {
		if strings.HasPrefix(name, "hub/") && !strings.HasSuffix(name, "/") && filepath.Base(name) != hubList {
			has[name] = text
		}
	}
	return has
}

// The hub's client has fetched a later commit into the folder, and has found one of its
// files there.
func TestHubFilesThatTheClientNeedsStay(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Options{Dir: dir})
	require.NoError(t, err)
	v := putRef(t, s, "hf://org/name", "c0ffee", "main", twoFiles)
	showInHub(t, dir, v, "main", true)
	shared := v.Manifest.Files[0].SHA256
	theirs := map[string]string{
		"hub/models--org--name/snapshots/decaf/shared": "->../../blobs/" + shared,
		"hub/models--org--name/snapshots/decaf/more":   "->../../blobs/more",
		"hub/models--org--name/blobs/more":             "more",
		"hub/models--org--name/refs/next":              "decaf",
	}
	fill(t, dir, theirs)
	text, err := os.ReadFile(s.blob(shared))
	require.NoError(t, err)
	theirs["hub/models--org--name/blobs/"+shared] = string(text)
	require.NoError(t, s.Remove(v.Key, ""))
	require.NoError(t, s.Close())
	for range 2 {
		reopen(t, dir)
		assert.Equal(t, theirs, hubFiles(t, dir))
	}
}
