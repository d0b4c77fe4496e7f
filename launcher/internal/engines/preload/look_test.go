package preload

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestLookAnswersLikeCheckWithoutSideEffects(t *testing.T) {
	f := newFixture(t, withLinkedCommand)
	f.ready()
	uncommon := append(f.environ(), "OMP_NUM_THREADS=2")
	assert.NoError(t, f.pool.Look(f.environ()))
	require.ErrorContains(t, f.pool.Look(uncommon), "no preloader is ready for the instance's environment")
	require.Len(t, f.pool.List().Preloaders, 1, "none was begun for it")
	f.ready("OMP_NUM_THREADS=2")
	assert.NoError(t, f.pool.Look(uncommon))

	f.linkTo("elsewhere")
	require.ErrorContains(t, f.pool.Look(f.environ()), "has changed")
	for _, l := range f.pool.List().Preloaders {
		assert.Equal(t, string(Ready), l.State, "none was ended")
	}
	require.ErrorContains(t, f.pool.Check(f.environ()), "has changed")
	f.eventually("a check has it loaded again", func() bool { return f.pool.Look(f.environ()) == nil })
}

func TestPoolAnswersWhileTheInstallationIsRead(t *testing.T) {
	f := newFixture(t, withLinkedCommand)
	f.ready()
	was, err := os.Readlink(f.command)
	require.NoError(t, err)
	require.NoError(t, unix.Mkfifo(f.command+".new", 0o700)) // which is read until somebody has written to it
	require.NoError(t, os.Rename(f.command+".new", f.command))
	checked := make(chan error, 1)
	go func() { checked <- f.pool.Check(f.environ()) }()
	var disk *os.File
	f.eventually("the command is read", func() bool {
		disk, err = os.OpenFile(f.command, os.O_WRONLY|unix.O_NONBLOCK, 0)
		return err == nil
	})
	listed := make(chan launcherapi.PreloaderList, 1)
	go func() { listed <- f.pool.List() }()
	select {
	case list := <-listed:
		assert.Len(t, list.Preloaders, 1)
	case <-time.After(patience.Wait()):
		t.Error("the list waits for the disk")
	}
	require.NoError(t, os.Symlink(was, f.command+".new"))
	require.NoError(t, os.Rename(f.command+".new", f.command))
	require.NoError(t, disk.Close())
	require.ErrorContains(t, <-checked, "has changed")
	f.ready()
}
