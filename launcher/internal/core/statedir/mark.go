package statedir

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// markFile holds the mark of the launcher that uses the folder.
const markFile = "mark"

// A mark is 32 random digits, which nobody can guess, and the device and inode of the
// folder that it was made for. A copy of that folder has another inode.
var marks = regexp.MustCompile(`^[0-9a-f]{32}(-[0-9a-f]{1,16}-[0-9a-f]{1,16})$`)

// Mark returns the mark of the launcher that uses the folder, which its processes carry in
// their environment:
//
//	the file of the folder    the recorded marks     the mark
//	was made for it           —                      that of the file
//	another, damaged, none    one was made for it    the last of those
//	another, damaged, none    none was               a new one
//
// recorded are the marks in the records of instances, oldest first. The error says that
// the file cannot be read, or holds something else; there is a mark all the same.
func (d *Dir) Mark(recorded []string) (string, error) {
	home, err := d.home()
	if err != nil {
		return "", err
	}
	kept, damage := d.keptMark()
	for _, mark := range slices.Backward(append(slices.Clone(recorded), kept)) {
		if parts := marks.FindStringSubmatch(mark); parts != nil && parts[1] == home {
			return mark, damage
		}
	}
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails, see crypto/rand
	return hex.EncodeToString(random) + home, damage
}

// home is the part of a mark that names the folder.
func (d *Dir) home() (string, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(d.lock.folder.Fd()), &stat); err != nil {
		return "", fmt.Errorf("cannot identify the state folder: %w", err)
	}
	return fmt.Sprintf("-%x-%x", stat.Dev, stat.Ino), nil
}

// keptMark returns the mark in the file; empty: there is none.
func (d *Dir) keptMark() (string, error) {
	path := filepath.Join(d.path, markFile)
	text, err := readOwn(path)
	mark := strings.TrimSpace(string(text))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("cannot read the launcher's mark: %w", err)
	case !marks.MatchString(mark):
		return "", fmt.Errorf("cannot read the launcher's mark: %s holds something else", path)
	}
	return mark, nil
}

// KeepMark writes the mark for later launchers, and that of the folder, unless they are
// written: a cleaner of temporary files may have removed them.
func (d *Dir) KeepMark(mark string) error {
	return errors.Join(markFolder(d.path), d.writeMark(mark))
}

func (d *Dir) writeMark(mark string) error {
	if kept, _ := d.keptMark(); kept == mark {
		return nil
	}
	whole := filepath.Join(d.path, markFile+spare)
	err := writeOver(whole, []byte(mark+"\n"))
	if err == nil {
		err = os.Rename(whole, filepath.Join(d.path, markFile))
	}
	if err != nil {
		_ = os.Remove(whole) // a part of a file takes room
		return fmt.Errorf("cannot keep the launcher's mark: %w", err)
	}
	return nil
}
