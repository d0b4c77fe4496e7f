package modelstore

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/modelref"
)

// parts are the files of a commit, of which the tests store selections.
var parts = map[string]string{"config.json": "{}", "model.safetensors": "weights", "pytorch_model.bin": "pickled", "README.md": "words"}

// putPart fetches and publishes a selection of the files.
func putPart(t *testing.T, s *Store, selection modelref.Selection) Version {
	t.Helper()
	files := map[string]string{}
	var leftOut []string
	for name, text := range parts {
		if selection.Takes(name) {
			files[name] = text
		} else {
			leftOut = append(leftOut, name)
		}
	}
	m, content := manifest("hf://org/name", "c0ffee", files)
	m.Ref, m.Selection, m.LeftOut = "main", selection, leftOut
	f, err := s.Admit(m, Want{})
	require.NoError(t, err)
	for hash, text := range content {
		if !f.have[hash] {
			require.NoError(t, os.WriteFile(filepath.Join(f.Staging(), hash), []byte(text), 0o600))
		}
	}
	v, err := f.Publish(m)
	require.NoError(t, err)
	require.NoError(t, s.Verify(v.Key))
	return v
}

func TestSelectionsOfOneRevisionAreVersionsThatShareFiles(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	safe := putPart(t, s, modelref.Selection{Include: []string{"*.json", "*.safetensors"}})
	pickled := putPart(t, s, modelref.Selection{Exclude: []string{"*.safetensors"}})
	require.NotEqual(t, safe.Key, pickled.Key)
	used, err := s.Used()
	require.NoError(t, err)
	assert.EqualValues(t, len("{}weightspickledwords"), used, "each file is there once")

	cache := t.TempDir()
	exported(t, s, safe.Key, cache)
	shown, err := os.ReadDir(exported(t, s, pickled.Key, cache))
	require.NoError(t, err)
	assert.Len(t, shown, 4, "a snapshot has the files of both, as it has after two downloads of the hub's client")
	_, err = s.Find("org/name")
	require.ErrorContains(t, err, "is ambiguous")
	require.NoError(t, s.Remove(pickled.Key, ""))
	require.NoError(t, s.Verify(safe.Key))
}

func TestHolderWantsEachSelectionSeparately(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	for _, selection := range []modelref.Selection{{}, {Include: []string{"*.json", "*.safetensors"}}} {
		v := putPart(t, s, selection)
		require.NoError(t, s.Want(Want{Key: v.Key, URI: v.Manifest.URI, Selection: selection, Ref: "main", Holder: "pool", Since: time.Now()}))
	}
	all, err := s.Versions()
	require.NoError(t, err)
	require.Len(t, all, 2)
	for _, v := range all {
		assert.Equal(t, []string{"pool"}, v.WantedBy())
	}
}

func TestEngineGetsOnlySelectionsWithAllItNeeds(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	tokens := putPart(t, s, modelref.Selection{Include: []string{"*.json"}})
	var lacking *LackingError
	for _, name := range []string{"org/name", "hf://org/name@c0ffee"} {
		_, err := s.Wanted(name, "", modelref.Lacks)
		require.ErrorAs(t, err, &lacking, name)
		require.ErrorContains(t, err, "the store has "+name+" only in selections that lack files which an engine may need: "+tokens.Key+" leaves out model.safetensors and 1 more; pull it without --include and --exclude, or name the id")
	}
	v, err := s.Wanted(tokens.Key, "", modelref.Lacks)
	require.NoError(t, err, "by its id it is meant as it is")
	assert.Equal(t, tokens.Key, v.Key)

	safe := putPart(t, s, modelref.Selection{Exclude: []string{"*.bin", "*.md"}})
	v, err = s.Wanted("org/name", "main", modelref.Lacks)
	require.NoError(t, err)
	assert.Equal(t, safe.Key, v.Key, "weights of one format are enough")
	require.NoError(t, os.Remove(filepath.Join(s.Files(safe.Key), "config.json")))
	var notWhole *NotWholeError
	_, err = s.Wanted("org/name", "", modelref.Lacks)
	require.ErrorAs(t, err, &notWhole)
	whole := putPart(t, s, modelref.Selection{})
	v, err = s.Wanted("org/name", "", modelref.Lacks)
	require.NoError(t, err)
	assert.Equal(t, whole.Key, v.Key)
}

func TestWholeBucketFolderOfSelectionIsServed(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	m, content := manifest("s3://m/a", "1", map[string]string{"b/config.json": "{}", "b/model.safetensors": "weights", "c/config.json": "{}"})
	m.Selection, m.LeftOut = modelref.Selection{Exclude: []string{"c/model*", "d/*"}}, []string{"c/model.safetensors", "d/config.json"}
	f, err := s.Admit(m, Want{})
	require.NoError(t, err)
	for hash, text := range content {
		require.NoError(t, os.WriteFile(filepath.Join(f.Staging(), hash), []byte(text), 0o600))
	}
	_, err = f.Publish(m)
	require.NoError(t, err)
	v, err := s.Wanted("s3://m/a/b", "", modelref.Lacks)
	require.NoError(t, err)
	assert.Equal(t, "b", v.Sub)
	var lacking *LackingError
	_, err = s.Wanted("s3://m/a/c", "", modelref.Lacks)
	require.ErrorAs(t, err, &lacking)
	_, err = s.Wanted("s3://m/a", "", modelref.Lacks)
	require.ErrorAs(t, err, &lacking)
	var none *NotFoundError
	_, err = s.Wanted("s3://m/a/d", "", modelref.Lacks)
	require.ErrorAs(t, err, &none)
}

func TestFolderOfAVersionIsThatVersion(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	key := put(t, s, "s3://m/a", "1", map[string]string{"b/config.json": "{}", "model.safetensors": "weights"}).Key
	files := s.Files(key)
	for path, sub := range map[string]string{files: "", files + "/": "", filepath.Join(files, "b"): "b", files + "/b/../b/": "b"} {
		v, err := s.Wanted(path, "", modelref.Lacks)
		require.NoError(t, err, path)
		assert.Equal(t, key, v.Key, path)
		assert.Equal(t, sub, v.Sub, path)
	}
	var none *NotFoundError
	for _, path := range []string{s.Dir(), filepath.Dir(files), files + "/../..", files + "x", "/etc", ".."} {
		_, err := s.Wanted(path, "", modelref.Lacks)
		require.ErrorAs(t, err, &none, path)
	}
	require.NoError(t, os.Remove(filepath.Join(files, "model.safetensors")))
	_, err := s.Wanted(files, "", modelref.Lacks)
	require.ErrorAs(t, err, &none, "one that is damaged")
}
