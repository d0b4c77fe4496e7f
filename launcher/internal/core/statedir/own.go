package statedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A launcher writes, replaces and removes files in its state folder. So it takes only a
// folder that is a launcher's, or has nothing of others:
//
//	the folder                                             effect
//	has the file .hotseat-state                            it is taken
//	has nothing in it                                      it is marked by that file, and taken
//	has what only a launcher writes, see [othersIn]        likewise: it is of a release before
//	                                                       the mark, or has lost its mark
//	likewise, and files of others where a launcher would   it is refused, and stays as it is
//	take them for its own
//	has anything else                                      likewise

// folderMark is the file that makes a folder a state folder. Its presence counts, and not
// its text, which is for people.
const folderMark = ".hotseat-state"

const folderMarkText = "This folder is a state folder of hotseat. A launcher writes and removes files in it.\n"

// isMarked reports whether a folder has the mark of a state folder.
func isMarked(dir string) (bool, error) {
	info, err := os.Lstat(filepath.Join(dir, folderMark))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("cannot look for the mark of the state folder: %w", err)
	case !info.Mode().IsRegular():
		return false, notOwn(dir, []string{folderMark})
	}
	return true, nil
}

// markFolder marks a folder, unless it is marked. On a full disk the text may be missing.
func markFolder(dir string) error {
	if marked, err := isMarked(dir); marked || err != nil {
		return err
	}
	f, err := openOwn(filepath.Join(dir, folderMark), os.O_WRONLY|os.O_CREATE)
	if err != nil {
		return fmt.Errorf("cannot mark the state folder: %w", err)
	}
	_, _ = f.WriteString(folderMarkText)
	if err := f.Close(); err != nil {
		return fmt.Errorf("cannot mark the state folder: %w", err)
	}
	return nil
}

// checkOwn returns a [*FolderError] for a folder that has no mark and has files of others.
// entries were read before: if another launcher has written them, it has marked the folder by
// now.
func checkOwn(dir string, entries []fs.DirEntry) error {
	if marked, err := isMarked(dir); marked || err != nil {
		return err
	}
	others, err := othersIn(dir, entries)
	if err != nil {
		return fmt.Errorf("cannot look into the state folder: %w", err)
	}
	if len(others) == 0 {
		return nil
	}
	return notOwn(dir, others)
}

// notOwn makes the error for a folder that has files of others.
func notOwn(dir string, others []string) error {
	const most = 5
	has := strings.Join(others[:min(most, len(others))], ", ")
	if len(others) > most {
		has += ", …"
	}
	return &FolderError{dir, fmt.Sprintf("it has files that no launcher has written (%s); choose an empty folder by --state-dir, such as %s, or move these files out of a state folder of an earlier release", has, filepath.Join(dir, "hotseat-state"))}
}
