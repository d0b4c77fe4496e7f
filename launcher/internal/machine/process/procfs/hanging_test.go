package procfs

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestMemoryThatHangsIsReadOnceUntilItAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "environ") // a pipe without a writer hangs its readers
	require.NoError(t, unix.Mkfifo(path, 0o600))
	_, err := readWithin(path, time.Millisecond)
	require.ErrorIs(t, err, ErrHangs)
	_, err = readWithin(path, 24*time.Hour)
	require.ErrorIs(t, err, ErrHangs, "at once")

	writer, err := os.OpenFile(path, os.O_WRONLY, 0) // which waits for the reader
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	require.Eventually(t, func() bool {
		hanging.Lock()
		defer hanging.Unlock()
		return !hanging.paths[path]
	}, patience.Wait(), time.Millisecond)
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(path, []byte("A=b\x00"), 0o600))
	text, err := readWithin(path, patience.Wait())
	require.NoError(t, err)
	require.Equal(t, "A=b\x00", string(text))
}
