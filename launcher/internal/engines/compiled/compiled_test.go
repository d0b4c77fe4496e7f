package compiled

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/smalldisk"
)

var h100 = launcherapi.CompileKind{Engine: "torch 2.13.0, vllm 0.30.0", GPUs: []string{"H100"}, CPU: "amd64"}

// versionOf is another kind: of an engine of that version.
func versionOf(version string) launcherapi.CompileKind {
	other := h100
	other.Engine = version
	return other
}

func open(t *testing.T, dir string, kind launcherapi.CompileKind, change ...func(*Options)) *Cache {
	t.Helper()
	o := Options{Dir: dir, Kind: kind, Starting: func() bool { return false }}
	for _, c := range change {
		c(&o)
	}
	c, err := Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// write has an engine keep a file, at that minute.
func (c *Cache) write(t *testing.T, name, content string, minute int) {
	t.Helper()
	path := c.path(c.key, cacheDir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	when := time.Date(2026, 11, 1, 0, minute, 0, 0, time.UTC)
	require.NoError(t, os.Chtimes(path, when, when))
}

func (c *Cache) read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(c.path(c.key, cacheDir, name))
	require.NoError(t, err)
	return string(text)
}

func keys(t *testing.T, c *Cache) []string {
	t.Helper()
	list, err := c.List()
	require.NoError(t, err)
	var all []string
	for _, one := range list.Caches {
		all = append(all, one.Key)
	}
	return all
}

func exported(t *testing.T, c *Cache) []byte {
	t.Helper()
	write, err := c.Export(c.key)
	require.NoError(t, err)
	var stream bytes.Buffer
	require.NoError(t, write(&stream))
	return stream.Bytes()
}

var note = strings.Repeat("a1", 32)

func TestWhatAnEngineHasStartedWithIsKnownToTheNextLauncher(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir, h100)
	assert.False(t, c.Has(note))
	require.NoError(t, c.Note(note))
	require.NoError(t, c.Close())
	assert.True(t, open(t, dir, h100).Has(note))
	assert.False(t, open(t, dir, versionOf("vllm 0.31.0")).Has(note), "it would compile anew")
}

func TestAnEnvironmentKeepsWhatItSays(t *testing.T) {
	c := open(t, t.TempDir(), h100)
	root := c.path(c.key, cacheDir)
	env := c.AddTo([]string{"A=b", "TRITON_CACHE_DIR=/mine"})
	assert.Equal(t, []string{"A=b", "TRITON_CACHE_DIR=/mine", "VLLM_CACHE_ROOT=" + root, "TORCHINDUCTOR_CACHE_DIR=" + root + "/torchinductor"}, env)
	assert.True(t, c.Keeps(env))
	assert.False(t, c.Keeps(append(env, "VLLM_DISABLE_COMPILE_CACHE=1")))
	assert.False(t, c.Keeps(c.AddTo([]string{"VLLM_CACHE_ROOT=/mine"})))
	assert.Equal(t, []string{"A=b"}, (*Cache)(nil).AddTo([]string{"A=b"}))
}

func TestACacheIsCopiedToAnotherNode(t *testing.T) {
	from, to := open(t, t.TempDir(), h100), open(t, t.TempDir(), h100)
	from.write(t, "torch_compile_cache/a/index", "leads to code", 2)
	from.write(t, "torch_compile_cache/a/z/code.so", "code", 1)
	require.NoError(t, os.Symlink("/etc/passwd", from.path(from.key, cacheDir, "link")))
	require.NoError(t, from.Note(note))
	stream := exported(t, from)
	var names []string
	for in := tar.NewReader(bytes.NewReader(stream)); ; {
		head, err := in.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		names = append(names, head.Name)
	}
	assert.Equal(t, []string{"cache/torch_compile_cache/a/index", "cache/torch_compile_cache/a/z/code.so", "started/" + note, "kind.json"}, names)

	to.write(t, "torch_compile_cache/a/index", "of its own", 3)
	one, err := to.Import(to.key, bytes.NewReader(stream))
	require.NoError(t, err)
	assert.Equal(t, 1, one.Starts)
	assert.True(t, to.Has(note))
	assert.Equal(t, "code", to.read(t, "torch_compile_cache/a/z/code.so"))
	assert.Equal(t, "of its own", to.read(t, "torch_compile_cache/a/index"), "an engine may have it open")
	info, err := os.Stat(to.path(to.key, cacheDir, "torch_compile_cache/a/z/code.so"))
	require.NoError(t, err)
	assert.Equal(t, time.Date(2026, 11, 1, 0, 1, 0, 0, time.UTC), info.ModTime().UTC())
	assert.Empty(t, trash(t, to))
}

func TestAnExportThatWasCutOffIsRefusedWhereverThatWas(t *testing.T) {
	from, to := open(t, t.TempDir(), h100), open(t, t.TempDir(), h100)
	from.write(t, "a/x", strings.Repeat("x", 600), 1)
	from.write(t, "a/y", "y", 2)
	require.NoError(t, from.Note(note))
	whole := exported(t, from)
	const block, trailer = 512, 2 * 512
	end := len(whole) - trailer
	for cut := 0; cut < end; cut += block {
		_, err := to.Import(to.key, bytes.NewReader(whole[:cut]))
		require.Error(t, err, "after %d of %d bytes", cut, len(whole))
		assert.Equal(t, launcherapi.CodeInvalid, launcher.CodeOf(err), err)
		assert.False(t, to.Has(note))
	}
	one, err := to.Import(to.key, bytes.NewReader(whole[:end]))
	require.NoError(t, err, "all files are there")
	assert.Equal(t, 2, one.Files)
}

// upTo says how long a stream is up to a file.
func upTo(t *testing.T, whole []byte, name string) int {
	t.Helper()
	at := bytes.Index(whole, []byte(name+"\x00"))
	require.Positive(t, at)
	return at
}

// then is a place in a stream where something happens before the rest is read.
type then func()

func (f then) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}

func TestAnImportThatTakesLongIsNotTrash(t *testing.T) {
	dir := t.TempDir()
	to, other := open(t, dir, h100), open(t, dir, versionOf("vllm 0.29.0"))
	whole := stream(t, kindOf(h100), file("cache/x", "x"), file("cache/y", "y"), file("cache/z", "z"))
	y, z := upTo(t, whole, "cache/y"), upTo(t, whole, "cache/z")
	_, err := to.Import(to.key, io.MultiReader(
		bytes.NewReader(whole[:y]),
		then(func() {
			long := time.Now().Add(-2 * trashAge)
			require.Len(t, trash(t, to), 1)
			require.NoError(t, os.Chtimes(trash(t, to)[0], long, long))
		}),
		bytes.NewReader(whole[y:z]),
		then(func() {
			_, _, err := other.Prune()
			require.NoError(t, err)
		}),
		bytes.NewReader(whole[z:]),
	))
	require.NoError(t, err)
	assert.Equal(t, "xyz", to.read(t, "x")+to.read(t, "y")+to.read(t, "z"))
}

func TestOneArchiveIsImportedAtATime(t *testing.T) {
	to := open(t, t.TempDir(), h100)
	whole := stream(t, kindOf(h100), file("cache/x", "x"))
	var meanwhile error
	_, err := to.Import(to.key, io.MultiReader(then(func() {
		_, meanwhile = to.Import(to.key, bytes.NewReader(whole))
	}), bytes.NewReader(whole)))
	require.NoError(t, err)
	assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(meanwhile), meanwhile)
	_, err = to.Import(to.key, bytes.NewReader(whole))
	require.NoError(t, err, "the first is done")
}

func TestWhatAnImportOfAnEarlierReleaseHasLeftIsRemoved(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir, h100)
	c.write(t, "x", "x", 0)
	folder, lock := c.path(c.key, "incoming"), c.path(c.key, "incoming.lock")
	require.NoError(t, os.MkdirAll(filepath.Join(folder, cacheDir), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, cacheDir, "y"), nil, 0o644))
	require.NoError(t, os.WriteFile(lock, nil, 0o644))
	require.NoError(t, c.Close())
	open(t, dir, versionOf("vllm 0.29.0"))
	assert.FileExists(t, lock, "it is not that of the own cache")
	assert.Equal(t, "x", open(t, dir, h100).read(t, "x"))
	assert.NoDirExists(t, folder)
	assert.NoFileExists(t, lock)
}

func TestPruneRemovesItsOwnOldTrashAlone(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir, h100)
	long := time.Now().Add(-2 * trashAge)
	own := "trash-ABCDEFGHIJKLMNOPQRSTUVWX27"
	others := []string{"trash-2024", "trash-", "trash-abcdefghijklmnopqrstuvwx27", own + "X", "xtrash-"}
	for _, name := range append(others, own) {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name, "x"), 0o755))
		require.NoError(t, os.Chtimes(filepath.Join(dir, name), long, long))
	}
	file := "trash-ZZZZZZZZZZZZZZZZZZZZZZZZZZ"
	require.NoError(t, os.WriteFile(filepath.Join(dir, file), nil, 0o644))
	require.NoError(t, os.Chtimes(filepath.Join(dir, file), long, long))
	_, _, err := c.Prune()
	require.NoError(t, err)
	assert.NoDirExists(t, filepath.Join(dir, own))
	assert.FileExists(t, filepath.Join(dir, file))
	for _, name := range others {
		assert.DirExists(t, filepath.Join(dir, name, "x"))
	}
}

// trash lists what is being unpacked or thrown away.
func trash(t *testing.T, c *Cache) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(c.opts.Dir, trashPrefix+"*"))
	require.NoError(t, err)
	return all
}

func TestAnArchiveOfTheFolderIsImported(t *testing.T) {
	from := open(t, t.TempDir(), h100)
	from.write(t, "a/x", "x", 1)
	require.NoError(t, from.Note(note))
	var whole bytes.Buffer
	w := tar.NewWriter(&whole)
	require.NoError(t, w.AddFS(os.DirFS(from.path(from.key)))) // with folders, and the lock
	require.NoError(t, w.Close())
	for name, archive := range map[string][]byte{
		"as it is": whole.Bytes(),
		"of .":     stream(t, file("./cache/a/x", "x"), &tar.Header{Name: "./", Typeflag: tar.TypeDir}, kindOf(h100), file("./started/"+note, "")),
		// An earlier release added the hash of each file.
		"of an earlier release": stream(t, kindOf(h100), file("cache/a/x", "x"), file("started/"+note, ""), file("manifest.json", "{}")),
	} {
		t.Run(name, func(t *testing.T) {
			to := open(t, t.TempDir(), h100)
			_, err := to.Import(to.key, bytes.NewReader(archive))
			require.NoError(t, err)
			assert.Equal(t, "x", to.read(t, "a/x"))
			assert.True(t, to.Has(note))
			assert.NoFileExists(t, to.path(to.key, "manifest.json"))
		})
	}
}

func TestImportedFilesComeBeforeWhatLeadsToThem(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 11, 1, 0, minute, 0, 0, time.UTC) }
	files := []entry{{"started/" + note, at(1)}, {"cache/a/index", at(3)}, {"cache/z/code.so", at(2)}}
	slices.SortStableFunc(files, inOrder)
	assert.Equal(t, []entry{{"cache/z/code.so", at(2)}, {"cache/a/index", at(3)}, {"started/" + note, at(1)}}, files)
}

// stream writes a tar stream of files.
func stream(t *testing.T, files ...*tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, given := range files {
		head := *given
		text := head.Uname // what it has in it
		head.Uname, head.Size = "", int64(len(text))
		if head.Typeflag == 0 {
			head.Typeflag = tar.TypeReg
		} else {
			text, head.Size = "", 0
		}
		require.NoError(t, w.WriteHeader(&head))
		_, err := w.Write([]byte(text))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

func file(name, content string) *tar.Header {
	return &tar.Header{Name: name, Mode: 0o644, Uname: content}
}

func kindOf(k launcherapi.CompileKind) *tar.Header {
	text, _ := json.Marshal(k)
	return file(kindFile, string(text))
}

func TestAnArchiveOfNoCompileCacheIsRefusedWhole(t *testing.T) {
	const x = "cache/x"
	for name, c := range map[string]struct {
		stream []byte
		says   string
		code   string
	}{
		"no archive":                  {[]byte("hello"), "it cannot be read to its end", launcherapi.CodeInvalid},
		"nothing":                     {nil, "it has no kind.json", launcherapi.CodeInvalid},
		"no kind":                     {stream(t, file(x, "x")), "it has no kind.json", launcherapi.CodeInvalid},
		"a kind that is none":         {stream(t, file(kindFile, "x"), file(x, "x")), "its kind.json cannot be read", launcherapi.CodeInvalid},
		"of another kind":             {stream(t, kindOf(versionOf("vllm 0.29.0")), file(x, "x")), "and not {\"engine\":\"vllm 0.29.0\"", launcherapi.CodeConflict},
		"of another kind, said last":  {stream(t, file(x, "x"), kindOf(versionOf("vllm 0.29.0"))), "and not {\"engine\":\"vllm 0.29.0\"", launcherapi.CodeConflict},
		"cut off in a file":           {stream(t, kindOf(h100), file(x, strings.Repeat("x", 1000)))[:2000], "cache/x", launcherapi.CodeInvalid},
		"cut off in a header":         {stream(t, kindOf(h100), file(x, "x"), file("cache/y", "y"))[:2148], "it cannot be read to its end", launcherapi.CodeInvalid},
		"a file twice":                {stream(t, kindOf(h100), file(x, "x"), file(x, "x")), "comes twice", launcherapi.CodeInvalid},
		"a way out":                   {stream(t, kindOf(h100), file(x, "x"), file("cache/../../x", "x")), "is not the name of a file of a cache", launcherapi.CodeInvalid},
		"a name that is too long":     {stream(t, kindOf(h100), file("cache/"+strings.Repeat("x/", 600)+"x", "x")), "is not the name of a file of a cache", launcherapi.CodeInvalid},
		"a note that is none":         {stream(t, kindOf(h100), file(x, "x"), file("started/x", "x")), "is not the name of a file of a cache", launcherapi.CodeInvalid},
		"a link":                      {stream(t, kindOf(h100), file("cache/y", "y"), &tar.Header{Name: x, Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}), "is not a regular file", launcherapi.CodeInvalid},
		"a hard link":                 {stream(t, kindOf(h100), &tar.Header{Name: x, Typeflag: tar.TypeLink, Linkname: "kind.json"}), "is not a regular file", launcherapi.CodeInvalid},
		"a device":                    {stream(t, kindOf(h100), &tar.Header{Name: x, Typeflag: tar.TypeChar}), "is not a regular file", launcherapi.CodeInvalid},
		"more than there is room for": {stream(t, kindOf(h100), file(x, strings.Repeat("x", 2001))), "there is no room", launcherapi.CodeStorage},
	} {
		t.Run(name, func(t *testing.T) {
			to := open(t, t.TempDir(), h100, func(o *Options) { o.Limit = 2000 })
			_, err := to.Import(to.key, bytes.NewReader(c.stream))
			require.Error(t, err)
			assert.Equal(t, c.code, launcher.CodeOf(err), err)
			assert.Contains(t, err.Error(), c.says)
			list, err := to.List()
			require.NoError(t, err)
			assert.Zero(t, list.Caches[0].Files)
			assert.Empty(t, trash(t, to))
		})
	}
	to := open(t, t.TempDir(), h100)
	_, err := to.Import(to.key, bytes.NewReader(stream(t, kindOf(h100), file(x, "x"), file("/etc/x", "x"), file("../x", "x"))))
	require.NoError(t, err)
	assert.Equal(t, "x", to.read(t, "x"))
	list, err := to.List()
	require.NoError(t, err)
	assert.Equal(t, 1, list.Caches[0].Files, "files of no cache are left out")
	assert.NoFileExists(t, filepath.Join(filepath.Dir(to.opts.Dir), "x"))
}

func TestALinkThatAnEngineHasMadeLeadsNoFileOutOfTheCache(t *testing.T) {
	to, outside := open(t, t.TempDir(), h100), t.TempDir()
	require.NoError(t, os.Symlink(outside, to.path(to.key, cacheDir, "d")))
	_, err := to.Import(to.key, bytes.NewReader(stream(t, kindOf(h100), file("cache/d/x", "x"))))
	require.Error(t, err)
	assert.NoFileExists(t, filepath.Join(outside, "x"))
}

func TestWhatGoesWhenThereIsTooMuch(t *testing.T) {
	dir := t.TempDir()
	for n, version := range []string{"oldest", "old", "in use", "own"} {
		c := open(t, dir, versionOf(version))
		c.write(t, "x", strings.Repeat("x", 1000), 0)
		when := time.Date(2026, 11, n+1, 0, 0, 0, 0, time.UTC)
		require.NoError(t, os.Chtimes(c.path(c.key, lockFile), when, when))
		if version != "in use" {
			require.NoError(t, c.Close())
		}
	}
	pruned := func(limit int64) (removed []string, beyond int64) {
		removed, beyond, err := open(t, dir, versionOf("own"), func(o *Options) { o.Limit = limit }).Prune()
		require.NoError(t, err)
		return removed, beyond
	}
	removed, beyond := pruned(0)
	assert.Empty(t, removed, "there is no limit")
	assert.Zero(t, beyond)
	removed, beyond = pruned(3000)
	assert.Equal(t, []string{keyOf(versionOf("oldest"))}, removed)
	assert.Zero(t, beyond)
	removed, beyond = pruned(1000)
	assert.Equal(t, []string{keyOf(versionOf("old"))}, removed, "what is in use stays")
	assert.Positive(t, beyond)
}

func TestACacheIsRemovedUnlessItIsUsed(t *testing.T) {
	dir, starting := t.TempDir(), false
	own := open(t, dir, h100, func(o *Options) { o.Starting = func() bool { return starting } })
	own.write(t, "x", "x", 0)
	require.NoError(t, own.Note(note))
	other := open(t, dir, versionOf("vllm 0.29.0"))

	_, err := own.Remove(other.key)
	assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err), err)
	require.NoError(t, other.Close())
	_, err = own.Remove(other.key)
	require.NoError(t, err)
	for _, key := range []string{other.key, "../" + own.key, "lock", ""} {
		_, err = own.Remove(key)
		assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err), "%s: %v", key, err)
	}

	starting = true
	_, err = own.Remove(own.key)
	assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err), err)
	_, err = own.Export(own.key)
	assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err), err)
	starting = false
	was, err := own.Remove(own.key)
	require.NoError(t, err)
	assert.Equal(t, 1, was.Starts)
	assert.False(t, own.Has(note))
	assert.Equal(t, []string{own.key}, keys(t, own))
	own.write(t, "x", "x", 0)
}

func TestOfAFullDiskACacheIsRemoved(t *testing.T) {
	dir := t.TempDir()
	smalldisk.Mount(t, dir, 50)
	own, other := open(t, dir, h100), open(t, dir, versionOf("vllm 0.29.0"))
	require.NoError(t, other.Close())
	smalldisk.Fill(t, dir)
	_, err := own.Remove(other.key)
	require.NoError(t, err)
	assert.Equal(t, []string{own.key}, keys(t, own))
}
