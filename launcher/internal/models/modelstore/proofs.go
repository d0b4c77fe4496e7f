package modelstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// ProofsDir is the store's folder of proofs. A proof is an empty file. Its name is a hash of
// what it proves, and its time is when that was proved.
const ProofsDir = "proofs"

func (r *Reader) proof(name string) string { return filepath.Join(r.dir, ProofsDir, name) }

// ProvedAt returns when a proof was recorded; the error is fs.ErrNotExist if it was not.
func (r *Reader) ProvedAt(name string) (when time.Time, err error) {
	info, err := os.Lstat(r.proof(name))
	if err != nil {
		return when, err
	}
	if !info.Mode().IsRegular() {
		return when, &LayoutError{Dir: r.dir, Name: filepath.Join(ProofsDir, name), Is: info.Mode().Type()}
	}
	return info.ModTime(), nil
}

// RecordProof records a proof now, and removes those that are older than they last.
func (r *Reader) RecordProof(name string, last time.Duration) error {
	return r.within(func(root *os.Root) error {
		if err := root.Mkdir(ProofsDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := r.write(r.proof(name), nil, 0o600); err != nil {
			return err
		}
		if err := root.Chtimes(filepath.Join(ProofsDir, name), time.Time{}, time.Now()); err != nil {
			return err
		}
		all, err := r.ownEntries(ProofsDir, isBlob) // their names look alike
		for _, e := range all {
			if info, gone := e.Info(); gone == nil && time.Since(info.ModTime()) > last {
				err = errors.Join(err, r.removeFile(r.proof(e.Name())))
			}
		}
		return err
	})
}

// DropProof removes a proof, if it is there.
func (r *Reader) DropProof(name string) error {
	if err := r.removeFile(r.proof(name)); err != nil {
		return fmt.Errorf("cannot remove a proof: %w", err)
	}
	return nil
}
