package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// FuzzParse reads any bytes as a journal. Whatever they are, what is read is
// just what a writer of those records would have written.
func FuzzParse(f *testing.F) {
	line := func(key string, value any) []byte {
		l, err := encode(key, value)
		require.NoError(f, err)
		return l
	}
	head := line(headerKey, header{Version: version, BootID: "b"})
	record := line(recordKey, map[string]int{"a": 1})
	f.Add([]byte{})
	f.Add(head)
	f.Add(head[:20])
	f.Add(record)
	f.Add(bytes.Join([][]byte{head, record, record, head, record}, nil))
	f.Add(bytes.Join([][]byte{head, record, record[:12]}, nil))
	f.Add(bytes.Join([][]byte{head, record[:12], record}, nil))
	f.Add(line(headerKey, header{Version: 2}))
	f.Add(line(headerKey, "no header"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parse(data, nil)
		if newer := (*VersionError)(nil); errors.As(err, &newer) {
			require.Greater(t, newer.Found, version)
			return
		}
		require.NoError(t, err)
		require.LessOrEqual(t, c.good, len(data))
		require.NotContains(t, string(data[c.good:]), "\n")
		if c.broken != nil {
			require.Positive(t, c.broken.Lines)
			require.Less(t, c.broken.Offset, int64(len(data)))
		} else {
			again, err := parse(data[:c.good], nil)
			require.NoError(t, err)
			require.Equal(t, c, again)
		}
		for _, r := range c.records {
			require.True(t, json.Valid(r))
			require.NotContains(t, string(r), "\n")
			l, err := encode(recordKey, r)
			require.NoError(t, err)
			key, back, ok := decode(bytes.TrimSuffix(l, []byte("\n")))
			require.True(t, ok)
			require.Equal(t, recordKey, key)
			require.JSONEq(t, string(r), string(back))
		}
	})
}

func TestHalfARecordThatCouldNotBeCutOffIsCutOffBeforeTheNextOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _, err := Open(path, Options{})
	require.NoError(t, err)
	require.NoError(t, j.Append("first"))

	// Neither writing nor cutting off works by a descriptor that can only read.
	good := j.file
	readOnly, err := os.Open(path)
	require.NoError(t, err)
	j.file = readOnly
	require.ErrorContains(t, j.Append("lost"), "cannot cut off half a record")
	half := bytes.Repeat([]byte(`{"crc":"12345678","record":`), 10)
	_, err = good.WriteAt(half, j.size)
	require.NoError(t, err)
	require.ErrorContains(t, j.Append("lost"), "cannot cut off half a record")

	j.file = good
	require.NoError(t, readOnly.Close())
	require.NoError(t, j.Append("second"))
	require.NoError(t, j.Close())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	c, err := parse(data, nil)
	require.NoError(t, err)
	assert.Equal(t, len(data), c.good)
	assert.Equal(t, []json.RawMessage{json.RawMessage(`"first"`), json.RawMessage(`"second"`)}, c.records)
}

func TestAHeaderOfTheWrongFormIsBroken(t *testing.T) {
	l, err := encode(headerKey, "no header")
	require.NoError(t, err)
	c, err := parse(l, nil)
	require.NoError(t, err)
	assert.Equal(t, "a header has the wrong form", c.broken.Reason)
}

func TestACompactionThatFailedIsNotTriedAgainAtTheNextRecord(t *testing.T) {
	fails := func() ([]any, error) { return nil, errors.New("no state") }
	j, _, err := Open(filepath.Join(t.TempDir(), "journal"), Options{MaxBytes: 1000, Snapshot: fails})
	require.NoError(t, err)
	defer func() { require.NoError(t, j.Close()) }()
	add := func(bytes int) { require.NoError(t, j.Append(strings.Repeat("x", bytes))) }
	add(100)
	require.False(t, j.isLarge())
	add(1000)
	require.True(t, j.isLarge())
	require.Error(t, j.Compact())
	add(100)
	require.False(t, j.isLarge())
	add(1000)
	require.True(t, j.isLarge())
}

func TestAJournalThatIsLargeWhenCompactedMayGrowToTwiceOfThat(t *testing.T) {
	large := func() ([]any, error) { return []any{strings.Repeat("x", 5000)}, nil }
	j, _, err := Open(filepath.Join(t.TempDir(), "journal"), Options{MaxBytes: 1000, Snapshot: large})
	require.NoError(t, err)
	defer func() { require.NoError(t, j.Close()) }()
	require.NoError(t, j.Compact())
	require.NoError(t, j.Append(strings.Repeat("x", 4000)))
	require.False(t, j.isLarge())
	require.NoError(t, j.Append(strings.Repeat("x", 2000)))
	require.True(t, j.isLarge())
}
