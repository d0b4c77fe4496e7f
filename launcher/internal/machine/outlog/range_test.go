package outlog_test

import (
	"io"
	"io/fs"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/outlog"
)

func readAll(t *testing.T, store *outlog.Store, name string) string {
	t.Helper()
	part, err := store.Read(name, outlog.Range{})
	require.NoError(t, err)
	return readPart(t, part)
}

func readPart(t *testing.T, part *outlog.Part) string {
	t.Helper()
	content, err := io.ReadAll(part)
	require.NoError(t, err)
	require.NoError(t, part.Close())
	require.Len(t, content, int(part.Length))
	return string(content)
}

func TestParseRange(t *testing.T) {
	for name, tt := range map[string]struct {
		header string
		want   outlog.Range
	}{
		"no header is the whole log, open-ended": {"", outlog.Range{}},
		"both ends":                              {"bytes=2-5", outlog.Range{Given: true, First: 2, Last: 5, Bounded: true}},
		"one byte":                               {"bytes=0-0", outlog.Range{Given: true, Bounded: true}},
		"an open end":                            {"bytes=7-", outlog.Range{Given: true, First: 7}},
		"a unit in capitals, which RFC 9110 allows": {"Bytes=7-", outlog.Range{Given: true, First: 7}},
		"zeros in front": {"bytes=007-010", outlog.Range{Given: true, First: 7, Last: 10, Bounded: true}},
		"the largest offsets that a file system knows": {
			"bytes=9223372036854775807-9223372036854775807",
			outlog.Range{Given: true, First: math.MaxInt64, Last: math.MaxInt64, Bounded: true},
		},
		"larger ones": {
			"bytes=9223372036854775808-" + strings.Repeat("9", 1000),
			outlog.Range{Given: true, First: math.MaxInt64, Last: math.MaxInt64, Bounded: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := outlog.ParseRange(tt.header)
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestARangeThatCannotBeServedIsMalformed(t *testing.T) {
	for name, header := range map[string]string{
		"a suffix":                       "bytes=-5",
		"another unit":                   "lines=0-5",
		"no unit":                        "0-5",
		"an empty unit":                  "=0-5",
		"several ranges":                 "bytes=0-1,3-4",
		"a comma at the end":             "bytes=0-1,",
		"the end before the start":       "bytes=5-2",
		"no dash":                        "bytes=5",
		"nothing":                        "bytes=",
		"only a dash":                    "bytes=-",
		"words":                          "bytes=a-b",
		"a sign":                         "bytes=+1-2",
		"two dashes":                     "bytes=1--2",
		"a third number":                 "bytes=1-2-3",
		"hexadecimal":                    "bytes=0x1-0x2",
		"underscores":                    "bytes=1_0-2_0",
		"digits that are not ASCII":      "bytes=١-٢",
		"blanks inside":                  "bytes=0 - 5",
		"blanks in front":                "bytes= 0-5",
		"a unit with a blank after it":   "bytes =0-5",
		"garbage that is not even UTF-8": "\xff\xfe",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := outlog.ParseRange(header)
			var malformed *outlog.MalformedRangeError
			require.ErrorAs(t, err, &malformed)
			assert.Equal(t, header, malformed.Header)
			assert.NotEmpty(t, malformed.Reason)
		})
	}
}

func TestReadGivesTheRangeWithItsStatus(t *testing.T) {
	store := open(t, outlog.Options{})
	name, _ := create(t, store, "a", "0123456789")
	for _, tt := range []struct {
		name, header, want, contentRange string
		status                           int
	}{
		{"without a header all", "", "0123456789", "bytes 0-9/10", 200},
		{"both ends included", "bytes=2-5", "2345", "bytes 2-5/10", 206},
		{"an open end goes to the end", "bytes=7-", "789", "bytes 7-9/10", 206},
		{"an end beyond the log is the log's end", "bytes=8-100", "89", "bytes 8-9/10", 206},
		{"the largest end", "bytes=9-9223372036854775807", "9", "bytes 9-9/10", 206},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := outlog.ParseRange(tt.header)
			require.NoError(t, err)
			part, err := store.Read(name, r)
			require.NoError(t, err)
			assert.Equal(t, tt.status, part.Status)
			assert.Equal(t, tt.contentRange, part.ContentRange)
			assert.EqualValues(t, 10, part.Total)
			assert.Equal(t, tt.want, readPart(t, part))
		})
	}
}

func TestARangeThatStartsAtTheEndOrBeyondIsUnsatisfiableAndSaysTheTotal(t *testing.T) {
	store := open(t, outlog.Options{})
	empty, _ := create(t, store, "empty", "")
	ten, _ := create(t, store, "ten", "0123456789")
	for _, tt := range []struct {
		name, log    string
		r            outlog.Range
		contentRange string
	}{
		{"an empty log without a header", empty, outlog.Range{}, "bytes */0"},
		{"an empty log from its start", empty, outlog.Range{Given: true}, "bytes */0"},
		{"at the end", ten, outlog.Range{Given: true, First: 10}, "bytes */10"},
		{"far beyond the end", ten, outlog.Range{Given: true, First: math.MaxInt64}, "bytes */10"},
		{"beyond the end with an end", ten, outlog.Range{Given: true, First: 11, Last: 12, Bounded: true}, "bytes */10"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := store.Read(tt.log, tt.r)
			var unsatisfiable *outlog.UnsatisfiableRangeError
			require.ErrorAs(t, err, &unsatisfiable)
			assert.Equal(t, tt.contentRange, unsatisfiable.ContentRange())
		})
	}
}

func TestAnOpenEndedReadGivesAtMostOneMebibyte(t *testing.T) {
	store := open(t, outlog.Options{})
	name, _ := create(t, store, "a", strings.Repeat("x", 3<<20))
	for header, want := range map[string]int{
		"":                  1 << 20,
		"bytes=5-":          1 << 20,
		"bytes=3145700-":    28,
		"bytes=0-2097151":   2 << 20,
		"bytes=0-999999999": 3 << 20,
	} {
		r, err := outlog.ParseRange(header)
		require.NoError(t, err)
		part, err := store.Read(name, r)
		require.NoError(t, err)
		assert.Len(t, readPart(t, part), want, header)
		assert.EqualValues(t, 3<<20, part.Total)
	}
}

func TestALogGrowsAcrossReadsAndAPartDoesNot(t *testing.T) {
	store := open(t, outlog.Options{})
	name, f := create(t, store, "a", "one ")
	part, err := store.Read(name, outlog.Range{})
	require.NoError(t, err)
	write(t, f, "two\xff\xfe")
	assert.Equal(t, "one ", readPart(t, part))
	part, err = store.Read(name, outlog.Range{Given: true, First: 4})
	require.NoError(t, err)
	assert.Equal(t, "two\xff\xfe", readPart(t, part))
}

func TestALogThatIsNotThereIsNotFound(t *testing.T) {
	store := open(t, outlog.Options{})
	_, err := store.Read("a.1.log", outlog.Range{})
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

// Whatever the header, either it is refused, or it says what it said.
func FuzzParseRange(f *testing.F) {
	for _, seed := range []string{"", "bytes=0-", "bytes=1-2", "bytes=-5", "bytes=5-2", "lines=1-2", "bytes=0-1,2-3", "bytes=99999999999999999999-"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		r, err := outlog.ParseRange(header)
		if err != nil {
			var malformed *outlog.MalformedRangeError
			require.ErrorAs(t, err, &malformed)
			require.Zero(t, r)
			return
		}
		if header == "" {
			require.Zero(t, r)
			return
		}
		require.True(t, r.Given)
		require.GreaterOrEqual(t, r.First, int64(0))
		canonical := "bytes=" + strconv.FormatInt(r.First, 10) + "-"
		if r.Bounded {
			require.GreaterOrEqual(t, r.Last, r.First)
			canonical += strconv.FormatInt(r.Last, 10)
		}
		again, err := outlog.ParseRange(canonical)
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}
