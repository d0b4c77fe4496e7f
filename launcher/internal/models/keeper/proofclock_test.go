package keeper

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProofOfATimeToComeDoesNotCount(t *testing.T) {
	p := proof{path: filepath.Join(t.TempDir(), "proof")}
	require.NoError(t, os.WriteFile(p.path, nil, 0o600))
	for ahead, counts := range map[time.Duration]bool{-time.Hour: true, time.Minute: true, time.Hour: false} {
		require.NoError(t, os.Chtimes(p.path, time.Time{}, time.Now().Add(ahead)))
		_, proved := p.when()
		assert.Equal(t, counts, proved, "%s ahead", ahead)
	}
}
