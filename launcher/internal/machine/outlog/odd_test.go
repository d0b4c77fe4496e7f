package outlog_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/machine/outlog"
)

func TestALogThatIsAPipeIsRefusedByItsNameAndHoldsNobody(t *testing.T) {
	dir := t.TempDir()
	store := open(t, outlog.Options{Dir: dir})
	path := filepath.Join(dir, "a.1.log")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	_, err := store.Read("a.1.log", launcher.LogRange{})
	require.ErrorContains(t, err, path+" is not a regular file")
	_, err = store.Tail("a.1.log", 1, 100)
	require.ErrorContains(t, err, path+" is not a regular file")
	require.ErrorContains(t, store.Follow(t.Context(), "a.1.log", 0, nil, nil), path+" is not a regular file")
}

func TestAFollowerOfALogThatIsTruncatedGoesOnFromItsStart(t *testing.T) {
	store := open(t, outlog.Options{})
	name, f := create(t, store, "a", "one two three ")
	over := make(chan struct{})
	follower := follow(t.Context(), store, name, 0, over)
	follower.awaits(t, "one two three ")
	require.NoError(t, f.Truncate(0))
	write(t, f, "four ")
	follower.awaits(t, "one two three four ")
	write(t, f, "five")
	follower.awaits(t, "one two three four five")
	close(over)
	assert.NoError(t, follower.end(t))
}

func TestAFollowerOfALogThatIsReplacedGoesOnWithTheNewOne(t *testing.T) {
	for name, replace := range map[string]func(t *testing.T, path string){
		"by another that is moved to its name": func(t *testing.T, path string) {
			t.Helper()
			require.NoError(t, os.WriteFile(path+".draft", []byte("new "), 0o600))
			require.NoError(t, os.Rename(path+".draft", path))
		},
		"after it was moved away": func(t *testing.T, path string) {
			t.Helper()
			require.NoError(t, os.Rename(path, path+".old"))
			require.NoError(t, os.WriteFile(path, []byte("new "), 0o600))
		},
		"after it was removed": func(t *testing.T, path string) {
			t.Helper()
			require.NoError(t, os.Remove(path))
			require.NoError(t, os.WriteFile(path, []byte("new "), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			store := open(t, outlog.Options{Dir: dir})
			name, _ := create(t, store, "a", "old ")
			over := make(chan struct{})
			follower := follow(t.Context(), store, name, 0, over)
			follower.awaits(t, "old ")
			replace(t, filepath.Join(dir, name))
			follower.awaits(t, "old new ")
			f, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_WRONLY, 0)
			require.NoError(t, err)
			write(t, f, "newer")
			require.NoError(t, f.Close())
			follower.awaits(t, "old new newer")
			close(over)
			assert.NoError(t, follower.end(t))
			assert.Zero(t, watches(t))
		})
	}
}

func TestOfMoreLogsThanMayBeKeptTheOldestGoThatNobodyUses(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	store := open(t, outlog.Options{Dir: dir, MaxFiles: 3, Now: func() time.Time { return now }})
	for n := range 3 {
		aged(t, store, dir, fmt.Sprintf("old%d", n), 1, now, time.Duration(9-n)*time.Minute)
	}
	assert.Empty(t, store.TooMany(), "they are as many as may be")
	used := aged(t, store, dir, "used", 1, now, time.Hour)
	young := aged(t, store, dir, "young", 1, now, time.Second)
	select {
	case <-store.TooMany():
	default:
		require.Fail(t, "the store does not say that it has too many")
	}
	require.NoError(t, store.Prune(func() map[string]bool { return map[string]bool{used: true} }))
	assert.NoFileExists(t, filepath.Join(dir, "old0.1.log"))
	assert.NoFileExists(t, filepath.Join(dir, "old1.1.log"))
	assert.FileExists(t, filepath.Join(dir, "old2.1.log"))
	assert.FileExists(t, filepath.Join(dir, used))
	assert.FileExists(t, filepath.Join(dir, young))
	create(t, store, "more", "")
	<-store.TooMany()

	all := func() map[string]bool {
		return map[string]bool{used: true, young: true, "old2.1.log": true, "more.1.log": true}
	}
	require.NoError(t, store.Prune(all))
	for name := range all() {
		assert.FileExists(t, filepath.Join(dir, name), "whatever the limit, what is in use stays")
	}
}

func TestWhichLogsAreInUseIsAskedAfterTheyWereListed(t *testing.T) {
	dir := t.TempDir()
	store := open(t, outlog.Options{Dir: dir, MaxFiles: 1})
	create(t, store, "a", "")
	var late string
	err := store.Prune(func() map[string]bool {
		late, _ = create(t, store, "b", "") // between the list and the answer
		return map[string]bool{"a.1.log": true, late: true}
	})
	require.NoError(t, err)
	assert.FileExists(t, filepath.Join(dir, "a.1.log"))
	assert.FileExists(t, filepath.Join(dir, late))
}
