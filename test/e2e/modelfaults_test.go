package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/harness"
	"hotseat.dev/hotseat/test/helpers/hubserver"
)

// Of the section "Models of a launcher" of spec/rows.md: whoever is killed,
// and whatever changes meanwhile, no half model is there.

func TestAPullThatIsKilledGoesOnAtTheByte(t *testing.T) {
	t.Parallel()
	const whole, chunk = 80 << 20, 16 << 20
	for _, victim := range []string{"launcher", "modelfetch"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			hub := hubserver.New(t)
			hub.Put("org/tiny", tiny(whole))
			f := models(t, hub)
			first := f.command("pull", "--bytes-per-second", "60MiB", "hf://org/tiny")
			require.NoError(t, first.Start())
			require.Eventually(t, func() bool { return f.staged() > 40<<20 }, patience, 5*time.Millisecond)
			kill(t, victim, first)
			require.Error(t, first.Wait())
			require.Len(t, f.list(), 1)
			assert.Equal(t, "Partial", f.list()[0].State)
			m := f.pull("hf://org/tiny")
			assert.Equal(t, "Ready", m.State)
			require.Len(t, f.list("--verify"), 1)
			assert.Equal(t, "Ready", f.list("--verify")[0].State)
			assert.LessOrEqual(t, m.NetworkBytes, int64(whole-40<<20+chunk+(2<<20)))
			resumed := false
			for _, r := range hub.Seen() {
				resumed = resumed || r.Content && r.Range != ""
			}
			assert.True(t, resumed)
		})
	}
}

// kill kills a pull, or its child where it has one.
func kill(t *testing.T, victim string, pull *exec.Cmd) {
	t.Helper()
	process := pull.Process
	if victim == "modelfetch" {
		for _, child := range harness.Processes(func(p harness.Process) bool { return p.Parent == pull.Process.Pid }) {
			found, err := os.FindProcess(child.PID)
			require.NoError(t, err)
			process = found
		}
	}
	if err := process.Kill(); !errors.Is(err, os.ErrProcessDone) {
		require.NoError(t, err)
	}
}

// Wherever it is killed, a pull leaves the model whole, or what the next goes on from.
func TestAPullThatIsKilledAnywhereLeavesNoHalfModel(t *testing.T) {
	t.Parallel()
	hub := hubserver.New(t)
	hub.Put("org/tiny", tiny(4<<20))
	f := models(t, hub)
	rng, done := rand.New(rand.NewPCG(1, 2)), 0
	for n := range 40 {
		pull := f.command("pull", "--bytes-per-second", "40MiB", "hf://org/tiny")
		require.NoError(t, pull.Start())
		time.Sleep(time.Duration(rng.IntN(250)) * time.Millisecond)
		kill(t, []string{"launcher", "modelfetch"}[n%2], pull)
		_ = pull.Wait()
		for _, m := range f.list("--verify") {
			if m.State == "Partial" {
				continue
			}
			require.Equal(t, "Ready", m.State, m.Reason)
			_, errs, code := f.call("rm", m.ID)
			require.Zero(t, code, errs)
			done++
		}
	}
	t.Logf("%d of 40 pulls had published the model", done)
	assert.Equal(t, "Ready", f.pull("hf://org/tiny").State)
	assert.Equal(t, "Ready", f.list("--verify")[0].State)
	assert.Zero(t, f.staged())
}

// The time of a file says nothing of its version: rsync -t, tar and cp -p set it, and all files
// of a reproducible build may have one.
func TestAFileThatHasChangedSinceAPullWasBrokenOffIsFetchedAnew(t *testing.T) {
	t.Parallel()
	source := filepath.Join(t.TempDir(), "model.safetensors")
	put := func(content []byte, at time.Time) {
		require.NoError(t, os.WriteFile(source, content, 0o600))
		require.NoError(t, os.Chtimes(source, at, at))
	}
	built := time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)
	put(random(40<<20), built)
	web := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(source))))
	defer web.Close()
	for _, uri := range []string{web.URL + "/model.safetensors", "file://" + source} {
		put(random(40<<20), built)
		f := models(t, nil)
		pull := f.command("pull", "--bytes-per-second", "40MiB", uri)
		require.NoError(t, pull.Start())
		require.Eventually(t, func() bool { return f.staged() > 20<<20 }, patience, 5*time.Millisecond)
		kill(t, "launcher", pull)
		_ = pull.Wait()
		other := append(random(20<<20+1), make([]byte, 20<<20-1)...)
		put(other, built)
		m := f.pull(uri)
		got, err := os.ReadFile(filepath.Join(m.Path, "model.safetensors"))
		require.NoError(t, err)
		assert.True(t, bytes.Equal(other, got), uri)
		assert.EqualValues(t, len(other), m.NetworkBytes)
	}
}

func TestAFileThatChangesWhileItIsFetchedIsFetchedAnew(t *testing.T) {
	t.Parallel()
	source := filepath.Join(t.TempDir(), "model.safetensors")
	require.NoError(t, os.WriteFile(source, random(8<<20), 0o600))
	other := random(6<<20 + 1)
	require.NoError(t, os.WriteFile(source+".new", other, 0o600))
	require.NoError(t, os.Chtimes(source+".new", time.Time{}, time.Now().Add(time.Minute)))
	files := http.FileServer(http.Dir(filepath.Dir(source)))
	var gets int
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if gets++; gets == 2 { // the first asks what there is
			info, err := os.Stat(source)
			assert.NoError(t, err)
			w.Header().Set("Last-Modified", info.ModTime().UTC().Format(http.TimeFormat))
			w.Header().Set("Content-Length", fmt.Sprint(8<<20))
			_, _ = w.Write(random(8 << 20)[:4<<20])
			assert.NoError(t, os.Rename(source+".new", source))
			panic(http.ErrAbortHandler)
		}
		files.ServeHTTP(w, r)
	}))
	defer web.Close()
	m := models(t, nil).pull(web.URL + "/model.safetensors")
	got, err := os.ReadFile(filepath.Join(m.Path, "model.safetensors"))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(other, got))
}

func TestADiskThatIsFullInTheMiddleGivesItsRoomBackAndThePullGoesOnOnceThereIsSome(t *testing.T) {
	t.Parallel()
	hub := hubserver.New(t)
	hub.Put("org/tiny", tiny(16<<20))
	f := models(t, hub)
	disk := filepath.Join(t.TempDir(), "disk")
	smallDisk(t, disk, "size=24m")
	f.dir = filepath.Join(disk, "models")
	pull := f.command("pull", "--bytes-per-second", "10MiB", "hf://org/tiny")
	var errs bytes.Buffer
	pull.Stderr = &errs
	require.NoError(t, pull.Start())
	require.Eventually(t, func() bool { return f.staged() > 1<<20 }, patience, 5*time.Millisecond)
	makeRoom := fill(t, disk)
	require.Error(t, pull.Wait())
	assert.Contains(t, errs.String(), "CapacityExceeded: the disk of the model store is full")
	assert.Zero(t, f.staged())
	assert.Empty(t, f.list())
	_, full, code := f.call("pull", "hf://org/tiny")
	assert.Equal(t, 1, code)
	assert.Regexp(t, `CapacityExceeded: the model takes 16\.0 MiB, and the disk has \d+\.\d MiB free`, full) // what was staged, which is a MiB or more
	makeRoom()
	assert.Equal(t, "Ready", f.pull("hf://org/tiny").State)
}

func TestAFileThatIsNotAsItWasPulledIsSeenAndPulledAgain(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(path string) error{
		"deleted": os.Remove,
		"altered": func(path string) error { return os.WriteFile(path, random(3<<20 + 1)[:3<<20], 0o600) },
		"altered unseen": func(path string) error {
			info, err := os.Stat(path)
			return errors.Join(err, os.WriteFile(path, random(3<<20 + 1)[:3<<20], 0o600), os.Chtimes(path, time.Time{}, info.ModTime()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := hubserver.New(t)
			hub.Put("org/tiny", tiny(3<<20))
			f := models(t, hub)
			weights := filepath.Join(f.pull("hf://org/tiny").Path, "sub", "model.safetensors")
			used, err := os.Open(weights)
			require.NoError(t, err)
			defer used.Close()
			require.NoError(t, os.Chmod(weights, 0o600))
			require.NoError(t, spoil(weights))
			_, errs, code := f.call("models", "--verify")
			assert.Equal(t, 1, code)
			assert.Contains(t, errs, "pull them again")
			assert.Equal(t, "Damaged", f.list()[0].State)
			m := f.pull("hf://org/tiny")
			assert.False(t, m.There)
			got, err := os.ReadFile(weights)
			require.NoError(t, err)
			assert.True(t, bytes.Equal(random(3<<20), got))
			assert.Equal(t, "Ready", f.list("--verify")[0].State)
			_, said, code := f.call("models", "--verify")
			assert.Zero(t, code)
			assert.Contains(t, said, "every file was read, and none is damaged")
		})
	}
}

func TestAConnectionThatBreaksOffIsMadeAgainAtTheByte(t *testing.T) {
	t.Parallel()
	hub := hubserver.New(t)
	hub.Put("org/tiny", tiny(5<<20))
	hub.Cut("sub/model.safetensors", 3<<20)
	m := models(t, hub).pull("hf://org/tiny")
	assert.Equal(t, "Ready", m.State)
	assert.EqualValues(t, 5<<20+2, m.NetworkBytes)
}
