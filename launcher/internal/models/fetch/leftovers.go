package fetch

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// hashesFile says the hashes of whole files of which the manifest does not: a line
// "part-NAME HASH" for each. A line that is lost costs its file.
const hashesFile = "hashes"

// leftovers are what earlier processes have left in the folder.
type leftovers struct {
	names  map[string]bool
	hashes map[string]string // by the names of parts
}

func (f *Fetch) look() (l leftovers, err error) {
	l = leftovers{names: map[string]bool{}, hashes: map[string]string{}}
	entries, err := fs.ReadDir(f.in.FS(), ".")
	if err != nil {
		return l, err
	}
	for _, e := range entries {
		l.names[e.Name()] = true
	}
	if !l.names[hashesFile] {
		return l, nil
	}
	text, err := f.in.ReadFile(hashesFile)
	if err != nil {
		return l, err
	}
	for line := range strings.Lines(string(text)) {
		part, hash, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if len(hash) == hex.EncodedLen(sha256.Size) {
			l.hashes[part] = hash
		}
	}
	return l, nil
}

// openStaging opens a staging folder. It does not follow a link that another user of the store
// has put into the folder's place.
func openStaging(path string) (*os.Root, error) {
	above, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer above.Close()
	return above.OpenRoot(filepath.Base(path))
}

// noteHash notes the hash of a whole file.
func (f *Fetch) noteHash(part, hash string) error {
	_, err := fmt.Fprintf(f.hashes, "%s %s\n", part, hash)
	return err
}

// openHashes opens the file of hashes, when some are to be noted.
func (f *Fetch) openHashes() (err error) {
	for _, file := range f.Manifest.Files {
		if file.SHA256 == "" {
			f.hashes, err = f.in.OpenFile(hashesFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
			return err
		}
	}
	return nil
}

// DropParts removes what was left of files that cannot be resumed.
func DropParts(staging string) error {
	in, err := openStaging(staging)
	if err != nil {
		return err
	}
	defer in.Close()
	parts, err := fs.Glob(in.FS(), "part-*")
	if err != nil {
		return err
	}
	for _, name := range append(parts, hashesFile) {
		if err := in.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
