package compiled

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Another user of the store may put links into it, before the cache is opened and later.
func TestLinkInACompileCacheIsNotFollowed(t *testing.T) {
	for name, c := range map[string]struct{ isFile, harmless bool }{
		"compiled":                      {},
		"compiled/KEY":                  {},
		"compiled/KEY/" + kindFile:      {isFile: true},
		"compiled/KEY/" + lockFile:      {isFile: true},
		"compiled/KEY/" + cacheDir:      {},
		"compiled/KEY/" + startedDir:    {},
		"compiled/KEY/started/" + note:  {isFile: true, harmless: true},
		"compiled/KEY/incoming":         {harmless: true},
		"compiled/" + trashPrefix + "a": {harmless: true},
	} {
		for _, opened := range []bool{false, true} {
			t.Run(name+map[bool]string{false: ", before it is opened", true: ", while it is open"}[opened], func(t *testing.T) {
				store, victim := t.TempDir(), t.TempDir()
				long := time.Now().Add(-2 * trashAge)
				for _, file := range []string{"precious", trashPrefix + "b/precious", "incoming/precious"} {
					path := filepath.Join(victim, file)
					require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
					require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
				}
				require.NoError(t, os.Chtimes(filepath.Join(victim, trashPrefix+"b"), long, long))
				require.NoError(t, os.Chtimes(filepath.Join(victim, "precious"), long, long))
				before := below(t, victim)
				o := Options{Dir: filepath.Join(store, "compiled"), Kind: h100, Limit: 1, Starting: func() bool { return false }}
				link := func() {
					path, target := filepath.Join(store, strings.Replace(name, "KEY", keyOf(h100), 1)), victim
					if c.isFile {
						target = filepath.Join(victim, "precious")
					}
					require.NoError(t, os.RemoveAll(path))
					require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
					require.NoError(t, os.Symlink(target, path))
				}
				if !opened {
					link()
				}
				cache, err := Open(o)
				if !opened && !c.harmless {
					require.ErrorContains(t, err, "if it is a link, the launcher does not follow it; find out who made it, and remove it")
					assert.Equal(t, before, below(t, victim))
					return
				}
				require.NoError(t, err)
				if opened {
					link()
				}
				_ = cache.Note(note) // each may fail
				_, _, _ = cache.Prune()
				_, _ = cache.Remove(keyOf(h100))
				require.NoError(t, cache.Close())
				assert.Equal(t, before, below(t, victim))
			})
		}
	}
}

// below returns the names, times and texts of all files below a folder.
func below(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			all[path] = ""
			return err
		}
		text, err := os.ReadFile(path)
		all[path] = info.ModTime().String() + string(text)
		return err
	}))
	return all
}

func TestCompileCacheThatAllMayChangeIsRefused(t *testing.T) {
	for name, at := range map[string]string{"the store": "", "the folder": "compiled", "the own cache": "compiled/" + keyOf(h100)} {
		t.Run(name, func(t *testing.T) {
			store := t.TempDir()
			o := Options{Dir: filepath.Join(store, "compiled"), Kind: h100, Starting: func() bool { return false }}
			cache, err := Open(o)
			require.NoError(t, err)
			require.NoError(t, cache.Close())
			path := filepath.Join(store, at)
			require.NoError(t, os.Chmod(path, 0o777))
			_, err = Open(o)
			require.ErrorContains(t, err, "(mode 0777), and could put code there that engines would run; run: chmod o-w "+path)
			require.NoError(t, os.Chmod(path, 0o777|os.ModeSticky))
			cache, err = Open(o)
			require.NoError(t, err)
			require.NoError(t, cache.Close())
			require.NoError(t, os.Chmod(path, 0o777))
			t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
			cache, err = Open(o)
			require.NoError(t, err, "the kubelet gives everybody the right to write to an emptyDir")
			require.NoError(t, cache.Close())
		})
	}
}

// Engines run what is in a cache.
func TestCompileCacheOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("only root can give a folder away; so nothing is tested here")
		return
	}
	for name, at := range map[string]string{"the store": "", "the folder": "compiled", "the own cache": "compiled/" + keyOf(h100), "its files": "compiled/" + keyOf(h100) + "/" + cacheDir} {
		t.Run(name, func(t *testing.T) {
			store := t.TempDir()
			o := Options{Dir: filepath.Join(store, "compiled"), Kind: h100, Starting: func() bool { return false }}
			cache, err := Open(o)
			require.NoError(t, err)
			require.NoError(t, cache.Close())
			require.NoError(t, os.Chown(filepath.Join(store, at), 65534, 65534))
			_, err = Open(o)
			require.ErrorContains(t, err, "belongs to user 65534, whose code engines would run as user 0")
			t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
			cache, err = Open(o)
			if at != "" {
				require.Error(t, err)
				return
			}
			require.NoError(t, err, "a volume of a Pod may be of anybody")
			require.NoError(t, cache.Close())
		})
	}
}
