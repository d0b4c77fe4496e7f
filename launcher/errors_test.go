package launcher

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestErrorShowsAndWrapsItsCause(t *testing.T) {
	err := Storagef("cannot write %s down: %w", "a", fs.ErrPermission)
	assert.Equal(t, "cannot write a down: permission denied", err.Detail)
	assert.ErrorIs(t, err, fs.ErrPermission)
	assert.Equal(t, launcherapi.CodeNoAccess, CodeOf(errors.Join(err, nil)))
	assert.Equal(t, "body.x", Invalidf("body.x", "%w", fs.ErrInvalid).Location)
	assert.NoError(t, errors.Unwrap(Conflictf("no more to say")))
}

func TestStorageErrorTellsNoAccessFromNoRoom(t *testing.T) {
	for cause, code := range map[error]string{
		syscall.ENOSPC: launcherapi.CodeStorage, syscall.EDQUOT: launcherapi.CodeStorage, syscall.EIO: launcherapi.CodeStorage,
		syscall.EROFS: launcherapi.CodeNoAccess, syscall.EACCES: launcherapi.CodeNoAccess, syscall.EPERM: launcherapi.CodeNoAccess,
	} {
		assert.Equal(t, code, Storagef("cannot write: %w", &fs.PathError{Op: "open", Path: "x", Err: cause}).Code, cause)
	}
	assert.Equal(t, launcherapi.CodeStorage, Storagef("there is no room for this").Code)
}
