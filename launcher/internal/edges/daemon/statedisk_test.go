package daemon

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/core/statedir"
)

func TestTouchedStateDiskIsFoundToStall(t *testing.T) {
	began := time.Now()
	disk := newStateDisk(&statedir.Queue{}, t.TempDir())
	disk.Touch()
	assert.False(t, disk.StalledAfter(began))

	require.NoError(t, syscall.Mkfifo(disk.probe, 0o600)) // the write waits for a reader
	disk.Touch()
	assert.True(t, disk.StalledAfter(began))
	_, ended := disk.UnderWay()
	disk.Touch()
	reader, err := os.Open(disk.probe)
	require.NoError(t, err)
	<-ended
	require.NoError(t, reader.Close())
	assert.True(t, disk.StalledAfter(began), "it did until now")
	assert.False(t, disk.StalledAfter(time.Now()))
	left, err := filepath.Glob(disk.probe)
	require.NoError(t, err)
	assert.Empty(t, left)
}
