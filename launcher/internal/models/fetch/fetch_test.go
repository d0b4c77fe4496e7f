package fetch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/launcher/internal/models/modelsource"
	"hotseat.dev/hotseat/spec/fetchapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted is a source of one file that does what a test says.
type scripted struct {
	content []byte
	whole   bool // it cannot begin in the middle
	short   int  // after so many bytes each answer ends; 0: none does
	errs    []error
	opened  []int64 // the offsets that were asked for
}

func (s *scripted) Resolve(context.Context) (*fetchapi.Manifest, error) { return nil, nil }

func (s *scripted) Open(_ context.Context, _ int, offset int64) (*modelsource.Stream, error) {
	s.opened = append(s.opened, offset)
	if len(s.errs) > 0 {
		err := s.errs[0]
		s.errs = s.errs[1:]
		return nil, err
	}
	if s.whole {
		offset = 0
	}
	rest := s.content[offset:]
	if s.short > 0 {
		rest = rest[:min(s.short, len(rest))]
	}
	return &modelsource.Stream{ReadCloser: io.NopCloser(bytes.NewReader(rest)), Offset: offset, Size: -1}, nil
}

func (s *scripted) Resumes() bool { return true }

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// of makes a fetch of what a manifest announces as want from a source.
func of(t *testing.T, s *scripted, want []byte) *Fetch {
	t.Helper()
	return New(Options{
		Source: s, Staging: t.TempDir(), Streams: 2, Tries: 3, Backoff: time.Millisecond, MaxWait: time.Second, Note: func(string) {},
		Manifest: &fetchapi.Manifest{URI: "x", Revision: "1", Files: []fetchapi.File{{Path: "a", Size: int64(len(want)), SHA256: hashOf(want)}}},
	})
}

// left puts what an earlier process has left.
func left(t *testing.T, f *Fetch, part []byte, synced int) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(f.Staging, partName("a")), part, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(f.Staging, partName("a")+".note"), []byte(strconv.Itoa(synced)), 0o600))
}

var content = bytes.Repeat([]byte("0123456789"), 100_000)

func fetched(t *testing.T, f *Fetch) {
	t.Helper()
	m, err := f.Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, hashOf(content), m.Files[0].SHA256)
	got, err := os.ReadFile(filepath.Join(f.Staging, hashOf(content)))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(content, got))
	entries, err := os.ReadDir(f.Staging)
	require.NoError(t, err)
	assert.Len(t, entries, 1, "nothing else is left")
}

func TestAFileIsResumedWhereItIsSurelyOnTheDisk(t *testing.T) {
	s := &scripted{content: content}
	f := of(t, s, content)
	torn := append(bytes.Clone(content[:500_000]), make([]byte, 200_000)...) // written, and lost
	left(t, f, torn, 500_000)
	fetched(t, f)
	assert.Equal(t, []int64{500_000}, s.opened)
	_, network := f.Progress()
	assert.EqualValues(t, 500_000, network)
}

func TestAFileWhoseHashNobodySaysIsFinishedOnce(t *testing.T) {
	s := &scripted{content: content}
	f := of(t, s, content)
	f.Manifest.Files[0].SHA256 = ""
	for range 2 { // the second is another process, before the model is published
		m, err := New(f.Options).Run(t.Context())
		require.NoError(t, err)
		assert.Equal(t, hashOf(content), m.Files[0].SHA256)
	}
	assert.Equal(t, []int64{0}, s.opened, "the second reads nothing")
	s.opened = nil
	require.NoError(t, os.Remove(filepath.Join(f.Staging, hashOf(content))))
	_, err := New(f.Options).Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []int64{0}, s.opened)
}

// What somebody else has fetched of a private model is nobody's whom the source refuses it.
func TestWhatIsHereIsTakenOnceTheSourceLetsItBeRead(t *testing.T) {
	refused := &fetchapi.Error{Reason: fetchapi.ReasonAccessDenied, Detail: "no"}
	s := &scripted{content: content, errs: []error{refused, refused, &modelsource.TemporaryError{Cause: refused}}}
	f := of(t, s, content)
	f.MustProve = true
	left(t, f, content, len(content))
	_, err := f.Run(t.Context())
	require.ErrorIs(t, err, refused, "all of it was fetched by another")
	have := f.Options
	have.Have, have.Staging = []string{hashOf(content)}, t.TempDir()
	_, err = New(have).Run(t.Context())
	require.ErrorIs(t, err, refused, "the store has it of another model")
	require.NoError(t, New(have).Prove(t.Context()), "it is asked again where another try may help")
	assert.Equal(t, []int64{999_999, 999_999, 999_999, 999_999}, s.opened)
	fetched(t, f)
}

func TestASourceThatIsCutOffAgainAndAgainIsGivenUp(t *testing.T) {
	s := &scripted{content: content, short: 1000}
	_, err := of(t, s, content).Run(t.Context())
	require.ErrorContains(t, err, "after 3 tries: a was cut off after 3000 bytes")
	s = &scripted{content: content, short: progress}
	fetched(t, of(t, s, content))
	assert.Greater(t, len(s.opened), 3)
}

func TestASourceThatCannotBeginInTheMiddleIsReadFromTheBeginning(t *testing.T) {
	s := &scripted{content: content, whole: true}
	f := of(t, s, content)
	left(t, f, content[:500_000], 500_000)
	fetched(t, f)
	done, _ := f.Progress()
	assert.EqualValues(t, len(content), done)
}

func TestAResumedFileThatTurnsOutWrongIsFetchedOnceAnew(t *testing.T) {
	s := &scripted{content: content}
	f := of(t, s, content)
	left(t, f, make([]byte, 500_000), 500_000)
	fetched(t, f)
	assert.Equal(t, []int64{500_000, 0}, s.opened)
}

func TestANoteThatIsNonsenseCostsTheFileAlone(t *testing.T) {
	for _, synced := range []int{-1, 2_000_000, 900_000} { // the part has 100
		s := &scripted{content: content}
		f := of(t, s, content)
		left(t, f, content[:100], synced)
		fetched(t, f)
		assert.Equal(t, []int64{0}, s.opened)
	}
}

func TestWhatIsNotWhatWasAnnouncedIsRefused(t *testing.T) {
	wrong := bytes.Clone(content)
	wrong[77] ^= 1
	for name, sent := range map[string][]byte{"a wrong byte": wrong, "too much": append(bytes.Clone(content), 'x')} {
		t.Run(name, func(t *testing.T) {
			f := of(t, &scripted{content: sent}, content)
			_, err := f.Run(t.Context())
			var e *fetchapi.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, fetchapi.ReasonIntegrityMismatch, e.Reason)
			_, err = os.Lstat(filepath.Join(f.Staging, hashOf(content)))
			require.ErrorIs(t, err, os.ErrNotExist)
		})
	}
}

func TestOnlyWhatMayPassIsTriedAgain(t *testing.T) {
	passing := &modelsource.TemporaryError{Cause: errors.New("busy")}
	s := &scripted{content: content, errs: []error{passing, passing}}
	fetched(t, of(t, s, content))
	s = &scripted{content: content, errs: []error{passing, passing, passing}}
	_, err := of(t, s, content).Run(t.Context())
	require.ErrorContains(t, err, "after 3 tries: busy")
	s = &scripted{content: content, errs: []error{errors.New("denied")}}
	_, err = of(t, s, content).Run(t.Context())
	require.ErrorContains(t, err, "denied")
	assert.Len(t, s.opened, 1)
	s = &scripted{content: content, errs: []error{&modelsource.TemporaryError{Cause: errors.New("busy"), After: time.Hour}}}
	_, err = of(t, s, content).Run(t.Context())
	require.ErrorContains(t, err, "longer than the limit of 1s")
}

func TestAPointerOfGitLFSIsNoFile(t *testing.T) {
	pointer := []byte("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n")
	_, err := of(t, &scripted{content: pointer}, pointer).Run(t.Context())
	require.ErrorContains(t, err, "a is a pointer of Git LFS in place of the file")
	var e *fetchapi.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, fetchapi.ReasonInvalid, e.Reason)
	long := append(bytes.Clone(pointer), make([]byte, pointerSize)...)
	_, err = of(t, &scripted{content: long}, long).Run(t.Context())
	require.NoError(t, err, "it only begins so")
}
