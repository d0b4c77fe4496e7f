package process

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

// longestScratch is what a scratch folder's path may have in bytes, so that a
// socket named by a UUID in it fits into an address (108 bytes with the zero
// at its end, unix(7)).
const longestScratch = 107 - len("/") - 36

// scratch is the folder of one tree. It goes by the name alone, so that a later
// Host finds it too. Empty: there is none.
func (h *Host) scratch(name string) string {
	if h.opts.ScratchDir == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(name))
	dir := filepath.Join(h.opts.ScratchDir, hex.EncodeToString(sum[:6]))
	if len(dir) > longestScratch {
		return ""
	}
	return dir
}

// makeScratch makes the folder that a command is to have; "": it has none.
func (h *Host) makeScratch(c Command) (dir string, err error) {
	dir = h.scratch(c.Name)
	if c.Scratch == "" || dir == "" {
		return "", nil
	}
	if err = os.RemoveAll(dir); err == nil { // a tree may have gone while no launcher saw it go
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return "", fmt.Errorf("cannot make its folder: %w", err)
	}
	return dir, nil
}

// removeScratch removes the folder of a tree that is gone, with all in it.
func (h *Host) removeScratch(name string) error {
	dir := h.scratch(name)
	if dir == "" {
		return nil
	}
	return os.RemoveAll(dir)
}
