// Package smalldisk has tests fill a disk.
package smalldisk

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Mount mounts a disk of 1 MiB on a folder, with room for so many files and folders, until
// the test ends. Without the right to mount one the test is skipped.
func Mount(t *testing.T, dir string, files int) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, fmt.Sprintf("size=1m,nr_inodes=%d", files)); err != nil {
		t.Skipf("NOT TESTED: A DISK CANNOT BE MADE FULL, SINCE ONLY ROOT MAY MOUNT ONE: %v", err)
	}
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
}

// Fill leaves no room on such a disk for as much as an empty file. What fills the disk is in
// hidden folders.
func Fill(t *testing.T, dir string) {
	t.Helper()
	var err error
	for err == nil {
		_, err = os.MkdirTemp(dir, ".ballast")
	}
	require.ErrorIs(t, err, unix.ENOSPC)
}
