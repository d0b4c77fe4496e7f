// Package ci tests what CI runs beside the tests themselves.
package ci

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var kinds = []string{"cluster", "vllm", "defects", "releases", "fuzz", "targets"}

// long asks long.sh about a kind of tests.
func long(t *testing.T, third, request, kind string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "long.sh", request, kind)
	cmd.Env = append(os.Environ(), "THIRD="+third, "RELEASES=0.1.0 0.2.0 0.3.0")
	out, err := cmd.Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

func TestWithoutAHashAllLongTestsArePicked(t *testing.T) {
	for _, kind := range kinds {
		assert.Greater(t, len(strings.Split(long(t, "", "picked", kind), "\n")), 2, kind)
		assert.Empty(t, long(t, "", "omitted", kind), kind)
	}
}

func TestAHashPicksAThirdAndTheSameAgain(t *testing.T) {
	for _, kind := range kinds {
		all := strings.Split(long(t, "", "picked", kind), "\n")
		picked := strings.Split(long(t, "one", "picked", kind), "\n")
		assert.Len(t, picked, (len(all)+2)/3, kind)
		assert.Subset(t, all, picked, kind)
		assert.Equal(t, picked, strings.Split(long(t, "one", "picked", kind), "\n"), kind)
	}
	assert.NotEqual(t, long(t, "one", "picked", "defects"), long(t, "two", "picked", "defects"))
}

func TestPatternsOfPickedAndOmittedTestsMatchEachTestOnce(t *testing.T) {
	for _, kind := range kinds {
		picked, omitted := regexp.MustCompile(long(t, "one", "pattern", kind)), regexp.MustCompile(long(t, "one", "omitted", kind))
		for _, name := range strings.Split(long(t, "", "picked", kind), "\n") {
			assert.NotEqual(t, picked.MatchString(name), omitted.MatchString(name), name)
		}
	}
}

func TestAnUnknownKindIsRefused(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "bash", "long.sh", "picked", "hats").CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "unknown kind: hats")
}
