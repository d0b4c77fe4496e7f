package door

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestBeginningIsTheFirstTextOfTheUser(t *testing.T) {
	for body, want := range map[string]string{
		`{"model": "m", "messages": [{"role": "system", "content": "be"}, {"role": "user", "content": "who?"}]}`:                         "who?",
		`{"prompt": "p", "messages": [{"role": "user", "content": [{"type": "image"}, {"text": "a"}, {"text": "b"}]}]}`:                  "a",
		`{"messages": [{"role": "system", "content": "be"}], "other": {"messages": [{"role": "user", "content": "no"}]}, "prompt": "p"}`: "p",
		`{"prompt": "", "input": ["a"], "messages": []}`:                                                                                 "",
		`{"prompt": [1, 2], "input": "i"}`:                  "i",
		`{"messages": null, "prompt": "p"}`:                 "p",
		`{"messages": [{"role": "user", "content": null}]}`: "",
		`{"messages": [{"role": "user"}]}`:                  "",
		`{"messages": [{"role": 1}]}`:                       "",
		`{"messages": {"role": "user"}}`:                    "",
		`[]`:                                                "",
		``:                                                  "",
	} {
		assert.Equal(t, want, beginning(strings.NewReader(body), 100), body)
	}
}

// A front door has 512 MiB, and a body may have 32.
func TestBeginningOfManySmallPartsTakesLittleMemory(t *testing.T) {
	const mib = 1 << 20
	parts := strings.Repeat("{},", mib)
	for name, body := range map[string]string{
		"messages": `{"messages": [` + parts + `{}]}`,
		"parts":    `{"messages": [{"role": "user", "content": [` + parts + `{}]}]}`,
		"prompt":   `{"prompt": [` + parts + `{}]}`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		assert.Empty(t, beginning(strings.NewReader(body), 100), name)
		runtime.ReadMemStats(&after)
		assert.Less(t, (after.TotalAlloc-before.TotalAlloc)/mib, uint64(10*len(body)/mib), "%s: allocated for a body of %d MiB", name, len(body)/mib)
	}
}
