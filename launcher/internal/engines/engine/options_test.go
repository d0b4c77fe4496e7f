package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWordsOfJSONReachTheEngineAsTheyStand(t *testing.T) {
	p, err := NewVLLM(VLLMOptions{}).Plan(Request{Options: new(`m --hf-overrides {"rope_scaling":{"factor":2}} --allowed-origins=["*"]`)})
	require.NoError(t, err)
	assert.Equal(t, []string{"--hf-overrides", `{"rope_scaling":{"factor":2}}`, `--allowed-origins=["*"]`}, p.Argv(testHost, testPort)[6:])
}
