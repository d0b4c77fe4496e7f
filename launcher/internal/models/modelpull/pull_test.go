package modelpull

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// childEnv is the name of a variable. If it is set, the test binary runs as the program
// of that name in children.
const childEnv = "MODELPULL_TEST_CHILD"

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		children[name](json.NewEncoder(os.Stdout), json.NewDecoder(os.Stdin))
		return
	}
	goleak.VerifyTestMain(m)
}

var weights = []byte("weights")

func announced() *fetchapi.Manifest {
	sum := sha256.Sum256(weights)
	return &fetchapi.Manifest{URI: "x://m", Revision: "1", Files: []fetchapi.File{{Path: "a", Size: int64(len(weights)), SHA256: hex.EncodeToString(sum[:])}}}
}

func say(out *json.Encoder, line fetchapi.Line) {
	if out.Encode(line) != nil {
		os.Exit(1)
	}
}

// fetch behaves as modelfetch should: it announces a manifest, and writes the files.
func fetch(out *json.Encoder, in *json.Decoder, m *fetchapi.Manifest) {
	say(out, fetchapi.Line{Type: fetchapi.TypeManifest, Manifest: m})
	fetchTold(out, in, m)
}

// fetchTold obeys the answer to a manifest that it has announced.
func fetchTold(out *json.Encoder, in *json.Decoder, m *fetchapi.Manifest) {
	var told fetchapi.Line
	if in.Decode(&told) != nil {
		os.Exit(1)
	}
	if told.Type == fetchapi.TypeProve {
		say(out, fetchapi.Line{Type: fetchapi.TypeProved})
		os.Exit(0)
	}
	if err := os.WriteFile(filepath.Join(told.Staging, m.Files[0].SHA256), weights, 0o600); err != nil {
		os.Exit(1)
	}
}

// takeHave takes the file that the store has, if that is with proof or without as expected.
func takeHave(out *json.Encoder, in *json.Decoder, mustProve bool) {
	say(out, fetchapi.Line{Type: fetchapi.TypeManifest, Manifest: announced()})
	var told fetchapi.Line
	if in.Decode(&told) == nil && told.MustProve == mustProve && len(told.Have) == 1 {
		say(out, fetchapi.Line{Type: fetchapi.TypeDone, Manifest: announced()})
	}
}

// children are programs that stand in for modelfetch.
var children = map[string]func(out *json.Encoder, in *json.Decoder){
	"right": func(out *json.Encoder, in *json.Decoder) {
		fetch(out, in, announced())
		say(out, fetchapi.Line{Type: fetchapi.TypeProgress, FetchedBytes: 7, NetworkBytes: 7, TotalBytes: 7})
		say(out, fetchapi.Line{Type: fetchapi.TypeDone, Manifest: announced()})
	},
	"changes": func(out *json.Encoder, in *json.Decoder) {
		before := announced()
		before.Revision = "0"
		fetch(out, in, before)
		fetch(out, in, announced())
		say(out, fetchapi.Line{Type: fetchapi.TypeDone, Manifest: announced()})
	},
	"a newer one": func(out *json.Encoder, in *json.Decoder) {
		m := announced()
		m.Revision = "2"
		fetch(out, in, m)
		say(out, fetchapi.Line{Type: fetchapi.TypeDone, Manifest: m})
	},
	"hashes last": func(out *json.Encoder, in *json.Decoder) {
		m := announced()
		m.Revision, m.Files[0].SHA256 = "", ""
		say(out, fetchapi.Line{Type: fetchapi.TypeManifest, Manifest: m})
		var told fetchapi.Line
		if in.Decode(&told) != nil || os.WriteFile(filepath.Join(told.Staging, announced().Files[0].SHA256), weights, 0o600) != nil {
			os.Exit(1)
		}
		say(out, fetchapi.Line{Type: fetchapi.TypeDone, Manifest: announced()})
	},
	"something else": func(out *json.Encoder, in *json.Decoder) {
		fetch(out, in, announced())
		other := announced()
		other.Revision = "2"
		say(out, fetchapi.Line{Type: fetchapi.TypeDone, Manifest: other})
	},
	"a larger file": func(out *json.Encoder, in *json.Decoder) {
		fetch(out, in, announced())
		other := announced()
		other.Files[0].Size = 8
		say(out, fetchapi.Line{Type: fetchapi.TypeDone, Manifest: other})
	},
	"a name that leaves": func(out *json.Encoder, _ *json.Decoder) {
		m := announced()
		m.Files[0].Path = "../a"
		say(out, fetchapi.Line{Type: fetchapi.TypeManifest, Manifest: m})
	},
	"nothing fetched": func(out *json.Encoder, in *json.Decoder) {
		say(out, fetchapi.Line{Type: fetchapi.TypeManifest, Manifest: announced()})
		_ = in.Decode(&fetchapi.Line{})
		say(out, fetchapi.Line{Type: fetchapi.TypeDone, Manifest: announced()})
	},
	"done at once": func(out *json.Encoder, _ *json.Decoder) {
		say(out, fetchapi.Line{Type: fetchapi.TypeDone, Manifest: announced()})
	},
	"proved unasked": func(out *json.Encoder, in *json.Decoder) {
		fetch(out, in, announced())
		say(out, fetchapi.Line{Type: fetchapi.TypeProved})
	},
	"proved at once":  func(out *json.Encoder, _ *json.Decoder) { say(out, fetchapi.Line{Type: fetchapi.TypeProved}) },
	"no manifest":     func(out *json.Encoder, _ *json.Decoder) { say(out, fetchapi.Line{Type: fetchapi.TypeManifest}) },
	"no reason":       func(out *json.Encoder, _ *json.Decoder) { say(out, fetchapi.Line{Type: fetchapi.TypeError}) },
	"an unknown line": func(out *json.Encoder, _ *json.Decoder) { say(out, fetchapi.Line{Type: "hello"}) },
	"no JSON":         func(*json.Encoder, *json.Decoder) { fmt.Println("hello") },
	"an end":          func(*json.Encoder, *json.Decoder) {},
	"an early end": func(out *json.Encoder, _ *json.Decoder) {
		_ = os.Stdin.Close() // before the pull can answer
		say(out, fetchapi.Line{Type: fetchapi.TypeManifest, Manifest: announced()})
	},
	"a full disk": func(out *json.Encoder, in *json.Decoder) {
		fetch(out, in, announced())
		say(out, fetchapi.Line{Type: fetchapi.TypeError, Error: &fetchapi.Error{Reason: fetchapi.ReasonCapacityExceeded, Detail: "full"}})
	},
	"does not answer": func(out *json.Encoder, _ *json.Decoder) {
		say(out, fetchapi.Line{Type: fetchapi.TypeError, Error: &fetchapi.Error{Reason: fetchapi.ReasonUnavailable, Detail: "nobody there"}})
	},
	"answers and ends": func(out *json.Encoder, in *json.Decoder) {
		m := announced()
		m.Revision = "2"
		say(out, fetchapi.Line{Type: fetchapi.TypeManifest, Manifest: m})
		_ = in.Decode(&fetchapi.Line{})
		say(out, fetchapi.Line{Type: fetchapi.TypeError, Error: &fetchapi.Error{Reason: fetchapi.ReasonUnavailable, Detail: "nobody there"}})
	},
	"asks first": func(out *json.Encoder, in *json.Decoder) {
		say(out, fetchapi.Line{Type: fetchapi.TypeManifest, Manifest: announced()})
		say(out, fetchapi.Line{Type: fetchapi.TypeNote, Text: "the source is asked"})
		fetchTold(out, in, announced())
		say(out, fetchapi.Line{Type: fetchapi.TypeDone, Manifest: announced()})
	},
	"refuses to prove": func(out *json.Encoder, in *json.Decoder) {
		say(out, fetchapi.Line{Type: fetchapi.TypeManifest, Manifest: announced()})
		var told fetchapi.Line
		if in.Decode(&told) == nil {
			say(out, fetchapi.Line{Type: fetchapi.TypeError, Error: &fetchapi.Error{Reason: fetchapi.ReasonAccessDenied, Detail: told.Type + " is refused"}})
		}
	},
	"must prove":     func(out *json.Encoder, in *json.Decoder) { takeHave(out, in, true) },
	"need not prove": func(out *json.Encoder, in *json.Decoder) { takeHave(out, in, false) },
	"is deaf": func(out *json.Encoder, in *json.Decoder) {
		fetch(out, in, announced())
		say(out, fetchapi.Line{Type: fetchapi.TypeNote, Text: "fetched"})
		select {}
	},
}

func ignore(fetchapi.Line) {}

// pullWith runs a pull with one of the children as modelfetch.
func pullWith(ctx context.Context, t *testing.T, s *modelstore.Store, child string, progress func(fetchapi.Line)) (Result, error) {
	t.Helper()
	return pullExpecting(ctx, t, s, child, progress, Expected{})
}

func pullExpecting(ctx context.Context, t *testing.T, s *modelstore.Store, child string, progress func(fetchapi.Line), e Expected) (Result, error) {
	t.Helper()
	return pullBy(ctx, t, s, child, Options{Expected: e, Progress: progress})
}

func pullBy(ctx context.Context, t *testing.T, s *modelstore.Store, child string, o Options) (Result, error) {
	t.Helper()
	t.Setenv(childEnv, child)
	exe, err := os.Executable()
	require.NoError(t, err)
	o.Store, o.Program, o.URI, o.Stderr, o.Admitted = s, []string{exe}, "x://m", io.Discard, func(*fetchapi.Manifest) {}
	return Run(ctx, o)
}

func store(t *testing.T) (*modelstore.Store, string) {
	t.Helper()
	dir := t.TempDir()
	s, err := modelstore.Open(modelstore.Options{Dir: dir})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s, dir
}

func TestFetchedModelIsPublishedOnce(t *testing.T) {
	for _, child := range []string{"right", "changes"} {
		s, _ := store(t)
		r, err := pullWith(t.Context(), t, s, child, ignore)
		require.NoError(t, err)
		assert.False(t, r.There)
		require.NoError(t, s.Verify(r.Version.Key))
		all, err := s.Versions()
		require.NoError(t, err)
		assert.Len(t, all, 1)
		r, err = pullWith(t.Context(), t, s, "right", ignore)
		require.NoError(t, err)
		assert.True(t, r.There)
	}
}

// A store that was copied has other times than those of its publication.
func TestFileWithAnotherTimeIsReadAndNotFetched(t *testing.T) {
	s, _ := store(t)
	r, err := pullWith(t.Context(), t, s, "right", ignore)
	require.NoError(t, err)
	file := filepath.Join(s.Files(r.Version.Key), "a")
	require.NoError(t, os.Chtimes(file, time.Now(), time.Now()))
	r, err = pullWith(t.Context(), t, s, "right", ignore)
	require.NoError(t, err)
	assert.True(t, r.There)
	require.NoError(t, os.Chmod(file, 0o600))
	require.NoError(t, os.WriteFile(file, []byte("WEIGHTS"), 0o600))
	r, err = pullWith(t.Context(), t, s, "right", ignore)
	require.NoError(t, err)
	assert.False(t, r.There)
	require.NoError(t, s.Verify(r.Version.Key))
}

func TestEndedPullReadsNoFilesOfACopiedStore(t *testing.T) {
	s, _ := store(t)
	r, err := pullWith(t.Context(), t, s, "right", ignore)
	require.NoError(t, err)
	file := filepath.Join(s.Files(r.Version.Key), "a")
	copied := time.Now()
	require.NoError(t, os.Chtimes(file, copied, copied))
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := errors.New("ended")
	cancel(ended)
	_, err = pullWith(ctx, t, s, "right", ignore)
	require.ErrorIs(t, err, ended)
	v, _ := s.Version(r.Version.Key)
	require.Error(t, v.Damage)
}

// The store has the private model when modelfetch announces it. The model may be removed
// before the source has answered.
func TestModelRemovedDuringProofIsFetched(t *testing.T) {
	for what, begin := range map[string]func(t *testing.T, s *modelstore.Store) (goes func() error){
		"it was there": func(t *testing.T, s *modelstore.Store) func() error {
			_, err := pullWith(t.Context(), t, s, "right", ignore)
			require.NoError(t, err)
			return func() error { return s.Remove(announced().Key(), "") }
		},
		"somebody else fetched it": func(t *testing.T, s *modelstore.Store) func() error {
			f, err := s.Admit(announced(), modelstore.Want{})
			require.NoError(t, err)
			return func() error { return f.GiveUp(true) }
		},
	} {
		t.Run(what, func(t *testing.T) {
			s, _ := store(t)
			goes, asked := begin(t, s), 0
			r, err := pullBy(t.Context(), t, s, "asks first", Options{Private: true, Expected: Expected{Bytes: int64(len(weights))}, Progress: func(fetchapi.Line) {
				if asked++; asked == 1 {
					assert.NoError(t, goes())
				}
			}})
			require.NoError(t, err)
			assert.False(t, r.There)
			require.NoError(t, s.Verify(r.Version.Key))
		})
	}
}

// The source of a model that is not private is not asked whether it lets a caller read.
func TestSourceIsAskedForTheRightToPrivateModelsOnly(t *testing.T) {
	for name, c := range map[string]struct {
		theirs, ours bool // private
		joins        bool // another pull still fetches it
		asks         bool
	}{
		"the version is not private":                 {false, false, false, false},
		"the version is private":                     {true, false, false, true},
		"the call is private":                        {false, true, false, true},
		"the version that is fetched is not private": {false, false, true, false},
		"the version that is fetched is private":     {true, false, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := store(t)
			theirs := modelstore.Want{Key: announced().Key(), URI: "x://m", Holder: "theirs", Private: c.theirs}
			if c.joins {
				f, err := s.Admit(announced(), theirs)
				require.NoError(t, err)
				require.NoError(t, f.Want(theirs))
				t.Cleanup(func() { require.NoError(t, f.GiveUp(true)) })
			} else {
				putIn(t, s, announced(), theirs)
			}
			r, err := pullBy(t.Context(), t, s, "refuses to prove", Options{Holder: "ours", Private: c.ours, Progress: ignore})
			all, failed := s.Versions()
			require.NoError(t, failed)
			if c.asks {
				assert.True(t, failedFor(err, fetchapi.ReasonAccessDenied), "%v", err)
				assert.Equal(t, []string{"theirs"}, all[0].WantedBy())
				return
			}
			if joined, joins := errors.AsType[*modelstore.FetchingError](err); joins {
				err = nil
				assert.True(t, c.joins, joined)
			}
			require.NoError(t, err)
			assert.Equal(t, !c.joins, r.There)
			assert.Equal(t, []string{"ours", "theirs"}, all[0].WantedBy())
		})
	}
}

// A fetch takes a file that the store has for a private model once its source lets it read.
func TestFetchProvesItsRightToFilesOfPrivateModels(t *testing.T) {
	for private, child := range map[bool]string{true: "must prove", false: "need not prove"} {
		s, _ := store(t)
		putIn(t, s, &fetchapi.Manifest{URI: "x://other", Revision: "9"}, modelstore.Want{Holder: "theirs", Private: private})
		_, err := pullBy(t.Context(), t, s, child, Options{Holder: "ours", Progress: ignore})
		require.NoError(t, err)
	}
}

// A refused caller leaves no want, with a holder or without one.
func TestRefusedPullLeavesNoWant(t *testing.T) {
	for _, holder := range []string{"", "ours"} {
		s, _ := store(t)
		putIn(t, s, &fetchapi.Manifest{URI: "x://other", Revision: "9"}, modelstore.Want{Holder: "theirs", Private: true})
		_, err := pullBy(t.Context(), t, s, "refuses to prove", Options{Holder: holder, Progress: ignore})
		require.True(t, failedFor(err, fetchapi.ReasonAccessDenied), "%v", err)
		_, err = pullBy(t.Context(), t, s, "right", Options{Holder: "third", Progress: func(fetchapi.Line) {
			all, err := s.Versions()
			assert.NoError(t, err)
			assert.Equal(t, []string{"third"}, all[1].PrivateBy(), "it has not proved its right yet")
		}})
		require.NoError(t, err)
		all, err := s.Versions()
		require.NoError(t, err)
		var by []string
		for _, v := range all {
			for _, w := range v.Wants {
				by = append(by, fmt.Sprintf("%s of %s, private: %v", w.Holder, w.URI, w.Private))
			}
		}
		assert.ElementsMatch(t, []string{"theirs of x://other, private: true", "third of x://m, private: false"}, by)
	}
}

// The branch of a private model has moved. Its old version is not there for all.
func TestSourceIsAskedForAPrivateVersionThatABranchHasLeft(t *testing.T) {
	s, _ := store(t)
	old := strings.Repeat("a", 40)
	for _, revision := range []string{old, strings.Repeat("b", 40)} {
		putIn(t, s, &fetchapi.Manifest{URI: "hf://org/name", Revision: revision}, modelstore.Want{Ref: "main", Holder: "theirs", Private: true})
	}
	_, err := Run(t.Context(), Options{Store: s, Program: []string{"/none"}, URI: "hf://org/name@" + old, Holder: "ours", Stderr: io.Discard, Progress: ignore})
	require.ErrorContains(t, err, "cannot start modelfetch")
}

// putIn publishes a model in a store.
func putIn(t *testing.T, s *modelstore.Store, m *fetchapi.Manifest, w modelstore.Want) {
	t.Helper()
	m.Files = announced().Files
	f, err := s.Admit(m, w)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(f.Staging(), m.Files[0].SHA256), weights, 0o600))
	v, err := f.Publish(m)
	require.NoError(t, err)
	w.Key, w.URI, w.Since = v.Key, m.URI, v.Published
	_, err = s.WantThere(w, true)
	require.NoError(t, err)
}

// A pull asks no source for a version that its address names for good.
func TestVersionNamedByCommitOrDigestIsNotAskedFor(t *testing.T) {
	commit, digest := strings.Repeat("a", 40), strings.Repeat("b", 64)
	for name, c := range map[string]struct {
		change func(o *Options)
		asks   bool
	}{
		"a commit":                 {func(*Options) {}, false},
		"for a holder":             {func(o *Options) { o.Holder = "pool" }, false},
		"a digest":                 {func(o *Options) { o.URI = "oci://host/m@sha256:" + digest }, false},
		"another commit":           {func(o *Options) { o.URI = "hf://org/name@" + strings.Repeat("c", 40) }, true},
		"a branch":                 {func(o *Options) { o.URI = "hf://org/name@main" }, true},
		"some of the files":        {func(o *Options) { o.Include = []string{"a"} }, true},
		"the caller's credentials": {func(o *Options) { o.Credentials = fetchapi.Credentials{} }, false},
		"a private want":           {func(o *Options) { o.Private = true }, true},
		"a private version":        {func(o *Options) { o.URI = "hf://org/private@" + commit }, true},
		"damaged": {func(o *Options) {
			v, err := o.Store.Find("hf://org/name")
			require.NoError(t, err)
			require.NoError(t, os.Remove(filepath.Join(o.Store.Files(v.Key), "a")))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := store(t)
			putIn(t, s, &fetchapi.Manifest{URI: "hf://org/name", Revision: commit, Ref: "main"}, modelstore.Want{Ref: "main"})
			putIn(t, s, &fetchapi.Manifest{URI: "hf://org/private", Revision: commit}, modelstore.Want{Holder: "theirs", Private: true})
			putIn(t, s, &fetchapi.Manifest{URI: "oci://host/m@sha256:" + digest, Revision: digest}, modelstore.Want{})
			o := Options{Store: s, Program: []string{"/none"}, URI: "hf://org/name@" + commit, Stderr: io.Discard, Progress: ignore}
			c.change(&o)
			r, err := Run(t.Context(), o)
			if c.asks {
				require.ErrorContains(t, err, "cannot start modelfetch")
				return
			}
			require.NoError(t, err)
			assert.True(t, r.There)
			assert.Equal(t, announced().Files, r.Version.Manifest.Files)
			o.Expected = Expected{Digest: "sha256:" + digest}
			_, err = Run(t.Context(), o)
			require.ErrorContains(t, err, "is expected")
		})
	}
}

func TestWholeVersionStandsInForASourceThatDoesNotAnswer(t *testing.T) {
	s, _ := store(t)
	_, err := pullWith(t.Context(), t, s, "does not answer", ignore)
	require.ErrorContains(t, err, "nobody there")
	_, err = pullWith(t.Context(), t, s, "right", ignore)
	require.NoError(t, err)
	var said string
	r, err := pullWith(t.Context(), t, s, "does not answer", func(l fetchapi.Line) { said += l.Text })
	require.NoError(t, err)
	assert.True(t, r.There)
	assert.Equal(t, "1", r.Version.Manifest.Revision)
	assert.Contains(t, said, "nobody there; the store has x://m whole, revision 1 of ")

	_, err = pullWith(t.Context(), t, s, "answers and ends", ignore)
	require.ErrorContains(t, err, "nobody there", "there is a newer one")
	exe, err := os.Executable()
	require.NoError(t, err)
	t.Setenv(childEnv, "does not answer")
	_, err = Run(t.Context(), Options{Store: s, Program: []string{exe}, URI: "x://m", Holder: "pool", Stderr: io.Discard, Progress: ignore})
	require.ErrorContains(t, err, "nobody there", "a program asks again")
}

// TestUnlessThereDoesNotMoveTheBranchBack checks that a pull with UnlessThere does not
// renew the holder's want: a branch means the version that was wanted by it last.
func TestUnlessThereDoesNotMoveTheBranchBack(t *testing.T) {
	s, _ := store(t)
	exe, err := os.Executable()
	require.NoError(t, err)
	o := Options{Store: s, Program: []string{exe}, URI: "x://m", Ref: "main", Stderr: io.Discard, Admitted: func(*fetchapi.Manifest) {}, Progress: ignore}
	for _, by := range []struct{ holder, child string }{{"first", "right"}, {"second", "a newer one"}} {
		t.Setenv(childEnv, by.child)
		o.Holder = by.holder
		_, err := Run(t.Context(), o)
		require.NoError(t, err)
	}
	o.Holder, o.UnlessThere, o.Program, o.Retention, o.Warm = "first", true, []string{"none"}, modelstore.LRU, true
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, "1", r.Version.Manifest.Revision)
	v, err := s.Wanted("x://m", "main", modelref.Lacks)
	require.NoError(t, err)
	assert.Equal(t, "2", v.Manifest.Revision)
	all, err := s.Versions()
	require.NoError(t, err)
	assert.Equal(t, []string{"first"}, all[0].LRUBy())
	assert.Equal(t, []string{"first"}, all[0].WarmBy())
}

func TestWrongAnswersOfModelfetchFailThePull(t *testing.T) {
	for child, says := range map[string]string{
		"something else":     "another version than the one that was admitted",
		"a larger file":      "another version than the one that was admitted",
		"a name that leaves": `".."`,
		"nothing fetched":    "was not fetched",
		"done at once":       "before it was told to begin",
		"proved unasked":     "may read before it was asked",
		"proved at once":     "may read before it was asked",
		"no manifest":        "wrote no manifest",
		"no reason":          "failed without a reason",
		"an unknown line":    `unknown type "hello"`,
		"no JSON":            "cannot read a line of modelfetch",
		"an end":             "ended before it was done",
		"an early end":       "ended before it was done",
	} {
		t.Run(child, func(t *testing.T) {
			s, _ := store(t)
			_, err := pullWith(t.Context(), t, s, child, ignore)
			require.ErrorContains(t, err, says)
			all, err := s.Versions()
			require.NoError(t, err)
			for _, v := range all {
				var partial *modelstore.PartialError
				require.ErrorAs(t, v.Damage, &partial)
			}
		})
	}
}

func TestModelThatDiffersFromDeclarationIsRefused(t *testing.T) {
	other := "sha256:" + strings.Repeat("a", 64)
	for child, at := range map[string]string{"right": "before it is fetched", "hashes last": "once it is fetched"} {
		s, _ := store(t)
		_, err := pullExpecting(t.Context(), t, s, child, ignore, Expected{Digest: other})
		require.ErrorContains(t, err, announced().Digest()+", but "+other+" is expected", at)
		assert.True(t, failedFor(err, fetchapi.ReasonIntegrityMismatch))
		if _, there := s.Version(announced().Key()); child == "right" {
			assert.False(t, there)
		}
		r, err := pullExpecting(t.Context(), t, s, child, ignore, Expected{Digest: announced().Digest(), Bytes: int64(len(weights))})
		require.NoError(t, err)
		assert.Nil(t, r.Version.Damage)
		_, err = pullExpecting(t.Context(), t, s, "right", ignore, Expected{Digest: other})
		require.ErrorContains(t, err, "is expected", "what is there is looked at, too")
	}
	for declared, taken := range map[int64]bool{0: true, 1 << 30: true, 10 << 30: true, 1 << 50: true, 1<<30 - 1: false, 1 << 20: false} {
		m := announced()
		m.Files[0].Size = 1 << 30
		if err := (Expected{Bytes: declared}).check(m); taken {
			require.NoError(t, err, declared)
		} else {
			require.ErrorContains(t, err, fmt.Sprintf("has 1073741824 bytes, and the declared size allows %d", declared))
		}
	}
}

func TestFullDiskDropsTheFetchedFiles(t *testing.T) {
	s, dir := store(t)
	_, err := pullWith(t.Context(), t, s, "a full disk", ignore)
	require.ErrorContains(t, err, "full")
	staged, err := os.ReadDir(filepath.Join(dir, "staging"))
	require.NoError(t, err)
	assert.Empty(t, staged)
}

// No other process may own the store while the child can write to it.
func TestUnresponsiveModelfetchIsKilledAndOwnsTheStoreUntilThen(t *testing.T) {
	dir := t.TempDir()
	s, err := modelstore.Open(modelstore.Options{Dir: dir})
	require.NoError(t, err)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := pullWith(ctx, t, s, "is deaf", func(fetchapi.Line) {
			assert.NoError(t, s.Close())
			_, err := modelstore.Open(modelstore.Options{Dir: dir})
			var locked *modelstore.LockedError
			assert.ErrorAs(t, err, &locked)
			cancel(cause)
		})
		ended <- err
	}()
	select {
	case err = <-ended:
		require.ErrorIs(t, err, cause)
	case <-time.After(patience.Wait()):
		require.FailNow(t, "the child was not killed")
	}
	again, err := modelstore.Open(modelstore.Options{Dir: dir})
	require.NoError(t, err)
	require.NoError(t, again.Close())
}
