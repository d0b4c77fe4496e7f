package inference

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestEditDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "abc", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"listn", "listen", 1}, {"ab", "ba", 2}} {
		assert.Equal(t, tt.want, EditDistance(tt.a, tt.b), tt.a+" "+tt.b)
	}
}
