package modelstore

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/modelref"
)

var twoFiles = map[string]string{"config.json": "{}", "sub/model.safetensors": "weights"}

func TestPublishedModelIsServedByNames(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	m, content := manifest("hf://org/name", "c0ffee", twoFiles)
	m.Ref = "main"
	f, err := s.Admit(m, Want{})
	require.NoError(t, err)
	for hash, text := range content {
		require.NoError(t, os.WriteFile(filepath.Join(f.Staging(), hash), []byte(text), 0o600))
	}
	v, err := f.Publish(m)
	require.NoError(t, err)
	require.NoError(t, s.Verify(v.Key))
	for name, text := range twoFiles {
		got, err := os.ReadFile(filepath.Join(s.Files(v.Key), name))
		require.NoError(t, err)
		assert.Equal(t, text, string(got))
	}
	assert.Equal(t, "c0ffee", means(t, s, "main"))
	staged, err := os.ReadDir(filepath.Join(s.dir, stagingDir))
	require.NoError(t, err)
	assert.Empty(t, staged)

	require.NoError(t, s.Remove(v.Key, ""))
	used, err := s.Used()
	require.NoError(t, err)
	assert.Zero(t, used)
}

func TestSharedFileIsStoredOnceUntilLastModelGoes(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	one := put(t, s, "hf://org/one", "c0ffee", twoFiles)
	two := put(t, s, "https://host/two/", "1", twoFiles)
	used, err := s.Used()
	require.NoError(t, err)
	assert.EqualValues(t, len("{}")+len("weights"), used)
	require.NoError(t, s.Remove(one.Key, ""))
	require.NoError(t, s.Verify(two.Key))
	require.NoError(t, s.Remove(two.Key, ""))
	used, err = s.Used()
	require.NoError(t, err)
	assert.Zero(t, used)
}

func TestDamagedModelIsNotServedAndIsFetchedAgain(t *testing.T) {
	weights := filepath.Join(filesDir, "sub/model.safetensors")
	for name, c := range map[string]struct {
		spoil func(t *testing.T, version string)
		says  string // "": there is no such version
	}{
		"a file is deleted": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, weights)))
		}, "is missing"},
		"a file is shortened": {func(t *testing.T, dir string) {
			require.NoError(t, os.Truncate(filepath.Join(dir, weights), 3))
		}, "has 3 bytes, but should have 7"},
		"a byte is altered": {func(t *testing.T, dir string) {
			require.NoError(t, os.Chmod(filepath.Join(dir, weights), 0o644))
			require.NoError(t, os.WriteFile(filepath.Join(dir, weights), []byte("wEights"), 0o644))
		}, "was changed after its publication"},
		"a file is a link": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, weights)))
			require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, weights)))
		}, "is no longer a regular file"},
		"the manifest is cut": {func(t *testing.T, dir string) {
			require.NoError(t, os.Truncate(filepath.Join(dir, markFile), 20))
		}, "manifest is damaged"},
		"the manifest is another's": {func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, markFile), []byte(`{"uri":"x","files":[{"path":"a"}]}`), 0o600))
		}, "that of another version"},
		"the mark is removed": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, markFile)))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Options{Dir: t.TempDir()})
			v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
			used, err := os.Open(filepath.Join(s.Files(v.Key), "config.json"))
			require.NoError(t, err)
			defer used.Close()
			c.spoil(t, s.version(v.Key))
			got, found := s.Version(v.Key)
			assert.Equal(t, c.says != "", found)
			if found {
				require.ErrorContains(t, got.Damage, c.says)
			}
			u := user(t, s, "x")
			require.Error(t, u.Lease(v.Key, "a"))

			put(t, s, "hf://org/name", "c0ffee", twoFiles)
			require.NoError(t, s.Verify(v.Key))
			require.NoError(t, u.Lease(v.Key, "a"))
			require.NoError(t, u.Release("a"))
			text := make([]byte, 2)
			_, err = used.ReadAt(text, 0)
			require.NoError(t, err, "who has a file open keeps it")
			assert.Equal(t, "{}", string(text))
		})
	}
}

func TestVerifyFindsChangedByte(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	path := filepath.Join(s.Files(v.Key), "sub/model.safetensors")
	require.NoError(t, os.Chmod(path, 0o644))
	require.NoError(t, os.WriteFile(path, []byte("wEights"), 0o644))
	require.NoError(t, os.Chtimes(path, blobTime, blobTime))
	got, _ := s.Version(v.Key)
	require.NoError(t, got.Damage)
	require.ErrorContains(t, s.Verify(v.Key), "model.safetensors has the sha256")
	got, _ = s.Version(v.Key)
	require.ErrorContains(t, got.Damage, "was changed after its publication", "what was found stays known")
	put(t, s, "hf://org/name", "c0ffee", twoFiles)
	require.NoError(t, s.Verify(v.Key))
}

func TestConflictingRefNamesDoNoHarm(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	commits := []string{"c0ffee", "decaf", "facade"}
	for n, ref := range []string{"release", "release/v1", "release"} {
		v := putRef(t, s, "hf://org/name", commits[n], ref, twoFiles)
		assert.Equal(t, v.Manifest.Revision, means(t, s, ref))
		time.Sleep(2 * time.Millisecond) // who is the newest is told by the time
	}
	for _, commit := range commits {
		v, err := s.Find("org/name@" + commit)
		require.NoError(t, err)
		require.NoError(t, s.Remove(v.Key, ""))
	}
}

// If the owner ends before the publication, the fetched files stay for the next try.
func TestUnfinishedPublicationCostsNothing(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Options{Dir: dir})
	require.NoError(t, err)
	put(t, s, "https://host/other/", "1", map[string]string{"config.json": "{}"})
	m, content := manifest("hf://org/name", "c0ffee", twoFiles)
	f, err := s.Admit(m, Want{})
	require.NoError(t, err)
	for hash, text := range content {
		require.NoError(t, os.WriteFile(filepath.Join(f.Staging(), hash), []byte(text), 0o600))
	}
	require.NoError(t, f.build(filepath.Join(f.Staging(), treeDir), m))
	require.NoError(t, s.Close())

	s = open(t, Options{Dir: dir})
	used, err := s.Used()
	require.NoError(t, err)
	assert.EqualValues(t, len("{}"), used)
	f, err = s.Admit(m, Want{})
	require.NoError(t, err)
	v, err := f.Publish(m)
	require.NoError(t, err)
	require.NoError(t, s.Verify(v.Key))
}

func TestIncompleteFetchIsNotPublished(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	m, content := manifest("hf://org/name", "c0ffee", twoFiles)
	f, err := s.Admit(m, Want{})
	require.NoError(t, err)
	_, err = f.Publish(m)
	require.ErrorContains(t, err, "was not fetched")
	for hash := range content {
		require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(f.Staging(), hash)))
	}
	_, err = f.Publish(m)
	require.ErrorContains(t, err, "not fetched as a file")
	v, _ := s.Version(m.Key())
	require.ErrorContains(t, v.Damage, "0 bytes of 9 bytes are fetched")
	_, err = s.Admit(&fetchapi.Manifest{URI: "x", Files: []fetchapi.File{{Path: "../x"}}}, Want{})
	require.Error(t, err)
	require.NoError(t, f.GiveUp(true))
	_, err = os.Lstat(f.Staging())
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestAdmissionCountsPromisedBytes(t *testing.T) {
	big := func(uri string, size int64) *fetchapi.Manifest {
		return &fetchapi.Manifest{URI: uri, Revision: "1", Files: []fetchapi.File{{Path: "a", Size: size}}}
	}
	s := open(t, Options{Dir: t.TempDir(), Limit: 100})
	put(t, s, "hf://org/name", "c0ffee", map[string]string{"a": "0123456789"})
	one, err := s.Admit(big("https://host/one", 60), Want{})
	require.NoError(t, err)
	_, err = s.Admit(big("https://host/two", 31), Want{})
	var full *CapacityError
	require.ErrorAs(t, err, &full)
	assert.Equal(t, &CapacityError{Needed: 31, Limit: 100, Used: 10, Pending: 60}, full)
	two, err := s.Admit(big("https://host/two", 30), Want{})
	require.NoError(t, err)
	_, err = s.Admit(big("https://host/two", 0), Want{})
	require.ErrorContains(t, err, "being fetched already")
	require.NoError(t, os.WriteFile(filepath.Join(one.Staging(), "part-0"), make([]byte, 60), 0o600))
	require.NoError(t, one.GiveUp(false))
	require.NoError(t, two.GiveUp(false))

	// The files of an interrupted fetch stay until their room is needed and is enough.
	small, err := s.Admit(big("https://host/three", 20), Want{})
	require.NoError(t, err)
	_, err = os.Lstat(one.Staging())
	require.NoError(t, err)
	require.NoError(t, small.GiveUp(false))
	_, err = s.Admit(big("https://host/three", 91), Want{})
	require.ErrorAs(t, err, &full)
	_, err = os.Lstat(one.Staging())
	require.NoError(t, err)
	large, err := s.Admit(big("https://host/three", 90), Want{})
	require.NoError(t, err)
	_, err = os.Lstat(one.Staging())
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, large.GiveUp(true))
	_, err = s.Admit(big("https://host/four", 1<<62), Want{})
	require.ErrorAs(t, err, &full)

	unlimited := open(t, Options{Dir: t.TempDir()})
	_, err = unlimited.Admit(big("https://host/four", 1<<62), Want{})
	require.ErrorAs(t, err, &full)
	assert.True(t, full.Disk)
}

func TestPartialModelIsListedAndCanBeRemoved(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	m, content := manifest("hf://org/name", "c0ffee", twoFiles)
	f, err := s.Admit(m, Want{})
	require.NoError(t, err)
	require.ErrorContains(t, s.Remove(m.Key(), ""), "being fetched")
	for hash, text := range content {
		if text == "weights" {
			require.NoError(t, os.WriteFile(filepath.Join(f.Staging(), hash), []byte(text), 0o600))
		}
	}
	require.NoError(t, f.GiveUp(false))
	v, err := s.Find("org/name")
	require.NoError(t, err)
	var partial *PartialError
	require.ErrorAs(t, v.Damage, &partial)
	assert.Equal(t, &PartialError{Fetched: 7, Bytes: 9}, partial)
	require.ErrorContains(t, user(t, s, "x").Lease(v.Key, "a"), "7 bytes of 9 bytes")
	require.NoError(t, s.Remove(v.Key, ""))
	left, err := os.ReadDir(filepath.Join(s.dir, stagingDir))
	require.NoError(t, err)
	assert.Empty(t, left)

	f, err = s.Admit(m, Want{})
	require.NoError(t, err)
	require.NoError(t, f.GiveUp(false))
	all, err := s.Versions()
	require.NoError(t, err)
	assert.Empty(t, all, "nothing has come")
}

func user(t *testing.T, s *Store, name string) *User {
	t.Helper()
	u, err := NewUser(s.dir, name, name)
	require.NoError(t, err)
	return u
}

func TestRemovalIsRefusedAndNamesLeaseHolders(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	u := user(t, s, "the launcher of /x")
	for _, holder := range []string{"instance b", "instance a", "instance a"} {
		require.NoError(t, u.Lease(v.Key, holder))
	}
	var used *InUseError
	require.ErrorAs(t, s.Remove(v.Key, ""), &used)
	assert.Equal(t, []string{"instance a of the launcher of /x", "instance b of the launcher of /x"}, used.Holders)
	require.NoError(t, u.Release("instance a"))
	require.NoError(t, u.Release("instance a"))
	require.NoError(t, u.Release("instance b"))
	require.NoError(t, s.Remove(v.Key, ""))
	var none *NotFoundError
	require.ErrorAs(t, u.Lease(v.Key, "instance a"), &none)
}

func TestLeaseOutlivesItsLauncher(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Options{Dir: dir})
	require.NoError(t, err)
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	for _, holder := range []string{"instance a", "instance b"} {
		require.NoError(t, user(t, s, "x").Lease(v.Key, holder))
	}
	gone := func(string) bool { return false }
	require.NoError(t, user(t, s, "y").ReleaseOthers(gone), "those of another launcher are its own")
	var used *InUseError
	require.ErrorAs(t, s.Remove(v.Key, ""), &used)
	assert.Equal(t, []string{"instance a of x", "instance b of x"}, used.Holders)
	again := user(t, s, "x")
	require.NoError(t, again.ReleaseOthers(func(holder string) bool { return holder == "instance b" }))
	require.ErrorAs(t, s.Remove(v.Key, ""), &used)
	assert.Equal(t, []string{"instance b of x"}, used.Holders)

	require.NoError(t, s.Close())
}

// fromElsewhere makes the lease of a holder one that another machine has taken.
func fromElsewhere(t *testing.T, u *User, holder string) (file string) {
	t.Helper()
	boot, err := procfs.BootID()
	require.NoError(t, err)
	text, err := os.ReadFile(u.leaseFile(holder, boot))
	require.NoError(t, err)
	file = u.leaseFile(holder, "elsewhere")
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(text), boot, "elsewhere")), 0o644))
	require.NoError(t, os.Remove(u.leaseFile(holder, boot)))
	return file
}

func renewedBefore(t *testing.T, file string, ago time.Duration) {
	t.Helper()
	then := time.Now().Add(-ago)
	require.NoError(t, os.Chtimes(file, then, then))
}

func TestLeaseOfAnotherBootCountsWhileItIsRenewed(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Options{Dir: dir})
	require.NoError(t, err)
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	u := user(t, s, "x")
	require.NoError(t, u.Lease(v.Key, "instance a"))
	file := fromElsewhere(t, u, "instance a")
	require.NoError(t, s.Close())
	s, err = Open(Options{Dir: dir, Limit: 10, Retention: LRU})
	require.NoError(t, err)
	var used *InUseError
	require.ErrorAs(t, s.Remove(v.Key, ""), &used)
	require.ErrorContains(t, used, "instance a of x (of another machine, or from before a restart: then until 20")
	large, _ := manifest("x://large", "1", map[string]string{"a": "0123456789"})
	_, err = s.Admit(large, Want{})
	require.ErrorContains(t, err, "in use by instance a of x", "no room is made of it")

	renewedBefore(t, file, leaseLasts+time.Second)
	holders, err := s.Holders(v.Key)
	require.NoError(t, err)
	assert.Empty(t, holders)
	require.NoError(t, s.Close())
	s, err = Open(Options{Dir: dir})
	require.NoError(t, err)
	renewedBefore(t, file, 0)
	require.ErrorAs(t, s.Remove(v.Key, ""), &used, "a machine that was suspended goes on to renew it")
	renewedBefore(t, file, leaseIsKept+time.Second)
	require.NoError(t, s.Remove(v.Key, ""))
	require.NoError(t, s.Close())
	reopen(t, dir)
	assert.NoFileExists(t, file)
}

func TestSameNamedLaunchersOnTwoMachinesHaveTheirOwnLeases(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v, other := put(t, s, "hf://org/name", "c0ffee", twoFiles), put(t, s, "hf://org/other", "c0ffee", twoFiles)
	u := user(t, s, "x")
	require.NoError(t, u.Lease(other.Key, "instance a"))
	file := fromElsewhere(t, u, "instance a")
	require.NoError(t, u.Lease(v.Key, "instance a"))
	require.NoError(t, u.ReleaseOthers(func(string) bool { return false }))
	require.NoError(t, s.Remove(v.Key, ""))
	require.NoError(t, u.Release("instance a"))
	var used *InUseError
	require.ErrorAs(t, s.Remove(other.Key, ""), &used)
	renewedBefore(t, file, time.Hour)
	require.NoError(t, u.renew())
	require.NoError(t, s.Remove(other.Key, ""), "nobody renews what is another's")
}

func TestLeaseOfAnEarlierReleaseIsRenewedAndReleased(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	u := user(t, s, "x")
	boot, err := procfs.BootID()
	require.NoError(t, err)
	for name, end := range map[string]func() error{
		"release": func() error { return u.Release("instance a") },
		"replace": func() error {
			return errors.Join(u.Lease(v.Key, "instance a"), os.Remove(u.leaseFile("instance a", boot)))
		},
	} {
		require.NoError(t, u.Lease(v.Key, "instance a"))
		earlier := filepath.Join(s.dir, leasesDir, recordName("x\x00instance a"))
		require.NoError(t, os.Rename(u.leaseFile("instance a", boot), earlier))
		renewedBefore(t, earlier, time.Hour)
		require.NoError(t, u.renew())
		info, err := os.Stat(earlier)
		require.NoError(t, err)
		assert.Less(t, time.Since(info.ModTime()), time.Hour)
		require.NoError(t, end(), name)
		assert.NoFileExists(t, earlier, name)
	}
}

func TestClockOfTheFileSystemEndsOldLeases(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Options{Dir: dir})
	require.NoError(t, err)
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	u := user(t, s, "x")
	var files []string
	for n, ago := range []time.Duration{0, leaseIsKept + time.Second} {
		holder := fmt.Sprint("instance ", n)
		require.NoError(t, u.Lease(v.Key, holder))
		files = append(files, fromElsewhere(t, u, holder))
		renewedBefore(t, files[n], ago)
	}
	require.NoError(t, s.Close())
	synctest.Test(t, func(t *testing.T) { // its clock begins in the year 2000
		reopen(t, dir)
		assert.NoFileExists(t, files[1], "the clock of the machine is slow")
		time.Sleep(100 * 365 * 24 * time.Hour)
		reopen(t, dir)
		assert.FileExists(t, files[0], "the clock of the machine is fast")
	})
}

func TestRemovedLeaseIsTakenAgain(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	u := user(t, s, "x")
	boot, err := procfs.BootID()
	require.NoError(t, err)
	for name, lease := range map[string]func() error{
		"its own":             func() error { return u.Lease(v.Key, "instance a") },
		"of its earlier life": func() error { return errors.Join(user(t, s, "x").Lease(v.Key, "instance a"), u.renew()) },
	} {
		require.NoError(t, lease(), name)
		require.NoError(t, os.Remove(u.leaseFile("instance a", boot)))
		require.NoError(t, u.renew())
		var used *InUseError
		require.ErrorAs(t, s.Remove(v.Key, ""), &used, name)
		require.NoError(t, u.Release("instance a"))
		require.NoError(t, u.renew())
		assert.NoFileExists(t, u.leaseFile("instance a", boot), "a released lease does not come back: %s", name)
	}
	require.NoError(t, s.Remove(v.Key, ""))
}

func TestLeasesAreRenewedAgainAndAgain(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	u := user(t, s, "x")
	require.NoError(t, u.Lease(v.Key, "instance a"))
	boot, err := procfs.BootID()
	require.NoError(t, err)
	file := u.leaseFile("instance a", boot)
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var keeping sync.WaitGroup
		keeping.Go(func() { u.KeepLeases(ctx, func(err error) { assert.NoError(t, err) }) })
		for range 3 {
			synctest.Wait()
			info, err := os.Stat(file)
			require.NoError(t, err)
			assert.True(t, info.ModTime().After(blobTime), "it was renewed")
			require.NoError(t, os.Chtimes(file, blobTime, blobTime))
			<-time.After(renewEvery)
		}
		stop()
		keeping.Wait()
	})
}

func TestRemovalOrLeaseWinsTheirRace(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	u := user(t, s, "x")
	for range 50 {
		v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
		var leased, removed error
		var both sync.WaitGroup
		both.Go(func() { leased = u.Lease(v.Key, "a") })
		both.Go(func() { removed = s.Remove(v.Key, "") })
		both.Wait()
		require.NotEqual(t, leased == nil, removed == nil, "%v %v", leased, removed)
		if leased == nil {
			require.NoError(t, s.Verify(v.Key))
			require.NoError(t, u.Release("a"))
			require.NoError(t, s.Remove(v.Key, ""))
		}
	}
}

func TestModelRemovedDuringLookIsNotDamaged(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	var looks sync.WaitGroup
	over := make(chan struct{})
	looks.Go(func() {
		for {
			all, err := s.Versions()
			assert.NoError(t, err)
			for _, v := range all {
				assert.True(t, v.Damage == nil || isPartial(v), "%v", v.Damage)
			}
			select {
			case <-over:
				return
			default:
			}
		}
	})
	for range 20 {
		v := put(t, s, "x://m", "1", childFiles())
		require.NoError(t, s.Remove(v.Key, ""))
	}
	close(over)
	looks.Wait()
}

func TestEngineGetsVersionItsArgumentsMean(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	put(t, s, "hf://org/old", "1111", twoFiles)
	mark := func(v Version, ref string) Version {
		v.Manifest.Ref = ref
		text, err := json.Marshal(v.Manifest)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(s.version(v.Key), markFile), text, 0o600))
		return v
	}
	at := func(v Version, when time.Time) Version {
		require.NoError(t, os.Chtimes(filepath.Join(s.version(v.Key), markFile), when, when))
		return v
	}
	first := at(mark(put(t, s, "hf://org/name", "aaaa", twoFiles), "main"), time.Now().Add(-2*time.Hour))
	second := at(mark(put(t, s, "hf://org/name", "bbbb", twoFiles), "main"), time.Now().Add(-time.Hour))
	tagged := mark(put(t, s, "hf://org/name", "cccc", twoFiles), "v2")
	mark(put(t, s, "hf://org/tagged", "dddd", twoFiles), "v2")
	web := put(t, s, "https://host/m@1", "etag", twoFiles)
	for name, c := range map[string]struct{ model, revision, key, says string }{
		"a name without revision means main":     {"org/name", "", second.Key, ""},
		"an address without revision means main": {"hf://org/name", "", second.Key, ""},
		"an earlier commit":                      {"org/name", "aaaa", first.Key, ""},
		"a tag":                                  {"org/name@v2", "", tagged.Key, ""},
		"a tag of an address":                    {"hf://org/name@v2", "", tagged.Key, ""},
		"an id":                                  {tagged.Key, "", tagged.Key, ""},
		"an address without branches":            {"https://host/m@1", "", web.Key, ""},
		"a revision that is not there":           {"org/name", "v9", "", "the store has org/name in the revisions cccc, bbbb, aaaa, but not in v9"},
		"a model without its main branch":        {"org/tagged", "", "", "in the revisions dddd, but not in main"},
		"a model that is not there":              {"org/nam", "", "", "no model"},
		"the beginning of a name":                {"org", "", "", "no model"},
	} {
		v, err := s.Wanted(c.model, c.revision, modelref.Lacks)
		if c.says != "" {
			require.ErrorContains(t, err, c.says, name)
			continue
		}
		require.NoError(t, err, name)
		assert.Equal(t, c.key, v.Key, name)
	}
	require.NoError(t, os.Remove(filepath.Join(s.Files(second.Key), "config.json")))
	v, err := s.Wanted("org/name", "", modelref.Lacks)
	require.NoError(t, err)
	assert.Equal(t, first.Key, v.Key)
	var notWhole *NotWholeError
	_, err = s.Wanted("org/name", "bbbb", modelref.Lacks)
	require.ErrorAs(t, err, &notWhole)
	assert.ErrorContains(t, err, "config.json is missing; pull it again")
}

func TestBucketFolderIsNotItsNeighbourOrParent(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	put(t, s, "s3://m/a", "1", map[string]string{"config.json": "{}", "b/config.json": "{}", "b/c/config.json": "{}", "bc/config.json": "{}", "b 1%/config.json": "{}"})
	put(t, s, "s3://m/a/own", "1", map[string]string{"config.json": "{}"})
	put(t, s, "s3://whole", "1", map[string]string{"x/config.json": "{}"})
	put(t, s, "oci://host:5000/m:latest", "1", map[string]string{"config.json": "{}"})
	put(t, s, "file:///m/a", "1", map[string]string{"b/config.json": "{}"})
	for model, found := range map[string]string{
		"s3://m/a": "s3://m/a", "s3://m/a/": "s3://m/a", "s3://m/a/b": "s3://m/a b", "s3://m/a/b/": "s3://m/a b", "s3://m/a/b/c": "s3://m/a b/c", "s3://m/a/b%201%25": "s3://m/a b 1%",
		"s3://m/ab": "", "s3://m/a/b/d": "", "s3://m": "", "s3://m/a/config.json": "", "gs://m/a": "", "s3://m/a/../a": "",
		"s3://m/a/own": "s3://m/a/own", "s3://whole/x": "s3://whole x", "s3://whole/": "s3://whole",
		"oci://host:5000/m": "oci://host:5000/m:latest", "oci://host:5000/m:v1": "",
		"file:///m/a/": "file:///m/a", "file:///m/a/b": "",
	} {
		v, err := s.Wanted(model, "", modelref.Lacks)
		if found == "" {
			var none *NotFoundError
			require.ErrorAs(t, err, &none, model)
			continue
		}
		require.NoError(t, err, model)
		assert.Equal(t, found, strings.TrimSpace(v.Manifest.URI+" "+v.Sub), model)
	}
	v, err := s.Find("s3://m/a/")
	require.NoError(t, err)
	assert.Equal(t, "s3://m/a", v.Manifest.URI)

	outer, err := s.Wanted("s3://m/a", "", modelref.Lacks)
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(s.Files(outer.Key), "b", "config.json")))
	_, err = s.Wanted("s3://m/a/b", "", modelref.Lacks)
	var notWhole *NotWholeError
	require.ErrorAs(t, err, &notWhole)
}

func TestModelIsFoundByNameAddressAndID(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	old := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	_, err := s.Find("org/nam")
	require.ErrorContains(t, err, "launcher models")
	for _, name := range []string{old.Key, old.Key[:8], "org/name", "hf://org/name", "hf://org/name@c0ffee", "org/name@c0ffee"} {
		v, err := s.Find(name)
		require.NoError(t, err, name)
		assert.Equal(t, old.Key, v.Key)
	}
	put(t, s, "hf://org/name", "decaf", twoFiles)
	_, err = s.Find("org/name")
	require.ErrorContains(t, err, "is ambiguous")
	v, err := s.Find("org/name@c0ffee")
	require.NoError(t, err)
	assert.Equal(t, old.Key, v.Key)
}

func TestOneProcessOwnsTheStoreAndOthersRead(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	_, err := Open(Options{Dir: dir})
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
	host, err := os.Hostname()
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintf("process %d on %s (or a child of it)", os.Getpid(), host), locked.Owner)
	for _, note := range []string{"", "1 \x1b[2J\n", "1 a\n2 b\n", "no number\n"} { // of an earlier release, or damaged
		require.NoError(t, os.WriteFile(filepath.Join(dir, "lock"), []byte(note), 0o600))
		_, err = Open(Options{Dir: dir})
		require.ErrorAs(t, err, &locked)
		assert.Equal(t, "another process", locked.Owner)
	}
	r, err := Read(dir)
	require.NoError(t, err)
	all, err := r.Versions()
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, v.Key, all[0].Key)
	require.NoError(t, r.Verify(v.Key))

	none, err := Read(filepath.Join(dir, "not there"))
	require.NoError(t, err)
	all, err = none.Versions()
	require.NoError(t, err)
	assert.Empty(t, all)
	_, err = Read(filepath.Join(dir, lockFile))
	require.ErrorContains(t, err, "not a folder")
}

// A model is there whole or not at all, at whatever moment its owner is killed.
func TestKilledOwnerLeavesNoHalfModel(t *testing.T) {
	dir := t.TempDir()
	m, _ := manifest("hf://org/name", "c0ffee", childFiles())
	for n := range 25 {
		owner := child(t, dir)
		out, err := owner.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, owner.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "begins\n", line)
		time.Sleep(time.Duration(n) * 3 * time.Millisecond)
		require.NoError(t, owner.Process.Kill())
		_ = owner.Wait()

		r, err := Read(dir)
		require.NoError(t, err)
		if v, found := r.Version(m.Key()); found && !isPartial(v) {
			require.NoError(t, v.Damage)
			require.NoError(t, r.Verify(m.Key()))
		}
		s, err := Open(Options{Dir: dir})
		require.NoError(t, err)
		if v, found := s.Version(m.Key()); !found || isPartial(v) {
			put(t, s, "hf://org/name", "c0ffee", childFiles())
		}
		require.NoError(t, s.Verify(m.Key()))
		require.NoError(t, s.Remove(m.Key(), ""))
		used, err := s.Used()
		require.NoError(t, err)
		require.Zero(t, used)
		require.NoError(t, s.Close())
	}
}

func isPartial(v Version) bool {
	_, partial := errors.AsType[*PartialError](v.Damage)
	return partial
}
