package fetchapi

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAnAddressWithACredentialInItIsRefusedAndNotRepeated(t *testing.T) {
	for _, uri := range []string{
		"https://user:s3cret@host/m", "https://s3cret@host/m", "https://host/m?token=s3cret", "https://host/m#s3cret", "hf://s3cret@host/m", "hf://hf_s3cret@gpt2", "hf://user:s3cret@gpt2", "https://host:s3cret/m", "https://host/%s3cret",
	} {
		err := CheckAddress(uri)
		require.Error(t, err, uri)
		assert.NotContains(t, err.Error(), "cret", uri)
	}
	for _, uri := range []string{"hf://org/m@main", "hf://gpt2@607a30d783dfa663caf39e06633721c8d4cfcd7e", "oci://host:5000/m@sha256:aaaa", "file:///m%20n", "s3://bucket/a b/c", "pvc://claim/m"} {
		assert.NoError(t, CheckAddress(uri), uri)
	}
}

func TestANameOfAVersionIsOneBelowAFolder(t *testing.T) {
	for _, ref := range []string{"", "main", "refs/pr/1", "v1.0", "sha256:aaaa"} {
		assert.NoError(t, CheckRef(ref), ref)
	}
	for _, ref := range []string{".", "..", "a/../b", "/main", "a//b", "a\x00b", strings.Repeat("x", 256)} {
		assert.ErrorContains(t, CheckRef(ref), "cannot be the name of a version", ref)
	}
}
