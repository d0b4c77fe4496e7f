package process

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

// longestScratch bounds the path of a scratch folder, in bytes. A socket in the folder
// may have a UUID as its name, and its path must fit into a socket address (108 bytes
// with the final zero, unix(7)).
const longestScratch = 107 - len("/") - 36

// scratch is the path of a tree's folder. It depends on the tree's name alone, so
// that a later Host finds the folder too. Empty: trees have none.
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

// makeScratch makes the folder of a command; "": the command has none.
func (h *Host) makeScratch(c Command) (dir string, err error) {
	dir = h.scratch(c.Name)
	if c.Scratch == "" || dir == "" {
		return "", nil
	}
	h.folders.Lock()
	defer h.folders.Unlock()
	if err = os.RemoveAll(dir); err == nil { // left by a tree that ended while no launcher ran
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return "", fmt.Errorf("cannot make the scratch folder: %w", err)
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
