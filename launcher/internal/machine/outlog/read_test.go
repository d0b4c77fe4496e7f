package outlog_test

import (
	"io"
	"io/fs"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/machine/outlog"
)

func readAll(t *testing.T, store *outlog.Store, name string) string {
	t.Helper()
	part, err := store.Read(name, launcher.LogRange{})
	require.NoError(t, err)
	return readPart(t, part)
}

func readPart(t *testing.T, part *launcher.LogPart) string {
	t.Helper()
	content, err := io.ReadAll(part)
	require.NoError(t, err)
	require.NoError(t, part.Close())
	require.Len(t, content, int(part.Length))
	return string(content)
}

func TestReadGivesTheBytesOfTheRange(t *testing.T) {
	store := open(t, outlog.Options{})
	name, _ := create(t, store, "a", "0123456789")
	for _, tt := range []struct {
		name, want string
		r          launcher.LogRange
	}{
		{"the zero range is all", "0123456789", launcher.LogRange{}},
		{"both ends included", "2345", launcher.LogRange{First: 2, Last: 5, Bounded: true}},
		{"an open end goes to the end", "789", launcher.LogRange{First: 7}},
		{"an end beyond the log is the log's end", "89", launcher.LogRange{First: 8, Last: 100, Bounded: true}},
		{"the largest end", "9", launcher.LogRange{First: 9, Last: math.MaxInt64, Bounded: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			part, err := store.Read(name, tt.r)
			require.NoError(t, err)
			assert.Equal(t, tt.r.First, part.First)
			assert.EqualValues(t, 10, part.Total)
			assert.Equal(t, tt.want, readPart(t, part))
		})
	}
}

func TestARangeThatStartsAtTheEndOrBeyondIsAnErrorWithTheTotal(t *testing.T) {
	store := open(t, outlog.Options{})
	empty, _ := create(t, store, "empty", "")
	ten, _ := create(t, store, "ten", "0123456789")
	for _, tt := range []struct {
		name, log string
		r         launcher.LogRange
		total     int64
	}{
		{"an empty log from its start", empty, launcher.LogRange{}, 0},
		{"at the end", ten, launcher.LogRange{First: 10}, 10},
		{"far beyond the end", ten, launcher.LogRange{First: math.MaxInt64}, 10},
		{"beyond the end with an end", ten, launcher.LogRange{First: 11, Last: 12, Bounded: true}, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := store.Read(tt.log, tt.r)
			var beyond *launcher.LogRangeError
			require.ErrorAs(t, err, &beyond)
			assert.Equal(t, launcher.LogRangeError{First: tt.r.First, Total: tt.total}, *beyond)
		})
	}
}

func TestAnOpenEndedReadGivesAtMostOneMebibyte(t *testing.T) {
	store := open(t, outlog.Options{})
	name, _ := create(t, store, "a", strings.Repeat("x", 3<<20))
	for r, want := range map[launcher.LogRange]int{
		{}:                               1 << 20,
		{First: 5}:                       1 << 20,
		{First: 3145700}:                 28,
		{Last: 2097151, Bounded: true}:   2 << 20,
		{Last: 999999999, Bounded: true}: 3 << 20,
	} {
		part, err := store.Read(name, r)
		require.NoError(t, err)
		assert.Len(t, readPart(t, part), want, r)
		assert.EqualValues(t, 3<<20, part.Total)
	}
}

func TestALogGrowsAcrossReadsAndAPartDoesNot(t *testing.T) {
	store := open(t, outlog.Options{})
	name, f := create(t, store, "a", "one ")
	part, err := store.Read(name, launcher.LogRange{})
	require.NoError(t, err)
	write(t, f, "two\xff\xfe")
	assert.Equal(t, "one ", readPart(t, part))
	part, err = store.Read(name, launcher.LogRange{First: 4})
	require.NoError(t, err)
	assert.Equal(t, "two\xff\xfe", readPart(t, part))
}

func TestALogThatIsNotThereIsNotFound(t *testing.T) {
	store := open(t, outlog.Options{})
	_, err := store.Read("a.1.log", launcher.LogRange{})
	assert.ErrorIs(t, err, fs.ErrNotExist)
}
