package statedir

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

type note struct {
	Text string `json:"text"`
}

func open(t *testing.T, dir string) *Records {
	t.Helper()
	state, err := Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, state.Close()) })
	r, err := state.Records("things")
	require.NoError(t, err)
	return r
}

// said reads what is written, and what of it is doubted.
func said(t *testing.T, r *Records) (texts map[string]string, doubtful []string) {
	t.Helper()
	all, err := r.Read()
	require.NoError(t, err)
	texts = map[string]string{}
	for _, f := range all {
		require.NoError(t, f.Damage)
		var n note
		require.NoError(t, json.Unmarshal(f.Record, &n))
		texts[f.Name] = n.Text
		if f.Doubted {
			doubtful = append(doubtful, f.Name)
		}
	}
	return texts, doubtful
}

func TestWhatWasWrittenLastIsRead(t *testing.T) {
	r := open(t, t.TempDir())
	for _, name := range []string{"a", "a.b", "a.json", "a.doubted", "a.broken"} {
		require.NoError(t, r.Put(name, note{"first"}))
		require.NoError(t, r.Put(name, note{"of " + name}))
	}
	require.NoError(t, r.Remove("a.b"))
	require.NoError(t, r.Remove("never there"))
	texts, doubtful := said(t, r)
	assert.Equal(t, map[string]string{"a": "of a", "a.json": "of a.json", "a.doubted": "of a.doubted", "a.broken": "of a.broken"}, texts)
	assert.Empty(t, doubtful)
}

func TestWhatIsDoubtedIsReadAsSuchUntilItIsWrittenAnew(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	require.NoError(t, r.Put("a", note{"old"}))
	require.NoError(t, r.Put("b", note{"old"}))
	require.NoError(t, r.Doubt("a"))
	require.NoError(t, r.Doubt("a"), "again")
	require.NoError(t, r.Doubt("never there"))
	texts, doubtful := said(t, r)
	assert.Equal(t, map[string]string{"a": "old", "b": "old"}, texts)
	assert.Equal(t, []string{"a"}, doubtful)
	old, err := os.ReadFile(r.path("a", doubted))
	require.NoError(t, err)
	require.NoError(t, r.Put("a", note{"new"}))
	assert.NoFileExists(t, r.path("a", doubted))

	require.NoError(t, os.WriteFile(r.path("a", doubted), old, 0o600)) // the writer died before it could remove that
	texts, doubtful = said(t, r)
	assert.Equal(t, "new", texts["a"])
	assert.Empty(t, doubtful)
	require.NoError(t, r.Put("a", note{"newer"}))
	assert.NoFileExists(t, r.path("a", doubted))
	require.NoError(t, r.Doubt("a"))
	require.NoError(t, r.Remove("a"))
	texts, _ = said(t, r)
	assert.NotContains(t, texts, "a")
}

func TestADamagedFileCostsWhatItSaidAndIsKept(t *testing.T) {
	for name, text := range map[string]string{
		"empty":             "",
		"cut":               `{"version":1,"record":{"te`,
		"no text":           "\x00\xff",
		"another document":  `{"text":"here"}`,
		"of version 0":      `{"version":0,"record":{"text":"here"}}`,
		"without a record":  `{"version":1}`,
		"of another format": `["version"]`,
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t, t.TempDir())
			require.NoError(t, r.Put("good", note{"still here"}))
			for n, want := range []string{"bad.broken", "bad.broken-2"} {
				require.NoError(t, os.WriteFile(r.path("bad", current), []byte(text), 0o600))
				all, err := r.Read()
				require.NoError(t, err)
				require.Len(t, all, 2)
				require.Error(t, all[0].Damage, n)
				require.NoError(t, all[1].Damage)
				kept, err := r.SetAside(all[0].Name, Broken)
				require.NoError(t, err)
				assert.Equal(t, filepath.Join(r.dir, want), kept)
				content, err := os.ReadFile(kept)
				require.NoError(t, err)
				assert.Equal(t, text, string(content))
			}
			texts, _ := said(t, r)
			assert.Equal(t, map[string]string{"good": "still here"}, texts)
		})
	}
}

func TestAFileOfANewerVersionIsRefusedByItsName(t *testing.T) {
	r := open(t, t.TempDir())
	require.NoError(t, os.WriteFile(r.path("a", current), []byte(`{"version":99,"record":{}}`), 0o600))
	_, err := r.Read()
	var newer *VersionError
	require.ErrorAs(t, err, &newer)
	assert.ErrorContains(t, err, r.path("a", current))
	assert.ErrorContains(t, err, "version 99")
}

func TestAFolderOfAnEarlierVersionIsRefusedAndNotTouched(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, map[string]string{oldJournal: "old", lockFile: aPID})
	_, err := Open(dir)
	var old *OldFormError
	require.ErrorAs(t, err, &old)
	assert.ErrorContains(t, err, dir)
	assert.NotContains(t, err.Error(), "\n")
	_, err = Open(dir)
	assert.ErrorAs(t, err, &old, "the lock was given back")
}

func TestAFolderIsNewOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	for _, want := range []bool{true, false} {
		state, err := Open(dir)
		require.NoError(t, err)
		assert.Equal(t, want, state.New)
		require.NoError(t, state.Close())
	}
}

func TestOnAFullDiskNothingIsLostAndWhatIsOutOfDateIsKnown(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.Mkdir(dir, 0o700))
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, "size=64k,mode=700"); err != nil {
		t.Skipf("NOT TESTED: A DISK CANNOT BE MADE FULL, SINCE ONLY ROOT MAY MOUNT ONE: %v", err)
	}
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	r := open(t, dir)
	for range 2 {
		require.NoError(t, r.Put("a", note{"old"}))
		require.NoError(t, r.Put("b", note{"old"}))
	}
	ballast, err := os.Create(filepath.Join(dir, "ballast"))
	require.NoError(t, err)
	for err == nil {
		_, err = ballast.Write(make([]byte, 4096))
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, ballast.Close())
	require.NoError(t, r.Put("a", note{"in the room that it has"}))
	require.NoError(t, r.Put("a", note{"old"}))
	require.NoError(t, os.Truncate(filepath.Join(r.dir, spare), 0))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "more"), make([]byte, 4096), 0o600))

	err = r.Put("a", note{"new"})
	require.ErrorIs(t, err, syscall.ENOSPC)
	assert.ErrorContains(t, err, r.path("a", current))
	texts, doubtful := said(t, r)
	assert.Equal(t, "old", texts["a"])
	assert.Empty(t, doubtful)
	require.NoError(t, r.Doubt("a"))
	require.NoError(t, r.Remove("b"))
	texts, doubtful = said(t, r)
	assert.Equal(t, map[string]string{"a": "old"}, texts)
	assert.Equal(t, []string{"a"}, doubtful)
	require.NoError(t, os.Remove(ballast.Name()))
	require.NoError(t, r.Put("a", note{"new"}))
	texts, doubtful = said(t, r)
	assert.Equal(t, map[string]string{"a": "new"}, texts)
	assert.Empty(t, doubtful)
}

func TestManyAtOnceEachWriteTheirOwnWhole(t *testing.T) {
	r := open(t, t.TempDir())
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for k := range 50 {
				assert.NoError(t, r.Put(fmt.Sprint(n), note{fmt.Sprint(n, " ", k)}))
			}
		})
	}
	all.Wait()
	texts, _ := said(t, r)
	require.Len(t, texts, 8)
	for n := range 8 {
		assert.Equal(t, fmt.Sprint(n, " ", 49), texts[fmt.Sprint(n)])
	}
}

// childPut writes one thing after the other until it is killed, and says how far
// it is.
func childPut(dir string) {
	state, err := Open(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := state.Records("things")
	for n := 0; err == nil; n++ {
		if err = r.Put("a", note{strings.Repeat(fmt.Sprint(n, " "), 1000)}); err == nil {
			fmt.Println(n)
		}
	}
	fmt.Println(err)
}

func TestAKillInTheMiddleOfAWriteLeavesWhatWasWrittenLastOrTheNext(t *testing.T) {
	for kill := range 20 {
		dir := t.TempDir()
		writer := child(t, "put", dir)
		out, err := writer.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, writer.Start())
		lines, last := bufio.NewScanner(out), ""
		for range kill * 7 {
			require.True(t, lines.Scan())
		}
		require.NoError(t, writer.Process.Kill())
		for lines.Scan() {
			last = lines.Text()
		}
		require.Error(t, writer.Wait())
		texts, doubtful := said(t, open(t, dir))
		assert.Empty(t, doubtful)
		if last == "" {
			continue // nothing is known to have been written
		}
		var n int
		_, err = fmt.Sscan(last, &n)
		require.NoError(t, err, last)
		assert.Contains(t, []string{strings.Repeat(fmt.Sprint(n, " "), 1000), strings.Repeat(fmt.Sprint(n+1, " "), 1000)}, texts["a"])
	}
}

func TestWhatIsRemovedWhileAllIsReadIsNoDamage(t *testing.T) {
	r := open(t, t.TempDir())
	over := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				assert.NoError(t, r.Put("a", note{"here"}))
				assert.NoError(t, r.Remove("a"))
			}
		}
	})
	for range 300 {
		all, err := r.Read()
		require.NoError(t, err)
		for _, f := range all {
			assert.NoError(t, f.Damage)
		}
	}
	close(over)
	writing.Wait()
}

func TestARecordIsWrittenThoughTheFolderWasRemoved(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	require.NoError(t, os.Remove(r.dir))
	require.NoError(t, r.Put("a", note{"here"}))
	texts, _ := said(t, r)
	assert.Equal(t, map[string]string{"a": "here"}, texts)

	require.NoError(t, os.RemoveAll(dir))
	require.ErrorIs(t, r.Put("a", note{"nowhere"}), fs.ErrNotExist, "the state folder itself was removed: nobody has its lock")
}
