package modelstore

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// freeOnDisk returns how many bytes may still be written to a folder's disk.
func freeOnDisk(dir string) (int64, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return 0, fmt.Errorf("cannot find out how much room the disk of %s has: %w", dir, err)
	}
	return int64(stat.Bavail) * stat.Bsize, nil
}

// NoRoom gives an error of a full disk a reason. A disk may be full of files, with room for
// bytes: then it has no inodes left.
func NoRoom(dir string, err error) error {
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	what := "is full"
	var stat unix.Statfs_t
	if unix.Statfs(dir, &stat) == nil && stat.Files > 0 && stat.Ffree == 0 {
		what = "has no inodes left, so it takes no more files"
	}
	return &fetchapi.Error{Reason: fetchapi.ReasonCapacityExceeded, Detail: fmt.Sprintf("the disk of the model store %s: %v; free some room, and pull again", what, err)}
}
