package process

import (
	"crypto/rand"
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// NoSockets says why a folder cannot hold the folders of trees; empty: it can. The folder
// around it may be missing: then only the path counts.
func NoSockets(dir string) string {
	switch {
	case !socketsFit(dir):
		return "its path is too long for the addresses of sockets"
	case !takesSockets(filepath.Dir(dir)):
		return "its filesystem has no sockets"
	}
	return ""
}

// socketsFit reports whether the path of a folder is short enough for the addresses of the
// sockets in the folders of trees.
func socketsFit(dir string) bool { return len(folderOf(dir, "")) <= longestScratch }

// takesSockets tries to make a socket in a folder. exFAT, FAT and some mounts over networks
// refuse it, each with an error of its own. A full disk says nothing of sockets.
func takesSockets(folder string) bool {
	path := filepath.Join(folder, ".socket-"+rand.Text())
	err := unix.Mknod(path, unix.S_IFSOCK|0o600, 0)
	_ = unix.Unlink(path) // exFAT by FUSE leaves a file, although it fails
	if err == nil {
		return true
	}
	for _, other := range []error{unix.ENOENT, unix.ENOTDIR, unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EACCES, unix.ENAMETOOLONG} {
		if errors.Is(err, other) {
			return true
		}
	}
	return false
}
