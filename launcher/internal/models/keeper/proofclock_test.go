package keeper

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/fetchapi"
)

func TestProofOfATimeToComeDoesNotCount(t *testing.T) {
	k, _ := newKeeper(t, "lets all read")
	p := k.proofOf("key", fetchapi.Credentials{"TOKEN": "x"})
	p.record()
	path := filepath.Join(k.opts.Dir, modelstore.ProofsDir, p.name)
	for ahead, counts := range map[time.Duration]bool{-time.Hour: true, time.Minute: true, time.Hour: false} {
		require.NoError(t, os.Chtimes(path, time.Time{}, time.Now().Add(ahead)))
		_, proved := p.when()
		assert.Equal(t, counts, proved, "%s ahead", ahead)
	}
}
