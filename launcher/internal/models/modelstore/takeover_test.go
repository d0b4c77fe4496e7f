package modelstore

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

// ofEarlierRelease makes the lease of a holder one that the release before has written.
func ofEarlierRelease(t *testing.T, u *User, holder, key string) (file string) {
	t.Helper()
	boot, err := procfs.BootID()
	require.NoError(t, err)
	file = filepath.Join(u.dir, leasesDir, recordName(u.name+"\x00"+holder+"\x00"+boot))
	text := `{"key":"` + key + `","holder":"` + holder + `","user":"` + u.name + `","boot_id":"` + boot + `"}`
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	return file
}

// The Pod of the release before still ends, beside that of this release.
func TestLeaseOfAnotherLaunchersEarlierReleaseIsNotTakenAgain(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	u := launcherOf(t, s, "x", "second")
	require.NoError(t, u.ReleaseOthers(func(string) bool { return false }))
	file := ofEarlierRelease(t, u, "instance a", v.Key)
	require.NoError(t, u.renew())
	require.NoError(t, os.Remove(file))
	require.NoError(t, u.renew())
	require.NoError(t, s.Remove(v.Key, ""), "this launcher never had the instance")
}

func TestLeaseOfAnEarlierReleaseBecomesItsLaunchers(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v, later := put(t, s, "hf://org/name", "c0ffee", twoFiles), put(t, s, "hf://org/other", "c0ffee", twoFiles)
	boot, err := procfs.BootID()
	require.NoError(t, err)
	u := launcherOf(t, s, "x", "first")
	require.NoError(t, u.Lease(later.Key, "instance b"))
	require.NoError(t, u.Close())
	u = launcherOf(t, s, "x", "first")
	var earlier []string
	for _, holder := range []string{"instance a", "instance b", "instance gone"} {
		earlier = append(earlier, ofEarlierRelease(t, u, holder, v.Key))
	}
	require.NoError(t, u.ReleaseOthers(func(holder string) bool { return holder != "instance gone" }))
	for _, file := range earlier {
		assert.NoFileExists(t, file)
	}
	l, err := readLease(u.leaseFile("instance b", boot))
	require.NoError(t, err)
	assert.Equal(t, later.Key, l.Key, "its own lease counts")
	file := u.leaseFile("instance a", boot)
	require.FileExists(t, file)
	require.NoError(t, os.Remove(file))
	require.NoError(t, u.renew())
	assert.FileExists(t, file, "it is this launcher's")
	holders, err := s.Holders(v.Key)
	require.NoError(t, err)
	assert.Equal(t, []string{"instance a of x"}, holders)
}

// The Pod of the release before has an instance of the same name.
func TestOwnLeaseIsRetakenBesideOneOfAnEarlierRelease(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	boot, err := procfs.BootID()
	require.NoError(t, err)
	u := launcherOf(t, s, "x", "second")
	require.NoError(t, u.Lease(v.Key, "instance a"))
	ofEarlierRelease(t, u, "instance a", v.Key)
	require.NoError(t, os.Remove(u.leaseFile("instance a", boot)))
	require.NoError(t, u.renew())
	assert.FileExists(t, u.leaseFile("instance a", boot))
}

func TestLeasesUnderAnEarlierNameAreTakenOver(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	before, now := user(t, s, "the launcher of /x"), user(t, s, "the launcher of /x (0123)")
	for _, holder := range []string{"instance mine", "instance another's"} {
		require.NoError(t, before.Lease(v.Key, holder))
	}
	for range 2 { // the second time there is nothing to take over
		require.NoError(t, now.TakeOver("the launcher of /x", func(holder string) bool { return holder == "instance mine" }))
		holders, err := s.Holders(v.Key)
		require.NoError(t, err)
		assert.Equal(t, []string{"instance another's of the launcher of /x", "instance mine of the launcher of /x (0123)"}, holders)
	}
	require.NoError(t, now.ReleaseOthers(func(string) bool { return false }))
	holders, err := s.Holders(v.Key)
	require.NoError(t, err)
	assert.Equal(t, []string{"instance another's of the launcher of /x"}, holders)
}
