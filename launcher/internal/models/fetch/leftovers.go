package fetch

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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

func look(staging string) (l leftovers, err error) {
	l = leftovers{names: map[string]bool{}, hashes: map[string]string{}}
	entries, err := os.ReadDir(staging)
	if err != nil {
		return l, err
	}
	for _, e := range entries {
		l.names[e.Name()] = true
	}
	if !l.names[hashesFile] {
		return l, nil
	}
	text, err := os.ReadFile(filepath.Join(staging, hashesFile))
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

// noteHash notes the hash of a whole file.
func (f *Fetch) noteHash(part, hash string) error {
	_, err := fmt.Fprintf(f.hashes, "%s %s\n", part, hash)
	return err
}

// openHashes opens the file of hashes, when some are to be noted.
func (f *Fetch) openHashes() (err error) {
	for _, file := range f.Manifest.Files {
		if file.SHA256 == "" {
			f.hashes, err = os.OpenFile(filepath.Join(f.Staging, hashesFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
			return err
		}
	}
	return nil
}

// DropParts removes what was left of files that cannot be resumed.
func DropParts(staging string) error {
	parts, err := filepath.Glob(filepath.Join(staging, "part-*"))
	if err != nil {
		return err
	}
	for _, path := range append(parts, filepath.Join(staging, hashesFile)) {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}
