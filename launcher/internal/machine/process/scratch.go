package process

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Each tree may have a folder for its sockets. The folders of all trees are in ScratchDir.
// If the path of that is too long for sockets, or its filesystem has none, they are in a folder
// of the launcher's own in the temporary folder. The name of that folder follows from the
// launcher's mark: nobody can guess it, a later Host finds it again, and a Host on a copy of
// the state folder has another one. Once made, the folder stays, so that no other user can take
// its name.

// longestScratch bounds the path of a scratch folder, in bytes. A socket in the folder
// may have a UUID as its name, and its path must fit into a socket address (108 bytes
// with the final zero, unix(7)).
const longestScratch = 107 - len("/") - 36

// socketName is the name of the socket in a tree's folder at which its program listens. llama-server
// takes a path for a socket by this end alone.
const socketName = "http.sock"

// folderOf returns the path of a tree's folder. It depends on the tree's name alone, so
// that a later Host finds the folder too.
func folderOf(base, name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(base, hex.EncodeToString(sum[:6]))
}

// ScratchFolder is the name of ScratchDir in a state folder. It is short, since the addresses
// of sockets are.
const ScratchFolder = "run"

// errNoScratch says that trees have no folders.
var errNoScratch = errors.New("there is no folder for the sockets of engines")

// Socket returns the path of the socket at which the program of a tree that is to be
// started can listen; see Command.Socket. It makes no folder: the tree may never start.
func (h *Host) Socket(name string) (string, error) {
	base, err := h.scratchBase()
	if err != nil {
		return "", err
	}
	return filepath.Join(folderOf(base, name), socketName), nil
}

// SocketNow returns where the socket of a tree is that was told to listen at told. A folder
// on the way may have been renamed since. Earlier releases had another name for the socket.
func (h *Host) SocketNow(name, told string) string {
	for _, base := range h.scratchBases() {
		path := filepath.Join(folderOf(base, name), filepath.Base(told))
		if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
			return path
		}
	}
	return told
}

// scratchBase returns the folder for the folders of all trees, which need not be there.
func (h *Host) scratchBase() (string, error) {
	switch {
	case h.opts.ScratchDir == "":
		return "", errNoScratch
	case h.noSockets == "":
		return h.opts.ScratchDir, nil
	}
	temporary := os.TempDir()
	if !socketsFit(h.elsewhere(temporary, 0)) {
		temporary = "/tmp"
	}
	if err := checkShared(temporary); err != nil {
		return "", err
	}
	var errs []error
	for n := range mostElsewhere {
		path := h.elsewhere(temporary, n)
		err := checkOwn(path)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return path, nil
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("cannot make a folder for the sockets of engines: %w", errors.Join(errs...))
}

// mostElsewhere bounds how many names are tried: another user may have taken the name that
// a folder had before.
const mostElsewhere = 4

// elsewhere returns the path of the n-th folder for sockets outside the state folder.
func (h *Host) elsewhere(temporary string, n int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "sockets %d %s", n, h.opts.Mark))
	return filepath.Join(temporary, "hotseat-"+hex.EncodeToString(sum[:8]))
}

// scratchBases returns all folders of this launcher that may hold folders of trees.
func (h *Host) scratchBases() []string {
	if h.opts.ScratchDir == "" {
		return nil
	}
	bases := []string{h.opts.ScratchDir}
	for _, temporary := range slices.Compact([]string{os.TempDir(), "/tmp"}) {
		for n := range mostElsewhere {
			if path := h.elsewhere(temporary, n); checkOwn(path) == nil {
				bases = append(bases, path)
			}
		}
	}
	return bases
}

// checkOwn returns an error unless path is a folder of this user, and no link, that no other
// user may enter.
func checkOwn(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is not a folder that this user alone may enter", path)
	}
	return nil
}

// checkShared returns an error for a temporary folder in which another user could replace
// a folder of this one.
func checkShared(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("cannot look at the temporary folder: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Uid != 0 && int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("others may replace what is in the temporary folder %s", path)
	}
	return nil
}

// makeScratch makes the folder of a command; "": the command has none.
func (h *Host) makeScratch(c Command) (dir string, err error) {
	if c.Scratch == "" && c.Socket == "" {
		return "", nil
	}
	h.folders.Lock()
	defer h.folders.Unlock()
	if err := h.removeScratch(c.Name); err != nil { // left by a tree that ended while no launcher ran
		return "", fmt.Errorf("cannot make the scratch folder: %w", err)
	}
	base, err := h.scratchBase()
	switch {
	case err != nil && c.Socket == "":
		return "", nil // the program keeps its sockets in the temporary folder
	case err != nil:
		return "", err
	}
	dir = folderOf(base, c.Name)
	if c.Socket != "" && c.Socket != filepath.Join(dir, socketName) {
		return "", fmt.Errorf("cannot make the folder of the socket %s: sockets are in %s by now", c.Socket, base)
	}
	if base == h.opts.ScratchDir {
		err = os.MkdirAll(base, 0o700)
	} else if err = os.Mkdir(base, 0o700); errors.Is(err, fs.ErrExist) {
		err = checkOwn(base)
	}
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		return "", fmt.Errorf("cannot make the scratch folder: %w", err)
	}
	return dir, nil
}

// removeScratch removes the folders of a tree that is gone, with all in them. The folder
// elsewhere stays, although it may be empty: other users have seen its name, and one of them
// could take it. The lock of the folders is held.
func (h *Host) removeScratch(name string) error {
	var errs []error
	for _, base := range h.scratchBases() {
		errs = append(errs, os.RemoveAll(folderOf(base, name)))
	}
	return errors.Join(errs...)
}
