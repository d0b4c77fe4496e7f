package journal_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/journal"
)

func TestRecordsAreReplayedInTheirOrderAcrossRestarts(t *testing.T) {
	path := newPath(t)
	for round := range 3 {
		j, found, err := journal.Open(path, journal.Options{})
		require.NoError(t, err)
		assert.Equal(t, upTo(round*10), values(t, found.Records))
		mustAppend(t, j, upTo(round*10 + 10)[round*10:]...)
		require.NoError(t, j.Close())
	}
	assert.Equal(t, upTo(30), replayed(t, path))
	assert.Equal(t, []string{"journal"}, names(t, filepath.Dir(path)))
}

func TestEveryLineIsJSONThatAPersonCanRead(t *testing.T) {
	path := newPath(t)
	clock := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	j, _ := open(t, path, journal.Options{BootID: "boot-1", Now: func() time.Time { return clock }})
	require.NoError(t, j.Append(map[string]string{"state": "awake\nand <well>"}))
	assert.Equal(t, `{"crc":"0f76b7f3","header":{"version":1,"boot_id":"boot-1","at":"2026-11-21T12:00:00Z"}}
{"crc":"442e3380","record":{"state":"awake\nand \u003cwell\u003e"}}
`, string(read(t, path)))
}

func TestARecordOfAnyJSONComesBackAsItWas(t *testing.T) {
	path := newPath(t)
	j, _, err := journal.Open(path, journal.Options{})
	require.NoError(t, err)
	given := []string{`{}`, `null`, `0`, `""`, `[1,[2,{"a":null}]]`, `"}\n{\"crc\":"`, `{"header":{"version":99}}`}
	for _, g := range given {
		require.NoError(t, j.Append(json.RawMessage(g)))
	}
	require.Error(t, j.Append(func() {}), "a function is no JSON")
	require.Error(t, j.Append(json.RawMessage(`{`)))
	require.NoError(t, j.Close())
	_, found := open(t, path, journal.Options{})
	require.Nil(t, found.Broken)
	require.Len(t, found.Records, len(given))
	for i, g := range given {
		assert.Equal(t, g, string(found.Records[i]))
	}
}

func TestAKilledProcessLosesNothingThatItAppendedNotEvenWhileItCompacts(t *testing.T) {
	for _, after := range []int{1, 49, 50, 51, 99, 100, 120, 333} {
		dir := t.TempDir()
		cmd := child(t, "append", dir)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		said := -1
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			said, err = strconv.Atoi(lines.Text())
			require.NoError(t, err, "the child said: %s", lines.Text())
			if said == after {
				require.NoError(t, cmd.Process.Kill())
			}
		}
		require.Error(t, cmd.Wait())
		got := replayed(t, filepath.Join(dir, "journal"))
		require.GreaterOrEqual(t, len(got), 1)
		// A snapshot stands for what came before it.
		last := got[len(got)-1]
		assert.Contains(t, []int{said, said + 1}, last)
		for i := range got[1:] {
			assert.Contains(t, []int{got[i], got[i] + 1}, got[i+1])
		}
	}
}

func TestTheBootOfTheLastRecordIsToldAndANewOneIsNotedWithTheNextRecord(t *testing.T) {
	path := newPath(t)
	first, found, err := journal.Open(path, journal.Options{BootID: "boot-1"})
	require.NoError(t, err)
	assert.Empty(t, found.BootID)
	mustAppend(t, first, 0)
	require.NoError(t, first.Close())

	second, found, err := journal.Open(path, journal.Options{BootID: "boot-2"})
	require.NoError(t, err)
	assert.Equal(t, "boot-1", found.BootID)
	before := read(t, path)
	require.NoError(t, second.Close())
	assert.Equal(t, before, read(t, path), "nothing is written that nobody asked for")

	third, found, err := journal.Open(path, journal.Options{BootID: "boot-3"})
	require.NoError(t, err)
	assert.Equal(t, "boot-1", found.BootID)
	mustAppend(t, third, 1, 2)
	require.NoError(t, third.Close())
	assert.Equal(t, 2, bytes.Count(read(t, path), []byte(`"header"`)))

	_, found = open(t, path, journal.Options{BootID: "boot-3"})
	assert.Equal(t, "boot-3", found.BootID)
	assert.Equal(t, []int{0, 1, 2}, values(t, found.Records))
}

func TestWithoutABootIDThatOfTheKernelIsTaken(t *testing.T) {
	path := newPath(t)
	j, _, err := journal.Open(path, journal.Options{})
	require.NoError(t, err)
	require.NoError(t, j.Close())
	_, found := open(t, path, journal.Options{})
	assert.Equal(t, string(bytes.TrimSpace(read(t, "/proc/sys/kernel/random/boot_id"))), found.BootID)
}

func TestATruncatedLastRecordIsDroppedSilentlyWhereverItWasCut(t *testing.T) {
	path := newPath(t)
	j, _, err := journal.Open(path, journal.Options{})
	require.NoError(t, err)
	mustAppend(t, j, 0, 1)
	two := len(read(t, path))
	mustAppend(t, j, 2)
	require.NoError(t, j.Close())
	whole := read(t, path)

	for size := two; size < len(whole); size++ {
		require.NoError(t, os.WriteFile(path, whole[:size], 0o600))
		j, found, err := journal.Open(path, journal.Options{})
		require.NoError(t, err)
		require.Nil(t, found.Broken)
		require.Equal(t, []int{0, 1}, values(t, found.Records))
		require.Equal(t, whole[:two], read(t, path), "the file is cut to its last good record")
		mustAppend(t, j, 7)
		require.NoError(t, j.Close())
		require.Equal(t, []int{0, 1, 7}, replayed(t, path))
	}
	assert.Equal(t, []string{"journal"}, names(t, filepath.Dir(path)))
}

func TestZerosAtTheEndAsACrashedMachineLeavesThemAreDropped(t *testing.T) {
	path := newPath(t)
	j, _, err := journal.Open(path, journal.Options{})
	require.NoError(t, err)
	mustAppend(t, j, 0)
	require.NoError(t, j.Close())
	require.NoError(t, os.Truncate(path, 8192))
	assert.Equal(t, []int{0}, replayed(t, path))
}

func TestAnEmptyFileIsAnEmptyJournal(t *testing.T) {
	path := newPath(t)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	j, found := open(t, path, journal.Options{})
	assert.Zero(t, found)
	mustAppend(t, j, 0)
	assert.Contains(t, string(read(t, path)), `"header"`)
}

func TestAFileThatIsNoJournalIsSetAside(t *testing.T) {
	for name, content := range map[string]string{
		"text":                   "hello\nworld\n",
		"text without a newline": "hello",
		"zeros":                  strings.Repeat("\x00", 4096),
		"a newline":              "\n",
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
			j, found := open(t, path, journal.Options{})
			require.NotNil(t, found.Broken)
			assert.Empty(t, found.Records)
			assert.Equal(t, content, string(read(t, found.Broken.SetAside)))
			mustAppend(t, j, 0)
		})
	}
}

func TestARecordWithoutAHeaderBeforeItIsReadAndTheFileSetAside(t *testing.T) {
	path := newPath(t)
	content := `{"crc":"981e7015","record":{}}` + "\n"
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	_, found := open(t, path, journal.Options{})
	require.NotNil(t, found.Broken)
	assert.Len(t, found.Records, 1)
	assert.Equal(t, content, string(read(t, found.Broken.SetAside)))
}

func TestAJournalThatBreaksTwiceInOneInstantIsKeptTwice(t *testing.T) {
	path := newPath(t)
	clock := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, content := range []string{"one\n", "two\n", "three\n"} {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		j, found, err := journal.Open(path, journal.Options{Now: func() time.Time { return clock }})
		require.NoError(t, err)
		require.NoError(t, j.Close())
		assert.Equal(t, content, string(read(t, found.Broken.SetAside)))
	}
	assert.Equal(t, []string{
		"journal",
		"journal.broken-20261121T120000.000Z",
		"journal.broken-20261121T120000.000Z-2",
		"journal.broken-20261121T120000.000Z-3",
	}, names(t, filepath.Dir(path)))
}

func TestAJournalOfANewerVersionIsRefusedAndNotTouched(t *testing.T) {
	path := newPath(t)
	content := `{"crc":"18f7fc27","header":{"version":2,"boot_id":"b","at":"2026-11-21T12:00:00Z","more":1}}` + "\n" +
		"and then lines\nof another form"
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	_, _, err := journal.Open(path, journal.Options{})
	var newer *journal.VersionError
	require.ErrorAs(t, err, &newer)
	assert.Equal(t, &journal.VersionError{Path: path, Found: 2, Known: 1}, newer)
	assert.Contains(t, err.Error(), path)
	assert.Equal(t, content, string(read(t, path)))
	assert.Equal(t, []string{"journal"}, names(t, filepath.Dir(path)))
}

func TestAJournalThatCannotBeReadOrMadeIsAnErrorThatNamesTheFile(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "missing", "journal")} {
		_, _, err := journal.Open(path, journal.Options{})
		assert.ErrorContains(t, err, path)
	}
}

func TestAClosedJournalRefusesEverythingAndClosesTwice(t *testing.T) {
	j, _, err := journal.Open(newPath(t), journal.Options{Snapshot: func() ([]any, error) { return nil, nil }})
	require.NoError(t, err)
	mustAppend(t, j, 0)
	require.NoError(t, j.Sync())
	require.NoError(t, j.Close())
	require.NoError(t, j.Close())
	assert.ErrorIs(t, j.Append(note{}), journal.ErrClosed)
	assert.ErrorIs(t, j.Sync(), journal.ErrClosed)
	assert.ErrorIs(t, j.Compact(), journal.ErrClosed)
}

func TestJournalsThatAreOpenedAndClosedLeaveNoDescriptorBehind(t *testing.T) {
	path := newPath(t)
	before := len(names(t, "/proc/self/fd"))
	for i := range 200 {
		j, _, err := journal.Open(path, journal.Options{Snapshot: func() ([]any, error) { return nil, nil }})
		require.NoError(t, err)
		mustAppend(t, j, i)
		require.NoError(t, j.Compact())
		require.NoError(t, j.Close())
	}
	assert.Len(t, names(t, "/proc/self/fd"), before)
}

func TestAppendsFromManyGoroutinesAreAllThereAndWhole(t *testing.T) {
	path := newPath(t)
	j, _, err := journal.Open(path, journal.Options{})
	require.NoError(t, err)
	ended := make(chan error)
	for g := range 8 {
		go func() {
			var err error
			for i := 0; i < 100 && err == nil; i++ {
				err = j.Append(note{Counter: fmt.Sprint(g), Value: i})
			}
			ended <- err
		}()
	}
	for range 8 {
		require.NoError(t, <-ended)
	}
	require.NoError(t, j.Close())
	got := replayed(t, path)
	slices.Sort(got)
	for i, v := range got {
		assert.Equal(t, i/8, v)
	}
	assert.Len(t, got, 800)
}
