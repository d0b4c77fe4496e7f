package engine

import (
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
)

// group is a reference of a message to a group of its pattern.
var group = regexp.MustCompile(`\$(\d)`)

func TestPatternOfEachSymptomHasTheGroupsOfItsMessage(t *testing.T) {
	for _, s := range slices.Concat(vllmSymptoms, vllmExtensions, vllmEchoes, llamaSymptoms) {
		groups := s.pattern().NumSubexp() // it panics unless the pattern can be compiled
		for _, used := range group.FindAllStringSubmatch(s.message, -1) {
			n, _ := strconv.Atoi(used[1])
			assert.LessOrEqual(t, n, groups, s.message)
		}
	}
}
