package modelstore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hostile is a store into which another user has put a link, and what the link leads to.
type hostile struct {
	store, victim string
	found         Version // in the store
	next          string  // the key of the version that is fetched next
}

var someProof = strings.Repeat("a1", 32)

var nextFiles = map[string]string{"next.safetensors": "next"}

func makeHostile(t *testing.T) *hostile {
	t.Helper()
	dir := t.TempDir()
	h := &hostile{store: filepath.Join(dir, "store"), victim: filepath.Join(dir, "victim")}
	m, _ := manifest("hf://org/next", "c0ffee", nextFiles)
	h.next = m.Key()
	s, err := Open(Options{Dir: h.store})
	require.NoError(t, err)
	h.found = put(t, s, "hf://org/name", "c0ffee", twoFiles)
	require.NoError(t, s.Close())
	fill(t, s.version(h.found.Key), map[string]string{"files/of-others": "x"})
	fill(t, h.victim, map[string]string{trashPrefix + "a/precious": "x", "precious": "x", markFile: "x", treeDir + "/precious": "x", strings.Repeat("b2", 32): "x", "models--org--name/blobs/abc": "x"})
	for _, name := range []string{"precious", strings.Repeat("b2", 32), "models--org--name/blobs/abc"} { // as the store of an earlier release made them
		require.NoError(t, os.Chtimes(filepath.Join(h.victim, name), blobTime, blobTime))
	}
	return h
}

// link puts a link to the victim, or to a file of it, in the place of a name in the store.
func (h *hostile) link(t *testing.T, name string, isFile bool) {
	t.Helper()
	path, target := filepath.Join(h.store, name), h.victim
	if isFile {
		target = filepath.Join(h.victim, "precious")
	}
	require.NoError(t, os.RemoveAll(path))
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.Symlink(target, path))
}

// check fails the test if the victim was changed.
func (h *hostile) check(t *testing.T, before map[string]string) {
	t.Helper()
	assert.Equal(t, before, below(t, h.victim))
	info, err := os.Lstat(filepath.Join(h.victim, "precious"))
	require.NoError(t, err)
	assert.True(t, info.ModTime().Equal(blobTime), "the time of the file")
}

// add makes files in a store in every way. Errors are right: the test looks at the victim.
func (h *hostile) add(t *testing.T, s *Store) {
	t.Helper()
	u := user(t, s, "x")
	defer u.Close()
	_ = u.Lease(h.found.Key, "instance a")
	_ = u.renew()
	_ = u.ReleaseOthers(func(string) bool { return false })
	_ = u.Release("instance a")
	_ = s.Want(Want{Key: h.found.Key, URI: "hf://org/name", Holder: "somebody"})
	_ = s.RecordProof(someProof, time.Hour)
	m, content := manifest("hf://org/next", "c0ffee", nextFiles)
	if f, err := s.Admit(m, Want{}); err == nil {
		for hash, text := range content {
			_ = s.write(filepath.Join(f.Staging(), hash), []byte(text), 0o600)
		}
		_, _ = f.Publish(m)
		_ = f.GiveUp(true)
	}
}

// clean removes files from a store in every way.
func (h *hostile) clean(s *Store) {
	_ = s.DropProof(someProof)
	_ = s.Verify(h.found.Key)
	_ = s.Remove(h.found.Key, "somebody")
	_ = s.Remove(h.next, "")
	_ = s.repair()
}

func TestLinkInAStoreIsNotFollowed(t *testing.T) {
	for name, c := range map[string]struct {
		isFile  bool
		refused bool // the store is not opened
	}{
		lockFile:                         {isFile: true, refused: true},
		blobsDir:                         {refused: true},
		modelsDir:                        {refused: true},
		keptDir:                          {refused: true},
		stagingDir:                       {refused: true},
		leasesDir:                        {refused: true},
		wantsDir:                         {refused: true},
		ProofsDir:                        {refused: true},
		hubDir:                           {refused: true},
		leasesDir + "/" + leaseLock:      {isFile: true, refused: true},
		leasesDir + "/" + newRecord:      {isFile: true},
		wantsDir + "/" + newRecord:       {isFile: true},
		stagingDir + "/NEXT":             {},
		stagingDir + "/NEXT/" + markFile: {isFile: true},
		modelsDir + "/NEXT":              {},
		ProofsDir + "/" + someProof:      {isFile: true},
		keptDir + "/FOUND":               {},
	} {
		t.Run(name, func(t *testing.T) {
			for _, open := range []bool{false, true} {
				h := makeHostile(t)
				name := strings.NewReplacer("NEXT", h.next, "FOUND", h.found.Key).Replace(name)
				before := below(t, h.victim)
				if !open {
					h.link(t, name, c.isFile)
				}
				s, err := Open(Options{Dir: h.store})
				if !open && c.refused {
					var bad *LayoutError
					require.ErrorAs(t, err, &bad)
					require.ErrorContains(t, err, name+" in it is a link, and the store follows none; find out who made it, and remove it, or move what it leads to into its place")
					h.check(t, before)
					continue
				}
				require.NoError(t, err)
				if open {
					h.link(t, name, c.isFile)
				}
				h.add(t, s)
				h.check(t, before)
				h.clean(s)
				h.check(t, before)
				require.NoError(t, s.Close())
			}
		})
	}
}

// Another user may put another folder in the place of the store while it is open.
func TestOpenStoreChangesNoOtherFolder(t *testing.T) {
	h := makeHostile(t)
	s := open(t, Options{Dir: h.store})
	moved := h.store + ".moved"
	require.NoError(t, os.Rename(h.store, moved))
	fill(t, h.victim, map[string]string{stagingDir + "/" + trashPrefix + "a/precious": "x", "blobs/": "", "models/": "", "wants/": "", "kept/": ""})
	require.NoError(t, os.Symlink(h.victim, h.store))
	before := below(t, h.victim)
	_ = s.Want(Want{Key: h.found.Key, URI: "hf://org/name", Holder: "somebody"})
	s.emptyTrash()
	assert.Equal(t, before, below(t, h.victim))
}

func TestStoresThatUsersShareAreOpened(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, dir string) (path string){
		"behind a link of its administrator": func(t *testing.T, dir string) string {
			t.Helper()
			require.NoError(t, os.Symlink(dir, dir+".link"))
			return dir + ".link"
		},
		"of a group": func(t *testing.T, dir string) string {
			t.Helper()
			require.NoError(t, os.Chmod(dir, 0o775|os.ModeSetgid))
			return dir
		},
		"of everybody": func(t *testing.T, dir string) string {
			t.Helper()
			require.NoError(t, os.Chmod(dir, 0o777))
			return dir
		},
		"of another user": func(t *testing.T, dir string) string {
			t.Helper()
			if os.Geteuid() != 0 { // nobody else can give a folder away
				return dir
			}
			for _, name := range []string{"", blobsDir, modelsDir, stagingDir, leasesDir, wantsDir, lockFile, storeMark} {
				require.NoError(t, os.Chown(filepath.Join(dir, name), 65534, 65534))
			}
			return dir
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := makeHostile(t)
			path := prepare(t, h.store)
			s := open(t, Options{Dir: path})
			u := user(t, s, "x")
			require.NoError(t, u.Lease(h.found.Key, "instance a"))
			require.NoError(t, u.Close())
			v := put(t, s, "hf://org/next", "c0ffee", nextFiles)
			require.NoError(t, s.Remove(v.Key, ""))
			assert.Equal(t, name == "of everybody", Exposed(path) != "", Exposed(path))
		})
	}
}

func TestStickyStoreIsNotExposed(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o777|os.ModeSticky))
	assert.Empty(t, Exposed(dir))
	require.NoError(t, os.Chmod(dir, 0o777))
	assert.Contains(t, Exposed(dir), "(mode 0777)")
	assert.Empty(t, Exposed(filepath.Join(dir, "missing")))
}
