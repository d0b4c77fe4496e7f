package outlog_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/outlog"
)

func TestTail(t *testing.T) {
	long := strings.Repeat("0123456789", 300)
	for name, tt := range map[string]struct {
		text            string
		lines, maxBytes int
		want            []string
	}{
		"an empty log has no lines":                       {"", 5, 100, nil},
		"fewer lines than asked for":                      {"a\nb\n", 5, 100, []string{"a", "b"}},
		"the last ones of many":                           {"a\nb\nc\nd\n", 2, 100, []string{"c", "d"}},
		"a last line without its end counts":              {"a\nb\nc", 2, 100, []string{"b", "c"}},
		"empty lines stay":                                {"a\n\nb\n", 3, 100, []string{"a", "", "b"}},
		"no lines asked for":                              {"a\n", 0, 100, nil},
		"no bytes asked for":                              {"a\n", 5, 0, nil},
		"a line that the bound cuts in two is left out":   {"aaaa\nbbbb\ncccc\n", 5, 12, []string{"bbbb", "cccc"}},
		"the end of a line longer than the bound is kept": {"aaaabbbb\n", 5, 5, []string{"bbbb"}},
		"bytes that are no UTF-8 are replaced":            {"a\xff\xfeb\n", 1, 100, []string{"a\uFFFDb"}},
		"line ends of Windows go":                         {"a\r\nb\r\n", 2, 100, []string{"a", "b"}},
		"of a progress bar what it shows at last":         {"load 10%\rload 100%\r\ndone\n", 2, 100, []string{"load 100%", "done"}},
		"an over-long line is cut":                        {long + "\nx\n", 2, 10_000, []string{long[:2048] + "…", "x"}},
		"an over-long line is cut between characters":     {"a" + strings.Repeat("é", 2000) + "\n", 1, 10_000, []string{"a" + strings.Repeat("é", 1023) + "…"}},
		"a character that the bound cuts is replaced":     {"é\n", 1, 2, []string{"\uFFFD"}},
		"a line just as long as allowed is whole":         {long[:2048] + "\n", 1, 10_000, []string{long[:2048]}},
	} {
		t.Run(name, func(t *testing.T) {
			store := open(t, outlog.Options{})
			log, _ := create(t, store, "a", tt.text)
			got, err := store.Tail(log, tt.lines, tt.maxBytes)
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
			for _, line := range got {
				assert.True(t, utf8.ValidString(line))
			}
		})
	}
}

func TestTheTailOfAHugeLogReadsOnlyItsEnd(t *testing.T) {
	store := open(t, outlog.Options{})
	name, f := create(t, store, "a", "")
	require.NoError(t, f.Truncate(1<<40)) // sparse: it holds no block
	write(t, f, "\nthe end\n")
	got, err := store.Tail(name, 1, 4096)
	require.NoError(t, err)
	assert.Equal(t, []string{"the end"}, got)
}
