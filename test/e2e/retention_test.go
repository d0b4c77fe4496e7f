package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// logs names the log files that there are.
func (n *Node) logs() []string {
	n.t.Helper()
	entries, err := os.ReadDir(filepath.Join(n.State, "logs"))
	require.NoError(n.t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestNoMoreLogsAreKeptThanMayBeAndNoneIsDroppedThatIsInUse(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--log-max-files", "2")
	n.Awake("first", On(0))
	for i := range 5 {
		id := fmt.Sprintf("i%d", i)
		n.Create(id, Spec(id, On(1)))
		n.Delete(id)
	}
	n.Awake("last", On(1))
	n.Eventually("as many are left as may be", func() bool { return len(n.logs()) == 2 })
	assert.Equal(t, []string{"first.1.log", "last.1.log"}, n.logs(), "the oldest one is in use")

	n.Kill9()
	for i := range 3 {
		require.NoError(t, os.WriteFile(filepath.Join(n.State, "logs", fmt.Sprintf("gone%d.1.log", i)), nil, 0o600))
	}
	n.Start()
	n.Eventually("a start drops them as well", func() bool { return len(n.logs()) == 2 })
	assert.Equal(t, []string{"first.1.log", "last.1.log"}, n.logs())
	assert.Equal(t, 206, n.Call("GET", "/v2/vllm/instances/first/log", nil, "Range", "bytes=0-").Status)
}

func TestATokenThatEverybodyMayReadIsWarnedOf(t *testing.T) {
	t.Parallel()
	for mode, warned := range map[os.FileMode]bool{0o644: true, 0o640: false} {
		t.Run(mode.String(), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "token")
			require.NoError(t, os.WriteFile(file, []byte("s3cret"), mode))
			require.NoError(t, os.Chmod(file, mode))
			n := NewStoppedNode(t, "--token-file", file)
			n.Token = "s3cret"
			n.Start()
			says := assert.NotContains
			if warned {
				says = assert.Contains
			}
			says(t, n.Log(), "EVERY USER OF THIS MACHINE CAN READ THE TOKEN")
			if warned {
				assert.Contains(t, n.Log(), "mode=0644")
			}
			assert.NotContains(t, n.Log(), "s3cret")
		})
	}
	t.Run("at the front door", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "token")
		require.NoError(t, os.WriteFile(file, []byte("s3cret"), 0o600))
		require.NoError(t, os.Chmod(file, 0o644))
		n := NewNode(t, "--front-door", freeAddress(t), "--front-door-token-file", file)
		assert.Contains(t, n.Log(), "EVERY USER OF THIS MACHINE CAN READ THE TOKEN")
	})
	t.Run("in a Pod there is nobody else", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "token")
		require.NoError(t, os.WriteFile(file, []byte("s3cret"), 0o644))
		n := NewStoppedNode(t, "--token-file", file)
		n.Token = "s3cret"
		n.env = append(n.env, "KUBERNETES_SERVICE_HOST=10.96.0.1")
		n.Start()
		assert.NotContains(t, n.Log(), "READ THE TOKEN")
	})
}
