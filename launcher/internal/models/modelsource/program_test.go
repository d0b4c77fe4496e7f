package modelsource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/spec/fetchapi"
	testpatience "hotseat.dev/hotseat/test/helpers/patience"
)

// scripted gives a source that is a shell script.
func scripted(t *testing.T, script string, o Options) Source {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	syscall.ForkLock.RLock() // a child that another test forks now would have the file open for a moment
	err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700)
	syscall.ForkLock.RUnlock()
	require.NoError(t, err)
	o.Programs = map[string]string{"mine": path}
	if o.Stall == 0 {
		o.Stall = 30 * time.Second
	}
	if o.Note == nil {
		o.Note = func(string) {}
	}
	return source(t, "mine://org/model", o)
}

const (
	manifestLine = `echo '{"type": "manifest", "manifest": {"uri": "hf://org/other", "revision": "7", "files": [{"path": "w", "size": 10}]}}'`
	opens        = `echo '{"type": "opened", "offset": '$5'}'
`
	resolves = `[ $1 = resolve ] && { ` + manifestLine + `; exit; }
`
)

func TestAProgramIsAskedForAModelAndItsContent(t *testing.T) {
	var notes []string
	t.Setenv("HF_TOKEN", "secret")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "/secret")
	t.Setenv("MINE_TOKEN", "mine")
	s := scripted(t, resolves+`
echo '{"type": "note", "text": "'$HF_TOKEN$GOOGLE_APPLICATION_CREDENTIALS$MINE_TOKEN $*'"}'
[ ! -e /proc/self/fd/4 ] || exit 1
`+opens+`printf 0123456789 | tail -c +$(($5 + 1)) >&3`, Options{Note: func(text string) { notes = append(notes, text) }})
	m, err := s.Resolve(t.Context())
	require.NoError(t, err)
	assert.Equal(t, &fetchapi.Manifest{URI: "mine://org/model", Revision: "7", Files: []fetchapi.File{{Path: "w", Size: 10}}}, m, "the address is not the program's to say")
	stream, err := s.Open(t.Context(), 0, 4)
	require.NoError(t, err)
	assert.EqualValues(t, 4, stream.Offset)
	content, err := io.ReadAll(stream)
	require.NoError(t, err)
	require.NoError(t, stream.Close())
	assert.Equal(t, "456789", string(content))
	assert.Equal(t, []string{"mine open mine://org/model 7 w 4"}, notes, "and no credentials of other sources")
}

func TestWhatAProgramDoesWrongIsToldByItsReason(t *testing.T) {
	const refusal = `echo '{"type": "error", "error": {"reason": "%s", "detail": "no such thing"}}'; exit 1`
	for name, c := range map[string]struct {
		script, reason, says string
		again                bool // another try may help
	}{
		"it does not know the model":   {script: fmt.Sprintf(refusal, "NotFound"), reason: fetchapi.ReasonNotFound, says: "the source of mine:// reports: no such thing"},
		"it may not read the model":    {script: fmt.Sprintf(refusal, "AccessDenied"), reason: fetchapi.ReasonAccessDenied, says: "no such thing"},
		"it cannot reach the model":    {script: fmt.Sprintf(refusal, "Unavailable"), reason: fetchapi.ReasonUnavailable, says: "no such thing", again: true},
		"a reason of its own":          {script: fmt.Sprintf(refusal, "Bored"), reason: fetchapi.ReasonInvalid, says: `an error with the unknown reason "Bored": no such thing`},
		"an error that says nothing":   {script: `echo '{"type": "error"}'`, reason: fetchapi.ReasonInvalid, says: "wrote a line error that has no error or no detail"},
		"it dies":                      {script: "echo lost my way >&2; exit 3", reason: fetchapi.ReasonUnavailable, says: "failed: exit status 3: lost my way", again: true},
		"it is killed":                 {script: "kill -9 $$", reason: fetchapi.ReasonUnavailable, says: "failed: signal: killed", again: true},
		"it says nothing":              {script: "exit 0", reason: fetchapi.ReasonInvalid, says: "ended without a manifest"},
		"it prints text":               {script: "echo hello; sleep 300", reason: fetchapi.ReasonInvalid, says: `wrote a line that is not JSON: "hello"`},
		"it prints another type":       {script: `echo '{"type": "go"}'; sleep 300`, reason: fetchapi.ReasonInvalid, says: `wrote a line of the unknown type "go"`},
		"it prints content":            {script: `head -c 3000000 /dev/zero; echo`, reason: fetchapi.ReasonInvalid, says: "wrote a line that is not JSON"},
		"a manifest that is none":      {script: `echo '{"type": "manifest"}'`, reason: fetchapi.ReasonInvalid, says: "wrote a line manifest that has no manifest"},
		"a manifest without revision":  {script: `echo '{"type": "manifest", "manifest": {"files": [{"path": "w"}]}}'`, reason: fetchapi.ReasonInvalid, says: "a manifest without a revision"},
		"a manifest, and then it dies": {script: manifestLine + "; exit 3", reason: fetchapi.ReasonUnavailable, says: "exit status 3", again: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scripted(t, c.script, Options{})
			_, err := s.Resolve(t.Context())
			require.Equal(t, c.reason, reasonOf(t, err), "%v", err)
			require.ErrorContains(t, err, c.says)
			_, again := errors.AsType[*TemporaryError](err)
			assert.Equal(t, c.again, again)

			s = scripted(t, resolves+c.script, Options{})
			_, err = s.Resolve(t.Context())
			require.NoError(t, err)
			_, err = s.Open(t.Context(), 0, 0)
			if strings.Contains(c.says, "manifest") || c.script == "exit 0" { // which is no answer here
				return
			}
			require.Equal(t, c.reason, reasonOf(t, err), "%v", err)
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestAProgramSaysFromWhereItsContentIs(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		offset int64
		says   string
	}{
		"where it was asked to":     {opens + "printf 456789 >&3", 4, ""},
		"from the beginning":        {`echo '{"type": "opened"}'; printf 0123456789 >&3`, 0, ""},
		"from elsewhere":            {`echo '{"type": "opened", "offset": 3}'; printf 3456789 >&3`, 0, "was asked to open a file at byte 4, but opens it at 3"},
		"it does not say":           {"printf 0123456789 >&3", 0, "ended before it wrote the line opened"},
		"it says it twice":          {opens + opens + "sleep 300", 4, "wrote the line opened twice"},
		"after the content, and so": {"printf 456789 >&3;" + opens, 4, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scripted(t, resolves+c.script, Options{})
			_, err := s.Resolve(t.Context())
			require.NoError(t, err)
			stream, err := s.Open(t.Context(), 0, 4)
			if err == nil {
				assert.Equal(t, c.offset, stream.Offset)
				var content []byte
				content, err = io.ReadAll(stream)
				if c.says == "" {
					assert.Equal(t, "0123456789"[c.offset:], string(content))
				}
				require.NoError(t, stream.Close())
			}
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				return
			}
			require.NoError(t, err)
		})
	}
}

func TestAProgramThatIsMissingOrCannotBeRunIsNamed(t *testing.T) {
	o := Options{Stall: time.Second, Programs: map[string]string{"mine": "/nonexistent/program"}}
	_, err := source(t, "mine://m", o).Resolve(t.Context())
	require.Equal(t, fetchapi.ReasonInvalid, reasonOf(t, err))
	require.ErrorContains(t, err, "cannot run the source of mine://: fork/exec /nonexistent/program: no such file")
	_, err = New("other://m", o)
	require.ErrorContains(t, err, "unknown scheme of the address \"other://m\"")
	o.Token = "secret"
	_, err = New("mine://m", o)
	require.ErrorContains(t, err, "takes no token")
}

func TestAProgramWhoseSourceHasChangedSaysSo(t *testing.T) {
	s := scripted(t, resolves+`echo '{"type": "error", "error": {"reason": "Changed", "detail": "it is another"}}'; exit 1`, Options{})
	_, err := s.Resolve(t.Context())
	require.NoError(t, err)
	_, err = s.Open(t.Context(), 0, 0)
	require.ErrorIs(t, err, ErrChanged)
}

func TestAProgramThatBreaksOffIsToldAfterWhatHasCome(t *testing.T) {
	s := scripted(t, resolves+opens+`printf 01234 >&3; echo the disk is gone >&2; exit 1`, Options{})
	_, err := s.Resolve(t.Context())
	require.NoError(t, err)
	stream, err := s.Open(t.Context(), 0, 0)
	require.NoError(t, err)
	content, err := io.ReadAll(stream)
	assert.Equal(t, "01234", string(content))
	require.Equal(t, fetchapi.ReasonUnavailable, reasonOf(t, err))
	require.ErrorContains(t, err, "exit status 1: the disk is gone")
	require.NoError(t, stream.Close())
}

// silentPID waits for the id that a program has written of itself.
func silentPID(t *testing.T, path string) (pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(path)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil && pid > 0
	}, testpatience.Wait(), time.Millisecond)
	return pid
}

// A program that hangs is ended with what it has started, as is one of which no more is
// needed; one that is read slowly is not.
func TestAProgramThatHangsIsEndedAndOneThatIsReadSlowlyIsNot(t *testing.T) {
	stall := (testpatience.Wait() / 60).Round(time.Millisecond) // a shell starts in less
	for name, c := range map[string]struct {
		ends func(s Source, ctx context.Context, cancel func()) error
		says string
	}{
		"while it resolves": {func(s Source, ctx context.Context, _ func()) error {
			_, err := s.Resolve(ctx)
			return err
		}, "has written nothing for " + stall.String()},
		"before the first byte": {func(s Source, ctx context.Context, _ func()) error {
			s.(*program).files = []fetchapi.File{{Path: "w"}}
			_, err := s.Open(ctx, 0, 0)
			return err
		}, "has written nothing for " + stall.String()},
		"when nobody waits any more": {func(s Source, ctx context.Context, cancel func()) error {
			s.(*program).Stall = time.Minute
			time.AfterFunc(stall, cancel)
			_, err := s.Resolve(ctx)
			return err
		}, "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			note := filepath.Join(t.TempDir(), "pid")
			s := scripted(t, "sleep 300 & echo $! >"+note+"; wait", Options{Stall: stall})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			require.ErrorContains(t, c.ends(s, ctx, cancel), c.says)
			pid := silentPID(t, note)
			require.Eventually(t, func() bool { return gone(pid) }, testpatience.Wait(), time.Millisecond)
		})
	}
	t.Run("read slowly", func(t *testing.T) {
		t.Parallel()
		s := scripted(t, resolves+opens+"head -c 200000 /dev/zero >&3", Options{Stall: stall})
		_, err := s.Resolve(t.Context())
		require.NoError(t, err)
		stream, err := s.Open(t.Context(), 0, 0)
		require.NoError(t, err)
		_, err = io.CopyN(io.Discard, stream, 1000)
		require.NoError(t, err)
		time.Sleep(3 * stall / 2) // longer than a program may be silent
		n, err := io.Copy(io.Discard, stream)
		require.NoError(t, err)
		assert.EqualValues(t, 199000, n)
		require.NoError(t, stream.Close())
	})
	t.Run("no more is needed", func(t *testing.T) {
		t.Parallel()
		note := filepath.Join(t.TempDir(), "pid")
		s := scripted(t, resolves+"echo $$ >"+note+"\n"+opens+"cat /dev/zero >&3", Options{})
		_, err := s.Resolve(t.Context())
		require.NoError(t, err)
		stream, err := s.Open(t.Context(), 0, 0)
		require.NoError(t, err)
		require.NoError(t, stream.Close())
		require.True(t, gone(silentPID(t, note)))
	})
}

// gone says that a process has ended; who reaps it need not have come to that.
func gone(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil && unix.Kill(pid, 0) != nil || strings.Contains(string(text), ") Z ")
}
