package modelstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
	"hotseat.dev/hotseat/test/helpers/patience"
)

func launcherOf(t *testing.T, s *Store, name, mark string) *User {
	t.Helper()
	u, err := NewUser(s.dir, name, mark)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, u.Close()) })
	return u
}

func TestLaunchersOfOneNameLeaveEachOthersLeases(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v, other := put(t, s, "hf://org/name", "c0ffee", twoFiles), put(t, s, "hf://org/other", "c0ffee", twoFiles)
	none := func(string) bool { return false }
	first, second := launcherOf(t, s, "x", "first"), launcherOf(t, s, "x", "second")
	require.NoError(t, first.Lease(v.Key, "instance a"))
	require.NoError(t, second.ReleaseOthers(none))
	require.NoError(t, second.Lease(other.Key, "instance a"))
	boot, err := procfs.BootID()
	require.NoError(t, err)
	require.NoError(t, os.Remove(second.leaseFile("instance a", boot)))
	require.NoError(t, second.renew())
	assert.FileExists(t, second.leaseFile("instance a", boot), "it renews its own")
	require.NoError(t, second.Release("instance a"))
	var used *InUseError
	require.ErrorAs(t, s.Remove(v.Key, ""), &used)
	assert.Equal(t, []string{"instance a of x"}, used.Holders, "the first one lives")

	renewedBefore(t, first.leaseFile("instance a", boot), leaseLasts+time.Second)
	require.NoError(t, second.ReleaseOthers(none))
	require.ErrorAs(t, s.Remove(v.Key, ""), &used, "it lives, although the store held up its renewals")
	require.NoError(t, first.Close())
	require.NoError(t, launcherOf(t, s, "y", "third").ReleaseOthers(none))
	require.ErrorAs(t, s.Remove(v.Key, ""), &used, "a launcher of another name is no successor")
	require.NoError(t, second.ReleaseOthers(none))
	require.NoError(t, s.Remove(v.Key, ""))
	left, err := filepath.Glob(filepath.Join(s.dir, leasesDir, livingPrefix+"*"))
	require.NoError(t, err)
	assert.Len(t, left, 2, "of those that live")
}

// The first launcher is restarted in place, beside another of its name.
func TestRestartedLauncherKeepsItsLeases(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	before, second := launcherOf(t, s, "x", "first"), launcherOf(t, s, "x", "second")
	require.NoError(t, before.Lease(v.Key, "instance a"))
	require.NoError(t, before.Close())
	require.NoError(t, second.ReleaseOthers(func(string) bool { return false }))
	require.NoError(t, second.renew())
	again := launcherOf(t, s, "x", "first")
	require.NoError(t, again.renew())
	assert.Contains(t, again.held, "instance a")
	var used *InUseError
	require.ErrorAs(t, s.Remove(v.Key, ""), &used)
}

// The first launcher is killed after the second one has looked for left-over leases.
func TestLeftOverLeaseIsReleasedByALaterRenewal(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	first, second := launcherOf(t, s, "x", "first"), launcherOf(t, s, "x", "second")
	require.NoError(t, first.Lease(v.Key, "instance a"))
	require.NoError(t, second.ReleaseOthers(func(string) bool { return false }))
	require.NoError(t, first.Close())
	boot, err := procfs.BootID()
	require.NoError(t, err)
	file := first.leaseFile("instance a", boot)
	renewedBefore(t, file, leaseLasts-time.Minute)
	require.NoError(t, second.renew())
	require.FileExists(t, file)
	renewedBefore(t, file, leaseLasts+time.Second)
	require.NoError(t, second.renew())
	require.NoFileExists(t, file)
	require.NoError(t, s.Remove(v.Key, ""))
}

func TestLeasesAreRenewedOnAFullDisk(t *testing.T) {
	s, fill := onSmallDisk(t, Options{})
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	before := launcherOf(t, s, "x", "first")
	require.NoError(t, before.Lease(v.Key, "instance a"))
	require.NoError(t, before.Close())
	require.NoError(t, os.Remove(before.livingFile(before.launcher)))
	boot, err := procfs.BootID()
	require.NoError(t, err)
	file := before.leaseFile("instance a", boot)
	renewedBefore(t, file, time.Hour)
	fill()
	require.ErrorIs(t, launcherOf(t, s, "x", "first").renew(), unix.ENOSPC)
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Less(t, time.Since(info.ModTime()), time.Hour)
}

func TestLeasesAreReleasedAlthoughLeftOverOnesCannotBe(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	before := user(t, s, "x")
	require.NoError(t, before.Lease(v.Key, "instance a"))
	require.NoError(t, before.Close())
	file := before.livingFile(before.launcher)
	require.NoError(t, os.Remove(file))
	require.NoError(t, os.Mkdir(file, 0o755))
	require.ErrorContains(t, user(t, s, "x").ReleaseOthers(func(string) bool { return false }), "cannot lock the file that shows that this launcher lives")
	require.NoError(t, s.Remove(v.Key, ""))
}

func TestStoreThatMayNotBeChangedMattersOnlyToLeases(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	u := launcherOf(t, s, "x", "first")
	folder := filepath.Join(s.dir, leasesDir)
	renewReadOnly := func() (err error) {
		require.NoError(t, os.Chmod(folder, 0o555))
		asPlainUser(t, func() { err = u.renew() })
		require.NoError(t, os.Chmod(folder, 0o755))
		return err
	}
	require.NoError(t, renewReadOnly())
	require.NoError(t, os.Chmod(folder, 0o555))
	var released error
	asPlainUser(t, func() { released = u.ReleaseOthers(func(string) bool { return false }) })
	require.NoError(t, os.Chmod(folder, 0o755))
	require.NoError(t, released)
	require.NoError(t, u.Lease(v.Key, "instance a"))
	require.NoError(t, u.Close())
	require.NoError(t, os.Remove(u.livingFile(u.launcher)))
	require.ErrorIs(t, renewReadOnly(), fs.ErrPermission)
	require.NoError(t, u.Release("instance a"))
	require.NoError(t, u.unlessReadOnly(fmt.Errorf("open x: %w", unix.EROFS)))
	require.ErrorIs(t, u.unlessReadOnly(unix.EIO), unix.EIO)
}

// The file of another user may only be read.
func TestEndOfALauncherOfAnotherUserIsSeen(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	first, second := launcherOf(t, s, "x", "first"), launcherOf(t, s, "x", "second")
	require.NoError(t, first.renew())
	require.NoError(t, os.Chmod(first.livingFile(first.launcher), 0o444))
	lives := func() (launchers map[string]bool) {
		var err error
		asPlainUser(t, func() { launchers, err = second.livingLaunchers() })
		require.NoError(t, err)
		return launchers
	}
	assert.True(t, lives()[first.launcher])
	require.NoError(t, first.Close())
	assert.False(t, lives()[first.launcher])
	assert.NoFileExists(t, first.livingFile(first.launcher))
}

// asPlainUser calls f on a thread to which the rights of files apply, also where root runs
// the tests.
func asPlainUser(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		err := unix.Capset(&header, &none[0])
		if err == nil {
			f()
		}
		done <- err
	}()
	require.NoError(t, <-done)
}

func TestLauncherLivesAlsoInARestoredFolder(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	u := launcherOf(t, s, "x", "first")
	require.NoError(t, u.renew())
	file := u.livingFile(u.launcher)
	for name, replace := range map[string]func() error{
		"removed":  func() error { return os.Remove(file) },
		"restored": func() error { return errors.Join(os.Remove(file), os.WriteFile(file, nil, 0o644)) },
	} {
		require.NoError(t, replace(), name)
		require.NoError(t, u.renew(), name)
		lives, err := launcherOf(t, s, "x", "second").livingLaunchers()
		require.NoError(t, err, name)
		assert.True(t, lives[u.launcher], name)
	}
}

// A renewal that a disk holds up has the lock of the user.
func TestCloseDoesNotWaitForARenewal(t *testing.T) {
	u := launcherOf(t, open(t, Options{Dir: t.TempDir()}), "x", "first")
	require.NoError(t, u.renew())
	u.mu.Lock()
	closed := make(chan error, 1)
	go func() { closed <- u.Close() }()
	select {
	case err := <-closed:
		require.ErrorContains(t, err, "does not answer")
	case <-time.After(patience.Wait()):
		t.Error("it waits")
	}
	u.mu.Unlock()
	require.NotNil(t, u.living)
}

func TestLauncherLivesAlsoWithoutALease(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	before := launcherOf(t, s, "x", "first")
	require.NoError(t, before.Lease(v.Key, "instance a"))
	require.NoError(t, before.Close())
	again := launcherOf(t, s, "x", "first")
	require.NoError(t, again.renew(), "it has adopted its instances")
	require.NoError(t, launcherOf(t, s, "x", "second").ReleaseOthers(func(string) bool { return false }))
	var used *InUseError
	require.ErrorAs(t, s.Remove(v.Key, ""), &used)
	require.NoError(t, again.ReleaseOthers(func(string) bool { return false }))
	require.NoError(t, s.Remove(v.Key, ""))
}

func TestMarkOfALauncherIsInNoLease(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	require.NoError(t, launcherOf(t, s, "x", "secret").Lease(v.Key, "instance a"))
	files, err := filepath.Glob(filepath.Join(s.dir, leasesDir, "*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.NotContains(t, path+string(text), "secret", "everybody can read the leases")
	}
}
