package catalogue

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file is refused with faults of that file, or it is read, and what is printed of the
// catalogue is read again as the same.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/faults/*.yaml")
	require.NoError(f, err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(data)
	}
	for _, seed := range []string{
		whole, "models: [{name: \"\\u00e9~\", options: 'a\n\n b'}]\n", "models:\n- name: |-\n    x\n  args: ['', \" \", \"#\", \"a: b\", \"\\u2028\", \"\\x07\"]\n",
		"models: [{name: a, args: [1, 1.5, true, .5, 0x10], params: {set: {a: .5, b: 0x10, c: 1_000, d: .inf, e: 1e400}}}]\n",
		"models: [{name: a, options: x, env: {\"a b\": \"null\", t: true, \"1\": \"~\"}, sleep_after: 1.5}]\n",
		"selectors: []\nprofiles: [{name: x, pins: {a: ~, \"b c\": null}}]\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parse([]source{{"hotseat.yaml", data, true}}, machine())
		if err != nil {
			var faults Faults
			require.ErrorAs(t, err, &faults)
			require.NotEmpty(t, faults)
			for _, fault := range faults {
				require.True(t, strings.HasPrefix(fault.String(), "hotseat.yaml:"))
				require.NotContains(t, fault.String(), "\n")
			}
			return
		}
		printed := c.YAML()
		again, err := parse([]source{{"printed.yaml", printed, false}}, machine())
		require.NoError(t, err, string(printed))
		for _, change := range Diff(c, again) {
			require.Equal(t, Same, change.Kind, "%v\n%s", change, printed)
		}
		require.Equal(t, string(printed), string(again.YAML()))
		for _, name := range c.Names() {
			_, err := c.Resolve(name, "")
			require.NoError(t, err)
		}
	})
}
