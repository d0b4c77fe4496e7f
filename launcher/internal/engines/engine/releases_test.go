package engine

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheReleasesThatAreSaidToBeTriedAreThoseOfTheMatrix(t *testing.T) {
	make := exec.CommandContext(t.Context(), "make", "-s", "-n", "-C", "../../../..", "test-vllm-matrix")
	out, err := make.Output()
	require.NoError(t, err)
	assert.Contains(t, string(out), "matrix.sh "+strings.Join(TriedReleases, " ")+"\n")
}
