package harness

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// OwnTemporaryFolder makes a folder for the temporary files of this test program and of the
// programs that it starts. A launcher whose state folder has a long path keeps the folder for
// its sockets there, and leaves it. The caller removes the folder in the end.
func OwnTemporaryFolder() (string, error) {
	dir, err := TemporaryFolder()
	if err != nil {
		return "", err
	}
	return dir, os.Setenv("TMPDIR", dir)
}

// TemporaryFolder makes a folder in which sockets have room. The folders in it say who may enter them.
func TemporaryFolder() (string, error) {
	dir, err := Folder("hs")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// Folder makes a temporary folder with a name that begins so. The caller removes it in the end. A test
// program that a signal ends does not, so this also removes the folders that it once made for programs
// that are gone.
func Folder(prefix string) (string, error) {
	me, err := identity("self")
	if err != nil {
		return "", err
	}
	removeAbandoned()
	dir, err := os.MkdirTemp("", prefix)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, ownerFile), []byte(me), 0o600)
	}
	return dir, err
}

// ownerFile is the file of a folder that names the process that it was made for.
const ownerFile = ".test-owner"

// identity names a process so that no later one has the same name: by its namespace of process ids, its
// id there, and when it began, which is the 22nd field of its line.
func identity(pid string) (string, error) {
	line, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return "", err
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "", err
	}
	id, _, _ := strings.Cut(string(line), " ")
	fields := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:]) // the name of the program may have anything in it
	if len(fields) < 20 {
		return "", fmt.Errorf("cannot read when process %s began: %q", pid, line)
	}
	return strings.Join([]string{space, id, string(fields[19])}, " "), nil
}

// removeAbandoned removes the folders that were made for processes that are gone. It leaves those of other
// namespaces alone, whose processes it cannot see. The next one tries again to remove what is left.
func removeAbandoned() {
	files, _ := filepath.Glob(filepath.Join(os.TempDir(), "*", ownerFile))
	space, _ := os.Readlink("/proc/self/ns/pid")
	for _, file := range files {
		owner, err := os.ReadFile(file)
		fields := strings.Fields(string(owner))
		if err != nil || len(fields) != 3 || fields[0] != space {
			continue
		}
		now, err := identity(fields[1])
		if now != string(owner) && (err == nil || errors.Is(err, fs.ErrNotExist)) {
			_ = os.RemoveAll(filepath.Dir(file))
		}
	}
}
