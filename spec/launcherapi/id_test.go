package launcherapi

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestIDsAreWhatTheirPatternSays(t *testing.T) {
	for _, id := range []string{"a", "Z", "0", "a.b_c-D9", "a--", strings.Repeat("x", 128)} {
		assert.True(t, IsID(id), id)
	}
	for _, id := range []string{"", ".", "-a", "_a", "a/b", "a b", "a\n", "ä", "aé", "a\x00", "a@", strings.Repeat("x", 129)} {
		assert.False(t, IsID(id), "%q", id)
	}
}
