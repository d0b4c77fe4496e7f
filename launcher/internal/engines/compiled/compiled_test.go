package compiled

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/smalldisk"
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

func TestACacheIsCarriedToAnotherNodeOldestFirst(t *testing.T) {
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
	assert.Equal(t, []string{"kind.json", "cache/torch_compile_cache/a/z/code.so", "cache/torch_compile_cache/a/index", "started/" + note, "manifest.json"}, names)

	to.write(t, "torch_compile_cache/a/index", "of its own", 3)
	one, err := to.Import(to.key, bytes.NewReader(stream))
	require.NoError(t, err)
	assert.Equal(t, 1, one.Starts)
	assert.True(t, to.Has(note))
	assert.Equal(t, "code", to.read(t, "torch_compile_cache/a/z/code.so"))
	assert.Equal(t, "of its own", to.read(t, "torch_compile_cache/a/index"), "an engine may have it open")
	assert.NoDirExists(t, to.path(to.key, incomingDir))
	again := exported(t, to)
	assert.Len(t, again, len(stream), "times and all")
}

// stream writes a tar stream of files, with a manifest unless one of them is that.
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

// The hash of "x".
const ofX = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"

func TestAStreamThatNoLauncherHasExportedIsRefusedAndNothingIsPublished(t *testing.T) {
	const x = "cache/x"
	manifest := file(manifestFile, `{"cache/x": "`+ofX+`"}`)
	for name, c := range map[string]struct {
		stream []byte
		says   string
		code   string
	}{
		"no tar stream":               {[]byte("hello"), "it ends before its manifest", launcherapi.CodeInvalid},
		"nothing":                     {nil, "it ends before its manifest", launcherapi.CodeInvalid},
		"no kind":                     {stream(t, file(x, "x"), manifest), `it begins with "cache/x"`, launcherapi.CodeInvalid},
		"of another kind":             {stream(t, kindOf(versionOf("vllm 0.29.0")), file(x, "x"), manifest), "and not {\"engine\":\"vllm 0.29.0\"", launcherapi.CodeConflict},
		"cut off":                     {stream(t, kindOf(h100), file(x, "x"), manifest)[:1600], "it ends before its manifest", launcherapi.CodeInvalid},
		"without its manifest":        {stream(t, kindOf(h100), file(x, "x")), "it ends before its manifest", launcherapi.CodeInvalid},
		"a byte is wrong":             {stream(t, kindOf(h100), file(x, "y"), manifest), "cache/x has other content than its manifest says", launcherapi.CodeInvalid},
		"a file is missing":           {stream(t, kindOf(h100), manifest), "0 files of 1 have come", launcherapi.CodeInvalid},
		"a file too many":             {stream(t, kindOf(h100), file(x, "x"), file("cache/y", "y"), manifest), "cache/y has other content than its manifest says", launcherapi.CodeInvalid},
		"a file twice":                {stream(t, kindOf(h100), file(x, "x"), file(x, "x"), manifest), "comes twice", launcherapi.CodeInvalid},
		"something after the end":     {stream(t, kindOf(h100), file(x, "x"), manifest, file("cache/y", "y")), "something follows", launcherapi.CodeInvalid},
		"a way out":                   {stream(t, kindOf(h100), file("cache/../../x", "x"), manifest), "is not the name of a file of a cache", launcherapi.CodeInvalid},
		"a name that is too long":     {stream(t, kindOf(h100), file("cache/"+strings.Repeat("x/", 600)+"x", "x"), manifest), "is not the name of a file of a cache", launcherapi.CodeInvalid},
		"an absolute path":            {stream(t, kindOf(h100), file("/etc/x", "x"), manifest), "is not the name of a file of a cache", launcherapi.CodeInvalid},
		"beside the cache":            {stream(t, kindOf(h100), file("kind.json", "x"), manifest), "is not the name of a file of a cache", launcherapi.CodeInvalid},
		"a note that is none":         {stream(t, kindOf(h100), file("started/x", "x"), manifest), "is not the name of a file of a cache", launcherapi.CodeInvalid},
		"a link":                      {stream(t, kindOf(h100), &tar.Header{Name: x, Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, manifest), "is not a regular file", launcherapi.CodeInvalid},
		"a hard link":                 {stream(t, kindOf(h100), &tar.Header{Name: x, Typeflag: tar.TypeLink, Linkname: "kind.json"}, manifest), "is not a regular file", launcherapi.CodeInvalid},
		"a device":                    {stream(t, kindOf(h100), &tar.Header{Name: x, Typeflag: tar.TypeChar}, manifest), "is not a regular file", launcherapi.CodeInvalid},
		"a folder in place of a file": {stream(t, kindOf(h100), &tar.Header{Name: x, Typeflag: tar.TypeDir}, manifest), "is not a regular file", launcherapi.CodeInvalid},
		"more than there is room for": {stream(t, kindOf(h100), file(x, strings.Repeat("x", 2001)), manifest), "there is no room", launcherapi.CodeStorage},
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
			assert.NoDirExists(t, to.path(to.key, incomingDir))
		})
	}
	to := open(t, t.TempDir(), h100)
	_, err := to.Import(to.key, bytes.NewReader(stream(t, kindOf(h100), file(x, "x"), manifest)))
	require.NoError(t, err, "as it should be")
	assert.Equal(t, "x", to.read(t, "x"))
}

func TestALinkThatAnEngineHasMadeLeadsNoFileOutOfTheCache(t *testing.T) {
	to, outside := open(t, t.TempDir(), h100), t.TempDir()
	require.NoError(t, os.Symlink(outside, to.path(to.key, cacheDir, "d")))
	_, err := to.Import(to.key, bytes.NewReader(stream(t, kindOf(h100), file("cache/d/x", "x"), file(manifestFile, `{"cache/d/x": "`+ofX+`"}`))))
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

func TestAFileThatChangesWhileItIsCarriedBreaksTheStream(t *testing.T) {
	c := open(t, t.TempDir(), h100)
	c.write(t, "x", "x", 0)
	write, err := c.Export(c.key)
	require.NoError(t, err)
	c.write(t, "x", "other", 1)
	assert.ErrorContains(t, write(io.Discard), "cannot export cache/x: it was changed during the export")
}
