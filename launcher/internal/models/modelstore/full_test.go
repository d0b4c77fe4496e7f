package modelstore

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/test/helpers/smalldisk"
)

// onSmallDisk opens a store on its own small disk. It also returns a function that fills
// the disk, so that not even an empty file fits.
func onSmallDisk(t *testing.T, o Options) (s *Store, fill func()) {
	t.Helper()
	disk := t.TempDir()
	smalldisk.Mount(t, disk, 200)
	o.Dir = filepath.Join(disk, "models")
	return open(t, o), func() { smalldisk.Fill(t, disk) }
}

func TestModelsAreRemovedAndEvictedOnFullDisk(t *testing.T) {
	s, fill := onSmallDisk(t, Options{Retention: LRU})
	first, second := put(t, s, "hf://org/first", "c1", childFiles()), put(t, s, "x://second", "1", map[string]string{"a": "second"})
	u := user(t, s, "launcher")
	require.NoError(t, u.Lease(second.Key, "i"))
	require.NoError(t, u.Release("i"))
	usedAt(t, s, second, time.Now().Add(-time.Hour))
	fill()
	require.NoError(t, s.Remove(first.Key, ""))
	fill()
	m, _ := manifest("x://third", "1", map[string]string{"a": "third"})
	s.limit = 10 // so that the second has to go for it
	f, err := s.Admit(m, Want{})
	require.NoError(t, err)
	assert.Len(t, f.Evicted, 1)
	assert.Empty(t, there(t, s))
	trash, err := filepath.Glob(filepath.Join(s.dir, stagingDir, trashPrefix+"*"))
	require.NoError(t, err)
	assert.Empty(t, trash)
	require.NoError(t, f.GiveUp(true))
}

func TestDiskWithoutInodesIsToldApartFromAFullOne(t *testing.T) {
	disk := t.TempDir()
	smalldisk.Mount(t, disk, 20)
	full := fmt.Errorf("open x: %w", unix.ENOSPC)
	require.ErrorContains(t, NoRoom(disk, full), "the disk of the model store is full: open x: no space left on device")
	smalldisk.Fill(t, disk)
	require.ErrorContains(t, NoRoom(disk, full), "has no inodes left, so it takes no more files: open x")
	var told *fetchapi.Error
	require.ErrorAs(t, NoRoom(disk, unix.EDQUOT), &told)
	assert.Equal(t, fetchapi.ReasonCapacityExceeded, told.Reason)
	other := errors.New("other")
	assert.Equal(t, other, NoRoom(disk, other))
	require.NoError(t, NoRoom(disk, nil))
}
