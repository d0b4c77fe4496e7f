package schedules

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestKnownSeedsAreThoseThatWereWrittenOfDefectsThatThereAre(t *testing.T) {
	path := filepath.Join(t.TempDir(), "testdata", "seeds.txt")
	assert.Empty(t, readKnown(t, path))
	d := Defects{All: []Defect{{Name: "a leak"}, {Name: "a swap waits: twice"}}}
	d.writeKnown(t, path, map[string]uint64{"a swap waits: twice": 7, "it went": 3, "a leak": 12})
	assert.Equal(t, map[string]uint64{"a swap waits: twice": 7, "a leak": 12}, readKnown(t, path))
}
