package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recorded reads what real vLLM showed.
func recorded[T any](t *testing.T, name string) []T {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	require.NoError(t, err)
	var v []T
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	require.NoError(t, d.Decode(&v))
	return v
}

// record writes down what real vLLM showed, one line each.
func record[T any](t *testing.T, name string, seen []T) {
	t.Helper()
	lines := make([]string, len(seen))
	for i, s := range seen {
		var b strings.Builder
		d := json.NewEncoder(&b)
		d.SetEscapeHTML(false)
		require.NoError(t, d.Encode(s))
		lines[i] = strings.TrimSpace(b.String())
	}
	text := "[\n" + strings.Join(lines, ",\n") + "\n]\n"
	require.NoError(t, os.WriteFile(filepath.Join("testdata", name+".json"), []byte(text), 0o644))
}

// compare checks each item against the one recorded under its name, field by
// field.
func compare[T any](t *testing.T, name string, seen []T, key func(T) string) {
	t.Helper()
	want := map[string]T{}
	for _, r := range recorded[T](t, name) {
		want[key(r)] = r
	}
	for _, s := range seen {
		t.Run(key(s), func(t *testing.T) {
			w, ok := want[key(s)]
			require.True(t, ok, "nothing is recorded; run with -tags vllm -update")
			if d := differences(fields(t, w), fields(t, s)); len(d) > 0 {
				assert.Fail(t, "it is not as vLLM", strings.Join(d, "\n"))
			}
		})
		delete(want, key(s))
	}
	assert.Empty(t, want, "it is recorded, but was not asked")
}

// fields flattens a value to its leaves by their paths.
func fields(t *testing.T, v any) map[string]string {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	var tree any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	require.NoError(t, d.Decode(&tree))
	flat := map[string]string{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if len(v) == 0 {
				flat[path] = "{}"
			}
			for k := range v {
				walk(path+"."+k, v[k])
			}
		case []any:
			if len(v) == 0 {
				flat[path] = "[]"
			}
			for i := range v {
				walk(fmt.Sprintf("%s[%d]", path, i), v[i])
			}
		case string:
			flat[path] = fmt.Sprintf("%q", v)
		default:
			flat[path] = fmt.Sprint(v)
		}
	}
	walk("", tree)
	return flat
}

// differences lists the fields that are not as recorded.
func differences(want, got map[string]string) []string {
	var found []string
	for path, w := range want {
		g, ok := got[path]
		switch {
		case !ok && leftOut(path):
		case !ok:
			found = append(found, fmt.Sprintf("%s: vLLM has %s, which is missing here", path, w))
		case g != w:
			found = append(found, fmt.Sprintf("%s: vLLM has\n\t%s\n  and here it is\n\t%s", path, w, g))
		}
	}
	for path, g := range got {
		if _, ok := want[path]; !ok {
			found = append(found, fmt.Sprintf("%s: here it is %s, of which vLLM has nothing", path, g))
		}
	}
	sort.Strings(found)
	return found
}

// leftOut says whether the stand-in may go without a field: it has those
// metrics of vLLM that people look at.
func leftOut(path string) bool { return strings.HasPrefix(path, ".body.families.") }
