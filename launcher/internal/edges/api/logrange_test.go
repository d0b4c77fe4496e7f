package api

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
)

func TestParseRangeReadsBothEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		header string
		want   launcher.LogRange
	}{
		"no header is the whole log, open-ended": {"", launcher.LogRange{}},
		"both ends":                              {"bytes=2-5", launcher.LogRange{First: 2, Last: 5, Bounded: true}},
		"one byte":                               {"bytes=0-0", launcher.LogRange{Bounded: true}},
		"an open end":                            {"bytes=7-", launcher.LogRange{First: 7}},
		"a unit in capitals, which RFC 9110 allows": {"Bytes=7-", launcher.LogRange{First: 7}},
		"zeros in front": {"bytes=007-010", launcher.LogRange{First: 7, Last: 10, Bounded: true}},
		"the largest offsets that a file system knows": {
			"bytes=9223372036854775807-9223372036854775807",
			launcher.LogRange{First: math.MaxInt64, Last: math.MaxInt64, Bounded: true},
		},
		"larger ones": {
			"bytes=9223372036854775808-" + strings.Repeat("9", 1000),
			launcher.LogRange{First: math.MaxInt64, Last: math.MaxInt64, Bounded: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseRange(tt.header)
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestParseRangeRefusesMalformedHeaders(t *testing.T) {
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
			_, err := parseRange(header)
			var malformed *malformedRangeError
			require.ErrorAs(t, err, &malformed)
			assert.Equal(t, header, malformed.header)
			assert.NotEmpty(t, malformed.reason)
		})
	}
}

// parseRange refuses a header, or gives the range that the header names.
func FuzzParseRange(f *testing.F) {
	for _, seed := range []string{"", "bytes=0-", "bytes=1-2", "bytes=-5", "bytes=5-2", "lines=1-2", "bytes=0-1,2-3", "bytes=99999999999999999999-"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		r, err := parseRange(header)
		if err != nil {
			var malformed *malformedRangeError
			require.ErrorAs(t, err, &malformed)
			require.Zero(t, r)
			return
		}
		if header == "" {
			require.Zero(t, r)
			return
		}
		require.GreaterOrEqual(t, r.First, int64(0))
		canonical := "bytes=" + strconv.FormatInt(r.First, 10) + "-"
		if r.Bounded {
			require.GreaterOrEqual(t, r.Last, r.First)
			canonical += strconv.FormatInt(r.Last, 10)
		}
		again, err := parseRange(canonical)
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}
