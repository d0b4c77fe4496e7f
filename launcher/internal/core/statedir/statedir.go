// Package statedir keeps what the next launcher must know when one has died: one
// small file for each instance and for each swap, in a folder that one process at a
// time may use.
//
// A file is replaced whole by a rename, so that it holds the record before or the
// new one, wherever the launcher dies. Records are about processes, which do not
// outlive the machine: nothing is flushed to the disk.
package statedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Dir is a state folder that this process has locked.
type Dir struct {
	path string
	lock *folderLock
	// New says that no launcher has used the folder before.
	New bool
}

// Open locks a state folder, which it creates where there is none. The error is a
// [*FolderError] for a folder that is not this user's own, a [*LockedError] where another
// process has it, and an [*OldFormError] for a folder of an earlier version of this
// program, in which nothing is changed.
func Open(path string) (*Dir, error) {
	_, unused := os.Lstat(filepath.Join(path, lockFile))
	lock, err := lockFolder(path)
	if err != nil {
		return nil, err
	}
	d := &Dir{path: path, lock: lock, New: errors.Is(unused, fs.ErrNotExist)}
	if _, err := os.Lstat(filepath.Join(path, oldJournal)); err == nil {
		return nil, errors.Join(&OldFormError{Dir: path}, d.Close())
	}
	return d, nil
}

// LastPID is the id of the process that had the folder before, or had the folder that this
// one was copied from; 0: it is not known.
func (d *Dir) LastPID() int { return d.lock.last }

// Close unlocks the folder.
func (d *Dir) Close() error { return d.lock.close() }

// Records opens the files of one kind, which have a folder of their own. The error
// says why that folder cannot be made.
func (d *Dir) Records(kind string) (*Records, error) {
	r := &Records{dir: filepath.Join(d.path, kind), doubtful: map[string]bool{}}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create a folder in the state folder: %w", err)
	}
	return r, nil
}

// oldJournal is the file in which earlier versions kept everything.
const oldJournal = "journal"

// OldFormError says that a state folder is that of an earlier version of this
// program.
type OldFormError struct{ Dir string }

func (e *OldFormError) Error() string {
	return fmt.Sprintf("cannot use the state folder %s: it has the journal of an earlier version, which this version does not read; end the engines which that version left running, then remove the folder, or choose another by --state-dir", e.Dir)
}
