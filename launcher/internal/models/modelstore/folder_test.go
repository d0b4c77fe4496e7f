package modelstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fill makes files below a folder; a name that ends with a slash is a folder, and a text
// that begins with -> is the target of a link.
func fill(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		target, link := strings.CutPrefix(text, "->")
		switch {
		case strings.HasSuffix(name, "/"):
			require.NoError(t, os.MkdirAll(path, 0o755))
		case link:
			require.NoError(t, os.Symlink(target, path))
		default:
			require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		}
	}
}

// below returns the files below a folder with their texts, in the form that fill takes.
func below(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		switch {
		case err != nil:
			return err
		case e.IsDir():
			all[name+"/"] = ""
		case e.Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			all[name] = "->" + target
			return err
		default:
			text, err := os.ReadFile(path)
			all[name] = string(text)
			return err
		}
		return nil
	}))
	return all
}

func TestFolderOfOthersIsRefusedAndStaysAsItIs(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"a project":                  {"models/checkpoints/mine.safetensors": "x", "main.py": "x"},
		"models alone":               {"models/checkpoints/mine.safetensors": "x"},
		"a hub cache":                {"models--org--name/blobs/abc": "x"},
		"a folder of a hub cache":    {"hub/models--org--name/blobs/abc": "x"},
		"what ollama keeps":          {"blobs/sha256-abc": "x", "manifests/registry/x": "x"},
		"one hidden file":            {".git": "x"},
		"empty folders":              {"models/": "", "staging/": ""},
		"a mark that is a link":      {storeMark: "->/etc/hostname"},
		"a mark that is a folder":    {storeMark + "/x": ""},
		"a link to a compile cache":  {"compiled": "->/tmp"},
		"compiled code of others":    {"compiled/main.o": "x"},
		"trash of others":            {"compiled/trash-2024/x": "x"},
		"a file with a key's name":   {"compiled/" + strings.Repeat("a", 32): "x"},
		"a blob without its folders": {"blobs/" + strings.Repeat("a", 64): "x"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fill(t, dir, files)
			before := below(t, dir)
			_, err := Open(Options{Dir: dir})
			var not *NotAStoreError
			require.ErrorAs(t, err, &not)
			assert.ErrorContains(t, err, "choose an empty folder, such as "+filepath.Join(dir, "hotseat-models"))
			assert.Equal(t, before, below(t, dir))
		})
	}
}

func TestEmptyFolderBecomesAStore(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"empty":                       {},
		"a new file system":           {"lost+found/": ""},
		"a launcher has compiled":     {"compiled/" + strings.Repeat("a", 32) + "/x": "x", "compiled/trash-" + strings.Repeat("A", 26) + "/x": "x"},
		"a store that was just begun": {storeMark: ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fill(t, dir, files)
			put(t, open(t, Options{Dir: dir}), "hf://org/name", "c0ffee", twoFiles)
			assert.FileExists(t, filepath.Join(dir, storeMark))
		})
	}
}

func TestFirstOwnersOfAFolderAgreeItIsAStore(t *testing.T) {
	for range 300 {
		dir := t.TempDir()
		var owners sync.WaitGroup
		for range 4 {
			owners.Go(func() {
				s, err := Open(Options{Dir: dir})
				if _, locked := errors.AsType[*LockedError](err); locked {
					return
				}
				if assert.NoError(t, err) {
					assert.NoError(t, s.Close())
				}
			})
		}
		owners.Wait()
		if t.Failed() {
			return
		}
	}
}

func TestMarkIsNoFileOfOthers(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, map[string]string{storeMark: ""}) // another process has made it just now
	others, err := othersIn(dir)
	require.NoError(t, err)
	assert.Empty(t, others)
}

// unmarked makes a store as the release before the mark left it.
func unmarked(t *testing.T) (dir string, whole Version) {
	t.Helper()
	dir = t.TempDir()
	s, err := Open(Options{Dir: dir})
	require.NoError(t, err)
	whole = putRef(t, s, "hf://org/name", "c0ffee", "main", twoFiles)
	want(t, s, whole, "main", "", whole.Published)
	require.NoError(t, user(t, s, "u").Lease(whole.Key, "instance a"))
	m, content := manifest("hf://org/partial", "c0ffee", map[string]string{"a": "partial"})
	f, err := s.Admit(m, Want{})
	require.NoError(t, err)
	putFiles(t, f, content)
	require.NoError(t, f.GiveUp(false))
	require.NoError(t, s.Close())
	require.NoError(t, os.Remove(filepath.Join(dir, storeMark)))
	showInHub(t, dir, whole, "main", false)
	return dir, whole
}

func TestStoreOfEarlierReleaseOpensAndIsMarked(t *testing.T) {
	dir, whole := unmarked(t)
	fill(t, dir, map[string]string{"lost+found/": "", "compiled/" + strings.Repeat("a", 32) + "/x": "x", "kept/x": "x", "blobs/.nfs0001": "", "hub/.locks/models--x/y": "", "hub/version.txt": "1"})
	s := open(t, Options{Dir: dir})
	assert.FileExists(t, filepath.Join(dir, storeMark))
	require.NoError(t, s.Verify(whole.Key))
	all, err := s.Versions()
	require.NoError(t, err)
	assert.Len(t, all, 2)
	assert.Equal(t, "c0ffee", means(t, s, "main"))
	require.ErrorContains(t, s.Remove(whole.Key, ""), "instance a of u")
	assert.NoDirExists(t, filepath.Join(dir, hubDir, "models--org--name"))
	assert.FileExists(t, filepath.Join(dir, hubDir, "version.txt"))
}

func TestStoreThatHasLostItsMarkOpens(t *testing.T) {
	dir, whole := unmarked(t)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, hubDir)))
	require.NoError(t, open(t, Options{Dir: dir}).Verify(whole.Key))
}

func TestFolderThatIsAlmostAStoreIsRefused(t *testing.T) {
	for _, name := range []string{"README", "blobs/sha256-x", "blobs/" + strings.Repeat("a", 64) + "/x", "models/mine/x", "models/" + strings.Repeat("a", 32), "staging/x", "leases/x", "wants/x"} {
		t.Run(name, func(t *testing.T) {
			dir, _ := unmarked(t)
			fill(t, dir, map[string]string{name: "x"})
			before := below(t, dir)
			_, err := Open(Options{Dir: dir})
			var not *NotAStoreError
			require.ErrorAs(t, err, &not)
			assert.Equal(t, before, below(t, dir))
		})
	}
	for _, name := range []string{blobsDir, modelsDir, stagingDir, leasesDir, wantsDir, lockFile} {
		dir, _ := unmarked(t)
		require.NoError(t, os.RemoveAll(filepath.Join(dir, name)))
		_, err := Open(Options{Dir: dir})
		var not *NotAStoreError
		require.ErrorAs(t, err, &not, name)
	}
}

// Whatever the store does, it leaves the files of others in it.
func TestStoreLeavesTheFilesOfOthersInIt(t *testing.T) {
	others := map[string]string{
		"README": "x", "blobs/sha256-x": "x", "blobs/x/y": "x", "models/mine/x": "x", "staging/mine/x": "x", "leases/x": "x", "wants/x": "x", "kept/x": "x",
		"models/" + strings.Repeat("a", 32) + "/x":           "x", // no version
		"hub/version.txt":                                    "1",
		"hub/models--org--other/blobs/abc":                   "x",
		"hub/models--org--other/refs/main":                   "c1",
		"hub/models--org--other/snapshots/c1/a":              "->../../blobs/abc",
		"hub/models--org--name/blobs/abc":                    "x",
		"hub/models--org--name/blobs/abc.incomplete":         "x",
		"hub/models--org--name/snapshots/c0ffee/other":       "->../../blobs/abc",
		"hub/models--org--name/snapshots/later/other":        "->../../blobs/abc",
		"hub/models--org--name/refs/later":                   "later",
		"hub/models--org--name/refs/a/b":                     "later",
		"hub/models--org--begun/blobs/":                      "", // a download that has just begun
		"hub/models--org--hostile/blobs":                     "->../../blobs",
		"hub/models--org--hostile/out":                       "->../..",
		"hub/models--org--name/.no_exist/c0ffee/config.yaml": "",
	}
	for name, earlier := range map[string]bool{"a store": false, "a store of an earlier release": true} {
		t.Run(name, func(t *testing.T) {
			dir, v := unmarked(t)
			if !earlier {
				require.NoError(t, os.RemoveAll(filepath.Join(dir, hubDir)))
				showInHub(t, dir, v, "main", true)
			}
			require.NoError(t, Mark(dir))
			fill(t, dir, others)
			fill(t, dir, map[string]string{"hub/models--org--hostile/.hotseat-files": `["../../README", "/README", "blobs/sha256-x", "out/README"]`})
			for _, name := range []string{"added", "sub/added"} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, modelsDir, v.Key, filesDir, name), []byte("x"), 0o644))
			}
			s, err := Open(Options{Dir: dir, Limit: 20, Retention: LRU})
			require.NoError(t, err)
			require.NoError(t, user(t, s, "u").Release("instance a"))
			f, err := s.Admit(first(manifest("x://large", "1", map[string]string{"a": strings.Repeat("x", 20)})), Want{})
			require.NoError(t, err)
			assert.Len(t, f.Evicted, 1)
			require.NoError(t, f.GiveUp(true))
			require.NoError(t, s.Close())
			reopen(t, dir)
			has := below(t, dir)
			for name, text := range others {
				if strings.HasPrefix(name, "models/aaaa") {
					name = strings.Replace(name, "models", "kept", 1)
				}
				assert.Contains(t, has, name)
				assert.Equal(t, text, has[name], name)
			}
			for _, name := range []string{"added", "sub/added"} {
				assert.Equal(t, "x", has[filepath.Join(keptDir, v.Key, filesDir, name)], name)
			}
			for _, f := range v.Manifest.Files { // the store's own go; without a list, they may be the client's, which has written there
				for _, name := range []string{"snapshots/c0ffee/" + f.Path, "blobs/" + f.SHA256} {
					_, stays := has["hub/models--org--name/"+name]
					assert.Equal(t, earlier, stays, name)
				}
			}
			assert.Equal(t, "c0ffee", has["hub/models--org--name/refs/main"], "the client has a file of that commit")
		})
	}
}

func reopen(t *testing.T, dir string) {
	t.Helper()
	s, err := Open(Options{Dir: dir})
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

func first[A, B any](a A, _ B) A { return a }

func TestFilesOfOthersOfOneNameAreAllKept(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	for n, text := range []string{"one", "two", "three"} {
		v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
		fill(t, s.Files(v.Key), map[string]string{"added": text})
		if n == 1 { // a damaged version is replaced, too
			require.NoError(t, os.Remove(filepath.Join(s.Files(v.Key), "config.json")))
			continue
		}
		require.NoError(t, s.Remove(v.Key, ""))
	}
	var texts []string
	for name, text := range below(t, filepath.Join(s.dir, keptDir)) {
		if !strings.HasSuffix(name, "/") {
			texts = append(texts, text)
		}
	}
	assert.ElementsMatch(t, []string{"one", "two", "three"}, texts)
}
