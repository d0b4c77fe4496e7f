package fetchapi

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAProgramHasASchemeThatNobodyElseHas(t *testing.T) {
	scheme, path, err := ParseProgram("my-scheme=/bin/program=1")
	require.NoError(t, err)
	assert.Equal(t, "my-scheme", scheme)
	assert.Equal(t, "/bin/program=1", path)
	for text, says := range map[string]string{
		"/bin/program":      "must be a scheme and the program that is its source",
		"mine=":             "must be a scheme and the program that is its source",
		"=/bin/program":     "is no scheme",
		"Mine=/bin/program": "is no scheme",
		"my_s=/bin/program": "is no scheme",
		"hf=/bin/program":   "the scheme hf is hotseat's own",
		"file=/bin/program": "the scheme file is hotseat's own",
		"pvc=/bin/program":  "the scheme pvc is hotseat's own",
	} {
		_, _, err := ParseProgram(text)
		assert.ErrorContains(t, err, says, text)
	}
	for scheme := range taken {
		assert.Contains(t, Schemes, scheme)
	}
}

func TestAProgramHasNoCredentialsOfOtherSources(t *testing.T) {
	left := WithoutCredentials([]string{"PATH=/bin", "HF_TOKEN=secret", "MINE=secret", "AWS_SECRET_ACCESS_KEY=secret", "AZURE_STORAGE_CONNECTION_STRING=secret", "DOCKER_CONFIG=/secret", "HF_ENDPOINT=https://host"})
	assert.Equal(t, []string{"PATH=/bin", "MINE=secret", "HF_ENDPOINT=https://host"}, left)
}
