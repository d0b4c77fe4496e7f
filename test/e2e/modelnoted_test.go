package e2e

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestWhatIsSaidOfAModelThatItsHolderHasIsNotedAndItsSourceIsNotAsked(t *testing.T) {
	t.Parallel()
	hub, _, n := keeper(t)
	hub.Put("org/tiny", tiny(1000))
	first := n.pull("hf://org/tiny")
	say := func(more map[string]any) Answer {
		body := map[string]any{"uri": "hf://org/tiny", "wanted_by": "pool", "unless_there": true}
		maps.Copy(body, more)
		return n.Call("PUT", "/v2/models", body)
	}
	assert.Equal(t, []string{"pool"}, model(t, say(nil)).WantedBy)
	assert.NotEmpty(t, hub.Seen(), "the holder did not have it: its source is asked")

	moved := tiny(2000)
	moved.Commit = strings.Repeat("b", 40)
	hub.Put("org/tiny", moved)
	for range 2 {
		m := model(t, say(map[string]any{"retention": "lru", "warm": true}))
		assert.Equal(t, first.ID, m.ID, "it is no other version")
		assert.Equal(t, launcherapi.ModelReady, m.State)
		assert.Equal(t, []string{"pool"}, m.LRUBy)
		assert.Equal(t, []string{"pool"}, m.WarmBy)
		assert.Equal(t, []string{"main"}, m.Refs)
	}
	m := model(t, say(map[string]any{"uri": "hf://org/tiny@" + commit, "ref": "main", "retention": "keep", "expected_digest": first.Digest}))
	assert.Equal(t, first.ID, m.ID)
	assert.Empty(t, m.LRUBy)
	assert.Empty(t, m.WarmBy)
	assert.Empty(t, hub.Seen(), "nobody has asked its source")

	for what, more := range map[string]map[string]any{
		"some of the files":            {"include": []string{"config.json"}},
		"whoever has it is to show it": {"private": true},
		"another revision":             {"uri": "hf://org/tiny@v9"},
	} {
		body := map[string]any{"uri": "hf://org/tiny@" + commit, "ref": "main"}
		maps.Copy(body, more)
		assert.Equal(t, 404, say(body).Status, "%s: the hub has that commit no more", what)
		assert.NotEmpty(t, hub.Seen(), what)
	}
	for what, more := range map[string]map[string]any{
		"another holder":              {"wanted_by": "other"},
		"a person":                    {"wanted_by": ""},
		"another branch":              {"ref": "v2"},
		"whether it is there or not":  {"unless_there": false},
		"with credentials of the own": {"wanted_by": "third", "credentials": map[string]any{"HF_TOKEN": "hf_any"}},
	} {
		body := map[string]any{"uri": "hf://org/tiny@" + commit, "ref": "main"}
		maps.Copy(body, more)
		assert.Equal(t, first.ID, model(t, say(body)).ID, what)
	}
	assert.Equal(t, "IntegrityMismatch", say(map[string]any{"uri": "hf://org/tiny@" + commit, "expected_digest": "sha256:" + strings.Repeat("0", 64)}).Problem(t).Cause)
	assert.Empty(t, hub.Seen(), "of what is whole, cannot change and is not private, nothing is asked")
	say(map[string]any{"unless_there": false})
	n.Eventually("the branch has moved", func() bool { return len(n.models().Models) == 2 })
}
