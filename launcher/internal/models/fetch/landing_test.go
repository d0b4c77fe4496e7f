package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/models/modelsource"
	"hotseat.dev/hotseat/spec/fetchapi"
)

// many is a source of many files; one of them it may not have.
type many struct {
	contents [][]byte
	lacks    int
	opened   atomic.Int64
	look     func() // before each is opened
}

func (s *many) Resolve(context.Context) (*fetchapi.Manifest, error) { return nil, nil }

func (s *many) Resumes() bool { return true }

func (s *many) Open(_ context.Context, n int, offset int64) (*modelsource.Stream, error) {
	s.opened.Add(1)
	if s.look != nil {
		s.look()
	}
	if n == s.lacks {
		return nil, errors.New("denied")
	}
	return &modelsource.Stream{ReadCloser: io.NopCloser(bytes.NewReader(s.contents[n][offset:])), Offset: offset, Size: -1}, nil
}

// ofMany makes a fetch, by one stream, of so many files of so many bytes; that of the last has no hash
// in the manifest.
func ofMany(t *testing.T, files, size int) (*Fetch, *many) {
	t.Helper()
	s := &many{lacks: -1}
	o := of(t, &scripted{}, nil).Options
	o.Source, o.Streams, o.Manifest.Files = s, 1, nil
	for n := range files {
		content := bytes.Repeat(fmt.Appendf(nil, "%07d\n", n), size/8)
		s.contents = append(s.contents, content)
		o.Manifest.Files = append(o.Manifest.Files, fetchapi.File{Path: fmt.Sprint(n), Size: int64(len(content)), SHA256: hashOf(content)})
	}
	o.Manifest.Files[files-1].SHA256 = ""
	return New(o), s
}

// whole are the files that have their names, by their hashes; parts how many have not.
func whole(t *testing.T, f *Fetch) (names map[string]bool, parts int) {
	t.Helper()
	entries, err := os.ReadDir(f.Staging)
	require.NoError(t, err)
	names = map[string]bool{}
	for _, e := range entries {
		switch {
		case strings.HasPrefix(e.Name(), "part-"):
			parts++
		case e.Name() != hashesFile:
			names[e.Name()] = true
		}
	}
	return names, parts
}

func TestShortFilesGetTheirNamesTogetherOnceTheyAreOnTheDisk(t *testing.T) {
	for name, tt := range map[string]struct {
		files, size int
		each        bool // nothing brings the whole file system to the disk
	}{
		"few":                      {files: fewFiles, size: 8},
		"many":                     {files: fewFiles + 1, size: 8},
		"more than half a chunk":   {files: 20, size: short / 8},
		"more than may gather":     {files: manyFiles + 1, size: 8},
		"many, each synced itself": {files: 40, size: 8, each: true},
		"as long as short ones":    {files: 3, size: short},
	} {
		t.Run(name, func(t *testing.T) {
			f, s := ofMany(t, tt.files, tt.size)
			most := 0
			s.look = func() {
				if s.opened.Load()%8 == 0 && tt.files < manyFiles {
					_, parts := whole(t, f)
					most = max(most, parts)
				}
				if tt.each && s.opened.Load() == 1 { // before any has come
					f.landing.together = false
				}
			}
			m, err := f.Run(t.Context())
			require.NoError(t, err)
			names, parts := whole(t, f)
			assert.Zero(t, parts)
			assert.LessOrEqual(t, most*tt.size, Chunk)
			for n, content := range s.contents {
				assert.Equal(t, hashOf(content), m.Files[n].SHA256)
				assert.True(t, names[hashOf(content)])
				got, err := os.ReadFile(filepath.Join(f.Staging, hashOf(content)))
				require.NoError(t, err)
				assert.True(t, bytes.Equal(content, got))
			}
		})
	}
}

func TestShortFilesThatHaveComeAreNotFetchedAgainWhenAnotherCannotBe(t *testing.T) {
	f, s := ofMany(t, 40, 8)
	s.lacks = 39
	_, err := f.Run(t.Context())
	require.ErrorContains(t, err, "denied")
	names, _ := whole(t, f)
	assert.Len(t, names, int(s.opened.Swap(0))-1)
	s.lacks = -1
	_, err = New(f.Options).Run(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 40-len(names), s.opened.Load())
}

// Until it is surely on the disk, a file that has come is as good as none.
func TestAShortFileThatHasNoNameYetIsFetchedAnew(t *testing.T) {
	f, s := ofMany(t, 3, 8)
	require.NoError(t, os.WriteFile(filepath.Join(f.Staging, partName("1")), make([]byte, 8), 0o600))
	_, err := f.Run(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 3, s.opened.Load())
	_, parts := whole(t, f)
	assert.Zero(t, parts)
}

func TestALineOfHashesThatIsTornCostsItsFileAlone(t *testing.T) {
	f, s := ofMany(t, 3, 8)
	for n := range f.Manifest.Files {
		f.Manifest.Files[n].SHA256 = ""
	}
	_, err := f.Run(t.Context())
	require.NoError(t, err)
	hashes := filepath.Join(f.Staging, hashesFile)
	info, err := os.Stat(hashes)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(hashes, info.Size()-5))
	s.opened.Store(0)
	for _, opened := range []int64{1, 1} { // its line is torn, then joined to the next
		_, err = New(f.Options).Run(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, opened, s.opened.Swap(0))
	}
	require.NoError(t, DropParts(f.Staging))
	_, err = New(f.Options).Run(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 3, s.opened.Load())
}
