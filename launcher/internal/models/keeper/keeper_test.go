package keeper

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/machine/pagecache"
	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// childEnv is the name of a variable. If it is set, the test binary stands in for
// modelfetch, and behaves as the variable says.
const childEnv = "MODELS_TEST_CHILD"

func TestMain(m *testing.M) {
	if how := os.Getenv(childEnv); how != "" {
		fetch(how, json.NewEncoder(os.Stdout), json.NewDecoder(os.Stdin))
		return
	}
	goleak.VerifyTestMain(m)
}

// announced returns the manifest of a model whose one file contains the model's address.
func announced(uri string) *fetchapi.Manifest {
	sum := sha256.Sum256([]byte(uri))
	return &fetchapi.Manifest{URI: uri, Revision: "1", Files: []fetchapi.File{{Path: "a", Size: int64(len(uri)), SHA256: hex.EncodeToString(sum[:])}}}
}

func fetch(how string, out *json.Encoder, in *json.Decoder) {
	asked := os.Args[len(os.Args)-1]
	switch how {
	case "asks for a token", "lets all read", "refuses all", "is away":
		source(how, out, in)
		return
	}
	if how == "silent" {
		_ = in.Decode(&fetchapi.Line{}) // until the end of the input
		return
	}
	m := announced(asked)
	switch how {
	case "slow, of no version":
		m.Revision = ""
	case "cut off":
		m.Revision = "0"
	}
	_ = out.Encode(fetchapi.Line{Type: fetchapi.TypeManifest, Manifest: m})
	var told fetchapi.Line
	if in.Decode(&told) != nil {
		return
	}
	if told.Type == fetchapi.TypeProve {
		_ = out.Encode(fetchapi.Line{Type: fetchapi.TypeProved})
		return
	}
	if how == "slow" || how == "slow, of no version" {
		_ = in.Decode(&fetchapi.Line{})
		return
	}
	if how == "cut off" {
		_ = out.Encode(fetchapi.Line{Type: fetchapi.TypeError, Error: &fetchapi.Error{Reason: fetchapi.ReasonUnavailable, Detail: "it was cut off"}})
		return
	}
	if gate, held := strings.CutPrefix(how, "once somebody writes to "); held {
		_, _ = os.ReadFile(gate)
	}
	_ = os.WriteFile(filepath.Join(told.Staging, announced(asked).Files[0].SHA256), []byte(asked), 0o600)
	_ = out.Encode(fetchapi.Line{Type: fetchapi.TypeDone, Manifest: announced(asked)})
}

// source stands in for modelfetch that asks its source whether a model may be read.
func source(how string, out *json.Encoder, in *json.Decoder) {
	var told fetchapi.Line
	if slices.Contains(os.Args, "--credentials") && in.Decode(&told) != nil {
		return
	}
	if how == "is away" {
		_ = out.Encode(fetchapi.Line{Type: fetchapi.TypeError, Error: &fetchapi.Error{Reason: fetchapi.ReasonUnavailable, Detail: "nobody answers"}})
		return
	}
	_ = out.Encode(fetchapi.Line{Type: fetchapi.TypeManifest, Manifest: announced("x://m")})
	var ask fetchapi.Line
	if in.Decode(&ask) != nil || ask.Type != fetchapi.TypeProve {
		return
	}
	if how == "lets all read" || how == "asks for a token" && told.Credentials["HF_TOKEN"] == "right" {
		_ = out.Encode(fetchapi.Line{Type: fetchapi.TypeProved})
		return
	}
	_ = out.Encode(fetchapi.Line{Type: fetchapi.TypeError, Error: &fetchapi.Error{Reason: fetchapi.ReasonAccessDenied, Detail: "the hub says no"}})
}

// newKeeper makes a keeper. how says how its modelfetch behaves.
func newKeeper(t *testing.T, how string) (*Keeper, *[]string) {
	t.Helper()
	return newKeeperIn(t, how, filepath.Join(t.TempDir(), "models"))
}

// newKeeperIn makes a keeper with its store in a folder.
func newKeeperIn(t *testing.T, how, dir string) (*Keeper, *[]string) {
	t.Helper()
	return newKeeperWithRoom(t, how, dir, pagecache.Room)
}

// newKeeperWithRoom makes a keeper with a limited room in main memory.
func newKeeperWithRoom(t *testing.T, how, dir string, room func(held int64) (int64, error)) (*Keeper, *[]string) {
	t.Helper()
	t.Setenv(childEnv, how)
	exe, err := os.Executable()
	require.NoError(t, err)
	var outcomes []string
	k, err := New(Options{
		Dir: dir, Program: []string{exe}, Stderr: io.Discard,
		Pulled: func(outcome string, _ int64) { outcomes = append(outcomes, outcome) }, Evicted: func(int64) {}, Room: room, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, k.Close()) })
	return k, &outcomes
}

// A store of an earlier release has a cache for the hub's own libraries.
func TestRemovalOfAnEarlierReleasesCacheIsLogged(t *testing.T) {
	k, _ := newKeeper(t, "lets all read")
	var log bytes.Buffer
	k.opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
	model := filepath.Join(k.opts.Dir, "hub", "models--org--name")
	require.NoError(t, os.MkdirAll(filepath.Join(model, "blobs"), 0o755))
	blob := filepath.Join(model, "blobs", "b")
	require.NoError(t, os.WriteFile(blob, []byte("b"), 0o644))
	sealed := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC) // as the store seals its files
	require.NoError(t, os.Chtimes(blob, sealed, sealed))
	require.NoError(t, os.WriteFile(filepath.Join(model, ".hotseat-files"), []byte(`["blobs/b"]`), 0o644))
	_, release, err := k.owning.take(t.Context(), patience.Wait())
	require.NoError(t, err)
	require.NoError(t, release())
	require.NoFileExists(t, blob)
	assert.Contains(t, log.String(), "level=WARN")
	assert.Contains(t, log.String(), "launcher models export ADDRESS DIR")
}

func TestCancelledCallBeforeTheSourcesAnswerEndsItsFetch(t *testing.T) {
	k, outcomes := newKeeper(t, "silent")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := k.Pull(ctx, launcherapi.ModelRequest{URI: "x://m"})
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, []string{"cancelled"}, *outcomes)
}

func TestEndOfKeeperEndsItsFetches(t *testing.T) {
	k, outcomes := newKeeper(t, "slow")
	m, err := k.Pull(t.Context(), launcherapi.ModelRequest{URI: "x://m"})
	require.NoError(t, err)
	assert.Equal(t, launcherapi.ModelDownloading, m.State)
	require.NoError(t, k.Close())
	assert.Equal(t, []string{"cancelled"}, *outcomes)
	_, err = k.Pull(t.Context(), launcherapi.ModelRequest{URI: "x://m"})
	assert.Equal(t, launcherapi.CodeUnavailable, launcher.CodeOf(err))
}

func TestStoreIsUnlockedWhileNothingIsFetched(t *testing.T) {
	k, _ := newKeeper(t, "slow")
	m, err := k.Pull(t.Context(), launcherapi.ModelRequest{URI: "x://m"})
	require.NoError(t, err)
	_, err = modelstore.Open(modelstore.Options{Dir: k.opts.Dir})
	var locked *modelstore.LockedError
	require.ErrorAs(t, err, &locked)
	_, err = k.Remove(t.Context(), m.ID, "")
	require.NoError(t, err)
	other, err := modelstore.Open(modelstore.Options{Dir: k.opts.Dir})
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = k.Pull(ctx, launcherapi.ModelRequest{URI: "x://m"})
	assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err), "%v", err)
	require.NoError(t, other.Close())
}

func TestRemovalSaysWhoOwnsTheStore(t *testing.T) {
	k, _ := newKeeper(t, "right")
	m, err := k.Pull(t.Context(), launcherapi.ModelRequest{URI: "x://m"})
	require.NoError(t, err)
	var other *modelstore.Store // a long pull of another process
	require.Eventually(t, func() bool {
		other, err = modelstore.Open(modelstore.Options{Dir: k.opts.Dir})
		return err == nil
	}, patience.Wait(), time.Millisecond)
	_, err = k.Remove(t.Context(), m.ID, "")
	assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err))
	require.ErrorContains(t, err, fmt.Sprintf("process %d on ", os.Getpid()))
	require.NoError(t, other.Close())
	_, err = k.Remove(t.Context(), m.ID, "")
	require.NoError(t, err)
}

func TestFinishedFetchIsThere(t *testing.T) {
	k, _ := newKeeper(t, "right")
	changed := k.Changed()
	m, err := k.Pull(t.Context(), launcherapi.ModelRequest{URI: "x://m"})
	require.NoError(t, err)
	<-changed
	await(t, k, m.ID, launcherapi.ModelReady)
	again, err := k.Pull(t.Context(), launcherapi.ModelRequest{URI: "x://m"})
	require.NoError(t, err)
	assert.Equal(t, launcherapi.ModelReady, again.State)
}

func TestOnlyTheHolderRemovesItsFetch(t *testing.T) {
	for _, how := range []string{"slow", "slow, of no version"} {
		k, _ := newKeeper(t, how)
		m, err := k.Pull(t.Context(), launcherapi.ModelRequest{URI: "x://m", WantedBy: "pool"})
		require.NoError(t, err)
		_, err = k.Remove(t.Context(), m.ID, "")
		assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err), "%s: %v", how, err)
		require.ErrorContains(t, err, "wanted by pool")
		_, err = k.Remove(t.Context(), m.ID, "other")
		require.NoError(t, err)
		m, err = k.Get(m.ID)
		require.NoError(t, err)
		assert.Equal(t, launcherapi.ModelDownloading, m.State)
		_, err = k.Remove(t.Context(), m.ID, "pool")
		require.NoError(t, err)
		_, err = k.Get(m.ID)
		assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err), "%v", err)
	}
}

// A pull ends a moment after the store has given up its fetch. Another pull may have
// begun by then.
func TestEndedPullKeepsTheStateOfTheNextOne(t *testing.T) {
	k, _ := newKeeper(t, "slow")
	m, err := k.Pull(t.Context(), launcherapi.ModelRequest{URI: "x://m"})
	require.NoError(t, err)
	k.mu.Lock()
	first := k.pulls[m.ID]
	k.mu.Unlock()
	starting, start, second := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	k.opts.Start = func(modelfetch *exec.Cmd) (func() bool, error) {
		close(starting)
		<-start
		return func() bool { return false }, modelfetch.Start()
	}
	go func() {
		_, err := k.Pull(t.Context(), launcherapi.ModelRequest{URI: "x://m"})
		second <- err
	}()
	<-starting
	k.owning.turn <- struct{}{} // the first pull needs the lock to release the store
	first.cancel(errors.New("its source is away"))
	staging := filepath.Join(k.opts.Dir, "staging", m.ID)
	require.Eventually(t, func() bool { _, err := os.Stat(staging); return err != nil }, patience.Wait(), time.Millisecond)
	close(start)
	require.NoError(t, <-second)
	<-k.owning.turn
	<-first.over
	m, err = k.Get(m.ID)
	require.NoError(t, err)
	assert.Equal(t, launcherapi.ModelDownloading, m.State, m.Reason)
	_, err = k.Remove(t.Context(), m.ID, "")
	require.NoError(t, err)
}

func TestPullOfModelRemovedMeanwhileIsConflict(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "models")
	s, err := modelstore.Open(modelstore.Options{Dir: dir})
	require.NoError(t, err)
	f, err := s.Admit(announced("x://m"), modelstore.Want{})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(f.Staging(), announced("x://m").Files[0].SHA256), []byte("x://m"), 0o600))
	v, err := f.Publish(announced("x://m"))
	require.NoError(t, err)
	require.NoError(t, s.Close())
	k, _ := newKeeperIn(t, "right", dir)
	k.opts.Pulled = func(string, int64) { assert.NoError(t, os.RemoveAll(filepath.Dir(k.Files(v.Key)))) }
	_, err = k.Pull(t.Context(), launcherapi.ModelRequest{URI: "x://m"})
	assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err), "not_found would be said of its source: %v", err)
}

func TestFailureIsListedUntilItsHolderWantsAnotherVersion(t *testing.T) {
	for _, other := range []string{"", "other"} {
		k, _ := newKeeper(t, "cut off")
		_, _ = k.Pull(t.Context(), launcherapi.ModelRequest{URI: "x://m", WantedBy: "pool"}) // its answer may come before the failure
		failed := announced("x://m")
		failed.Revision = "0"
		await(t, k, failed.Key(), launcherapi.ModelFailed)
		t.Setenv(childEnv, "right")
		m, err := k.Pull(t.Context(), launcherapi.ModelRequest{URI: "x://m", WantedBy: cmp.Or(other, "pool")})
		require.NoError(t, err)
		await(t, k, m.ID, launcherapi.ModelReady)
		all, err := k.List()
		require.NoError(t, err)
		told := 1
		if other != "" {
			told = 2
		}
		assert.Len(t, all.Models, told, "%q", other)
	}
}

func TestFailureIsListedUntilItsHolderRemovesIt(t *testing.T) {
	k, _ := newKeeper(t, "cut off")
	_, _ = k.Pull(t.Context(), launcherapi.ModelRequest{URI: "x://m", WantedBy: "pool"}) // its answer may come before the failure
	m := announced("x://m")
	m.Revision = "0"
	await(t, k, m.Key(), launcherapi.ModelFailed)
	_, err := k.Remove(t.Context(), m.Key(), "other")
	require.NoError(t, err)
	told, err := k.Get(m.Key())
	require.NoError(t, err)
	assert.Equal(t, launcherapi.ModelFailed, told.State)
	assert.Equal(t, []string{"pool"}, told.WantedBy)
	_, err = k.Remove(t.Context(), m.Key(), "pool")
	require.NoError(t, err)
	_, err = k.Get(m.Key())
	assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err), "%v", err)
}

// await waits until a model is in a state.
func await(t *testing.T, k *Keeper, id, state string) {
	t.Helper()
	for {
		changed := k.Changed()
		m, err := k.Get(id)
		require.NoError(t, err)
		if m.State == state {
			return
		}
		<-changed
	}
}
