package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAQuantileIsOneOfTheSamples(t *testing.T) {
	var hundred times
	for n := 100; n > 0; n-- {
		hundred = append(hundred, time.Duration(n))
	}
	assert.EqualValues(t, 51, hundred.p50())
	assert.EqualValues(t, 100, hundred.p99())
	assert.EqualValues(t, 3, times{3, 1, 2}.p99(), "with few samples it is the slowest")
	assert.Zero(t, times(nil).p50())
}

func TestARowIsMetWhenEachOfItsTargetsIs(t *testing.T) {
	ours, bare := times{1e6, 2e6, 9e6}, times{1e6}
	assert.True(t, timed("f", ours, bare, 2*time.Millisecond, 9*time.Millisecond).met)
	assert.False(t, timed("f", ours, bare, time.Millisecond, 9*time.Millisecond).met)
	assert.False(t, timed("f", ours, bare, 2*time.Millisecond, 8*time.Millisecond).met)
	assert.Equal(t, row{
		figure: "f (ms)", samples: 3, ours: "2.00 / 9.00", bare: "1.00 / 1.00", beside: "+1.00 ms", target: "p50 ≤ 2 ms", met: true,
	}, timed("f", ours, bare, 2*time.Millisecond, 0))
}

func TestWhatIsWrittenByHandStaysWhenTheTableIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "doc.md")
	require.NoError(t, os.WriteFile(path, []byte("before\n"+beginMark+"\nold\n"+endMark+"\nafter\n"), 0o600))
	require.NoError(t, rewrite(path, beginMark, "new\n"))
	require.NoError(t, rewrite(path, beginMark, "newer\n"))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "before\n"+beginMark+"\n\nnewer\n\n"+endMark+"\nafter\n", string(data))

	require.NoError(t, os.WriteFile(path, []byte("no marks\n"), 0o600))
	assert.Error(t, rewrite(path, beginMark, "new\n"))
}

func TestTheDocumentHasItsMarks(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", document))
	require.NoError(t, err)
	assert.Contains(t, string(data), beginMark)
	assert.Contains(t, string(data), endMark)
}
