package harness

import (
	"errors"
	"os"
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
	dir, err := os.MkdirTemp("", "hs")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}
