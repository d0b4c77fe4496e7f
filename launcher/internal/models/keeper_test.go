package models

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/modelstore"
	"hotseat.dev/hotseat/launcher/internal/pagecache"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// childEnv makes the test binary a program that fetches, and that does what the
// variable says.
const childEnv = "MODELS_TEST_CHILD"

func TestMain(m *testing.M) {
	if how := os.Getenv(childEnv); how != "" {
		fetch(how, json.NewEncoder(os.Stdout), json.NewDecoder(os.Stdin))
		return
	}
	goleak.VerifyTestMain(m)
}

// announced is the model that the program is asked for: its address is its weights.
func announced() *fetchapi.Manifest {
	uri := os.Args[len(os.Args)-1]
	sum := sha256.Sum256([]byte(uri))
	return &fetchapi.Manifest{URI: uri, Revision: "1", Files: []fetchapi.File{{Path: "a", Size: int64(len(uri)), SHA256: hex.EncodeToString(sum[:])}}}
}

func fetch(how string, out *json.Encoder, in *json.Decoder) {
	switch how {
	case "asks for a token", "lets all read", "refuses all", "is away":
		source(how, out, in)
		return
	}
	if how == "silent" {
		_ = in.Decode(&fetchapi.Line{}) // until the end of the input
		return
	}
	_ = out.Encode(fetchapi.Line{Type: fetchapi.TypeManifest, Manifest: announced()})
	var told fetchapi.Line
	if in.Decode(&told) != nil {
		return
	}
	if told.Type == fetchapi.TypeProve {
		_ = out.Encode(fetchapi.Line{Type: fetchapi.TypeProved})
		return
	}
	if how == "slow" {
		_ = in.Decode(&fetchapi.Line{})
		return
	}
	if gate, held := strings.CutPrefix(how, "once somebody writes to "); held {
		_, _ = os.ReadFile(gate)
	}
	_ = os.WriteFile(filepath.Join(told.Staging, announced().Files[0].SHA256), []byte(announced().URI), 0o600)
	_ = out.Encode(fetchapi.Line{Type: fetchapi.TypeDone, Manifest: announced()})
}

// source is one that is asked whether a model may be read.
func source(how string, out *json.Encoder, in *json.Decoder) {
	var told fetchapi.Line
	if slices.Contains(os.Args, "--credentials") && in.Decode(&told) != nil {
		return
	}
	if how == "is away" {
		_ = out.Encode(fetchapi.Line{Type: fetchapi.TypeError, Error: &fetchapi.Error{Reason: fetchapi.ReasonUnavailable, Detail: "nobody answers"}})
		return
	}
	_ = out.Encode(fetchapi.Line{Type: fetchapi.TypeManifest, Manifest: announced()})
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

// by makes a keeper whose models are fetched as the word says.
func by(t *testing.T, how string) (*Keeper, *[]string) {
	t.Helper()
	return keeps(t, how, filepath.Join(t.TempDir(), "models"))
}

// keeps is by, with models in that folder.
func keeps(t *testing.T, how, dir string) (*Keeper, *[]string) {
	t.Helper()
	return keepsWithin(t, how, dir, pagecache.Room)
}

// keepsWithin is keeps, with so much room in main memory.
func keepsWithin(t *testing.T, how, dir string, room func(held int64) (int64, error)) (*Keeper, *[]string) {
	t.Helper()
	t.Setenv(childEnv, how)
	exe, err := os.Executable()
	require.NoError(t, err)
	var outcomes []string
	k, err := New(Options{
		Dir: dir, Program: []string{exe}, Stderr: io.Discard,
		Pulled: func(outcome string, _ int64) { outcomes = append(outcomes, outcome) }, Evicted: func(string, int64) {}, Room: room, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, k.Close()) })
	return k, &outcomes
}

func TestACallThatIsBrokenOffBeforeTheSourceHasAnsweredEndsItsFetch(t *testing.T) {
	k, outcomes := by(t, "silent")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := k.Pull(ctx, launcherapi.ModelRequest{URI: "x://m"})
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, []string{"cancelled"}, *outcomes)
}

func TestTheEndOfTheKeeperEndsItsFetches(t *testing.T) {
	k, outcomes := by(t, "slow")
	m, err := k.Pull(t.Context(), launcherapi.ModelRequest{URI: "x://m"})
	require.NoError(t, err)
	assert.Equal(t, launcherapi.ModelDownloading, m.State)
	require.NoError(t, k.Close())
	assert.Equal(t, []string{"cancelled"}, *outcomes)
	_, err = k.Pull(t.Context(), launcherapi.ModelRequest{URI: "x://m"})
	assert.Equal(t, launcherapi.CodeUnavailable, launcher.CodeOf(err))
}

func TestTheStoreIsFreeForOthersWhileNothingIsFetched(t *testing.T) {
	k, _ := by(t, "slow")
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

func TestAFetchThatIsDoneIsThere(t *testing.T) {
	k, _ := by(t, "right")
	changed := k.Changed()
	m, err := k.Pull(t.Context(), launcherapi.ModelRequest{URI: "x://m"})
	require.NoError(t, err)
	<-changed
	for m.State != launcherapi.ModelReady {
		changed := k.Changed()
		m, err = k.Get(m.ID)
		require.NoError(t, err)
		if m.State != launcherapi.ModelReady {
			<-changed
		}
	}
	again, err := k.Pull(t.Context(), launcherapi.ModelRequest{URI: "x://m"})
	require.NoError(t, err)
	assert.Equal(t, launcherapi.ModelReady, again.State)
}
