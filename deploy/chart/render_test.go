package chart

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// apiVersions are the API versions and kinds of a cluster, as Helm's .Capabilities have them.
type apiVersions []string

// Has reports whether the cluster has a version or kind.
func (a apiVersions) Has(version string) bool { return slices.Contains(a, version) }

// render fills in a template of the chart as Helm does for the default values, with some changed,
// and returns its objects. It knows those functions of Helm that such templates need.
func render(t *testing.T, file string, has apiVersions, change func(values map[string]any)) (objects []string) {
	t.Helper()
	text, err := os.ReadFile("values.yaml")
	require.NoError(t, err)
	var values map[string]any
	require.NoError(t, yaml.Unmarshal(text, &values))
	if change != nil {
		change(values)
	}
	all := template.New("").Option("missingkey=error")
	unknown := func(...any) (any, error) { return nil, errors.New("render does not know this function") }
	all.Funcs(template.FuncMap{
		"include": func(name string, of any) (string, error) {
			var out bytes.Buffer
			err := all.ExecuteTemplate(&out, name, of)
			return out.String(), err
		},
		"nindent": func(n int, text string) string {
			pad := "\n" + strings.Repeat(" ", n)
			return pad + strings.ReplaceAll(text, "\n", pad)
		},
		"quote":  func(text any) (string, error) { out, err := json.Marshal(text); return string(out), err },
		"toJson": func(of any) (string, error) { out, err := json.Marshal(of); return string(out), err },
		"list":   func(of ...any) []any { return of },
		"concat": func(lists ...[]any) []any { return slices.Concat(lists...) },
		"lookup": unknown, "dig": unknown, "fail": unknown, "ternary": unknown, "default": unknown,
	})
	for _, name := range []string{"_helpers.tpl", file} {
		text, err := os.ReadFile("templates/" + name)
		require.NoError(t, err)
		_, err = all.New(name).Parse(string(text))
		require.NoError(t, err)
	}
	var out bytes.Buffer
	require.NoError(t, all.ExecuteTemplate(&out, file, map[string]any{
		"Values":       values,
		"Release":      map[string]any{"Name": "hotseat", "Namespace": "hotseat-system", "Service": "Helm"},
		"Chart":        map[string]any{"Name": "hotseat", "Version": "0.0.0", "AppVersion": "dev"},
		"Capabilities": map[string]any{"APIVersions": has},
	}))
	for object := range strings.SplitSeq(out.String(), "\n---\n") {
		if strings.TrimSpace(object) != "" {
			objects = append(objects, object)
		}
	}
	return objects
}
