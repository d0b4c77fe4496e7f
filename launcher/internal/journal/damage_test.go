package journal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/journal"
)

// written gives a journal of five records, and its bytes.
func written(t *testing.T) (path string, whole []byte) {
	t.Helper()
	path = newPath(t)
	j, _, err := journal.Open(path, journal.Options{})
	require.NoError(t, err)
	mustAppend(t, j, 0, 1, 2, 3, 4)
	require.NoError(t, j.Close())
	return path, read(t, path)
}

func TestADamagedByteCostsTheRecordThatItStandsInAndNoOther(t *testing.T) {
	_, whole := written(t)
	lines := bytes.SplitAfter(whole, []byte("\n"))
	at := 0
	for n, line := range lines[:6] {
		for i := range line {
			damaged := bytes.Clone(whole)
			damaged[at+i] ^= 0x04
			path := newPath(t)
			require.NoError(t, os.WriteFile(path, damaged, 0o600))
			j, found, err := journal.Open(path, journal.Options{})
			require.NoError(t, err)
			mustAppend(t, j, 9)
			require.NoError(t, j.Close())
			want := []int{0, 1, 2, 3, 4}
			if n > 0 && i < len(line)-1 { // neither in the header nor the end of a line, which says nothing
				want = append(upTo(n-1), want[n:]...)
			}
			require.Equal(t, want, values(t, found.Records), "byte %d of line %d", i, n)
			require.NotNil(t, found.Broken, "byte %d of line %d", i, n)
			require.Equal(t, damaged, read(t, found.Broken.SetAside), "the damaged file is kept as it was")
			require.LessOrEqual(t, found.Broken.Offset, int64(at+i))
			require.Contains(t, found.Broken.Error(), found.Broken.SetAside)
			require.Equal(t, append(want, 9), replayed(t, path), "what was good is in the new journal")
		}
		at += len(line)
	}
}

func TestDamageInSeveralPlacesIsToldOnceWithTheNumberOfLines(t *testing.T) {
	path, whole := written(t)
	lines := strings.SplitAfter(string(whole), "\n")
	lines[2] = "not of a journal\n"
	lines[4] = strings.Repeat("\x00", len(lines[4])-1) + "\n"
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600))
	_, found := open(t, path, journal.Options{})
	assert.Equal(t, []int{0, 2, 4}, values(t, found.Records))
	require.NotNil(t, found.Broken)
	assert.Equal(t, 2, found.Broken.Lines)
	assert.EqualValues(t, len(lines[0])+len(lines[1]), found.Broken.Offset)
}

func TestARecordThatItsReaderCannotReadIsKeptAsideAndTheOthersAreRead(t *testing.T) {
	path, whole := written(t)
	_, found := open(t, path, journal.Options{Readable: func(r json.RawMessage) error {
		var n note
		if err := json.Unmarshal(r, &n); err != nil || n.Value == 2 {
			return errors.New("the value is a two")
		}
		return nil
	}})
	assert.Equal(t, []int{0, 1, 3, 4}, values(t, found.Records))
	require.NotNil(t, found.Broken)
	assert.Contains(t, found.Broken.Reason, "the value is a two")
	assert.Equal(t, whole, read(t, found.Broken.SetAside))
}

func TestOnlyAJournalThatWasMadeJustNowIsNew(t *testing.T) {
	path := newPath(t)
	j, found, err := journal.Open(path, journal.Options{})
	require.NoError(t, err)
	require.NoError(t, j.Close())
	assert.True(t, found.New)
	_, found = open(t, path, journal.Options{})
	assert.False(t, found.New)
}
