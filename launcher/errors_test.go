package launcher

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestAnErrorTellsAndWrapsWhatIsBehindIt(t *testing.T) {
	err := Storagef("cannot write %s down: %w", "a", fs.ErrPermission)
	assert.Equal(t, "cannot write a down: permission denied", err.Detail)
	assert.ErrorIs(t, err, fs.ErrPermission)
	assert.Equal(t, launcherapi.CodeStorage, CodeOf(errors.Join(err, nil)))
	assert.Equal(t, "body.x", Invalidf("body.x", "%w", fs.ErrInvalid).Location)
	assert.NoError(t, errors.Unwrap(Conflictf("no more to say")))
}
