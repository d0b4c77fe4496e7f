package fetch

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/models/modelsource"
	"hotseat.dev/hotseat/spec/fetchapi"
)

// looked is a source whose one file is looked at by a test while it is read.
type looked struct {
	scripted
	look func(read int64)

	open, most atomic.Int64 // streams
}

func (s *looked) Open(_ context.Context, _ int, offset int64) (*modelsource.Stream, error) {
	n := s.open.Add(1)
	for most := s.most.Load(); n > most && !s.most.CompareAndSwap(most, n); {
		most = s.most.Load()
	}
	return &modelsource.Stream{ReadCloser: &reader{Reader: bytes.NewReader(s.content[offset:]), of: s}, Offset: offset, Size: -1}, nil
}

type reader struct {
	*bytes.Reader
	of *looked
}

func (r *reader) Read(b []byte) (int, error) {
	if r.of.look != nil {
		r.of.look(r.Size() - int64(r.Len()))
	}
	return r.Reader.Read(b)
}

func (r *reader) Close() error {
	r.of.open.Add(-1)
	return nil
}

func TestOfAFileAtMostAChunkIsWrittenAndNotNoted(t *testing.T) {
	big := make([]byte, 3*Chunk+Chunk/4)
	_, _ = rand.Read(big)
	s := &looked{scripted: scripted{content: big}}
	f := of(t, &s.scripted, big)
	f.Source = s
	var most, notes int64
	s.look = func(read int64) {
		noted := f.part(0).noted()
		most, notes = max(most, read-noted), max(notes, noted)
	}
	m, err := f.Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, hashOf(big), m.Files[0].SHA256)
	assert.LessOrEqual(t, most, int64(Chunk+2*f.bufferSize()), "what is read and not written yet is no more than two buffers")
	assert.NotZero(t, notes)
}

func TestNoMoreFilesAreReceivedAtOnceThanThereAreStreams(t *testing.T) {
	s := &looked{scripted: scripted{content: content}}
	f := of(t, &s.scripted, content)
	f.Source, f.Manifest.Files = s, nil
	for n := range 40 {
		f.Manifest.Files = append(f.Manifest.Files, fetchapi.File{Path: fmt.Sprint(n), Size: int64(len(content))})
	}
	_, err := f.Run(t.Context())
	require.NoError(t, err)
	assert.LessOrEqual(t, s.most.Load(), int64(f.Streams))
	assert.Positive(t, s.most.Load())
}
