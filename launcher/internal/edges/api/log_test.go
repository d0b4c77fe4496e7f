package api_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/machine/outlog"
	"hotseat.dev/hotseat/spec/launcherapi"
)

const logPath = instancesPath + "/a/log"

// readLog asks for a range of a log; empty: for all of it.
func (r *rig) readLog(t *testing.T, asked string) answer {
	t.Helper()
	if asked == "" {
		return r.do(t, http.MethodGet, logPath, "")
	}
	return r.do(t, http.MethodGet, logPath, "", "Range", asked)
}

func TestALogIsReadInRanges(t *testing.T) {
	r := newRig(t)
	r.create(t, "a")
	r.writeLog(t, "a", "0123456789\xff\xfe")
	for name, test := range map[string]struct {
		asked, contentRange, body string
		status                    int
	}{
		"whole":                       {"", "bytes 0-11/12", "0123456789\xff\xfe", 200},
		"a range":                     {"bytes=2-4", "bytes 2-4/12", "234", 206},
		"one byte":                    {"bytes=0-0", "bytes 0-0/12", "0", 206},
		"to an end beyond the end":    {"bytes=8-99", "bytes 8-11/12", "89\xff\xfe", 206},
		"an open end":                 {"bytes=10-", "bytes 10-11/12", "\xff\xfe", 206},
		"the unit in capital letters": {"Bytes=1-1", "bytes 1-1/12", "1", 206},
	} {
		t.Run(name, func(t *testing.T) {
			got := r.readLog(t, test.asked)
			assert.Equal(t, test.status, got.status)
			assert.Equal(t, test.body, got.body)
			assert.Equal(t, test.contentRange, got.header.Get("Content-Range"))
			assert.Equal(t, "bytes", got.header.Get("Accept-Ranges"))
			assert.Equal(t, "application/octet-stream", got.header.Get("Content-Type"))
		})
	}
}

func TestARangeThatCannotBeServedIsRefused(t *testing.T) {
	r := newRig(t)
	r.create(t, "a")
	r.writeLog(t, "a", "0123456789")
	for _, bad := range []string{"bytes=-5", "bytes=5-2", "lines=0-1", "bytes=0-1,3-4", "invalid", "bytes=", "bytes=x-"} {
		got := r.do(t, http.MethodGet, logPath, "", "Range", bad)
		assert.Equal(t, http.StatusBadRequest, got.status, bad)
		assert.Equal(t, launcherapi.CodeInvalid, got.problem(t).Code)
	}
	for _, beyond := range []string{"bytes=10-", "bytes=10-20", "bytes=5000-"} {
		got := r.do(t, http.MethodGet, logPath, "", "Range", beyond)
		assert.Equal(t, http.StatusRequestedRangeNotSatisfiable, got.status, beyond)
		assert.Equal(t, "bytes */10", got.header.Get("Content-Range"))
		assert.Equal(t, launcherapi.CodeRange, got.problem(t).Code)
	}
	assert.Equal(t, http.StatusNotFound, r.do(t, http.MethodGet, instancesPath+"/none/log", "").status)
}

func TestALogThatIsEmptyOrHasNoFileHasNoRange(t *testing.T) {
	r := newRig(t)
	r.create(t, "a")
	for range 2 {
		for _, asked := range []string{"", "bytes=0-"} {
			got := r.do(t, http.MethodGet, logPath, "", "Range", asked)
			assert.Equal(t, http.StatusRequestedRangeNotSatisfiable, got.status)
			assert.Equal(t, "bytes */0", got.header.Get("Content-Range"))
			got.problem(t)
		}
		name, _ := r.logs.Latest("a")
		_ = os.Remove(filepath.Join(r.logDir, name))
	}
}

func TestAnOpenEndedReadIsCapped(t *testing.T) {
	r := newRig(t)
	r.create(t, "a")
	r.writeLog(t, "a", strings.Repeat("x", outlog.MaxOpenEnded+10))
	got := r.do(t, http.MethodGet, logPath, "")
	assert.Len(t, got.body, outlog.MaxOpenEnded)
	assert.Equal(t, "bytes 0-1048575/1048586", got.header.Get("Content-Range"))
	got = r.do(t, http.MethodGet, logPath, "", "Range", "bytes=0-2000000")
	assert.Len(t, got.body, outlog.MaxOpenEnded+10, "a read with an end is not")
}

func TestFollowingALogGivesItsBytesAsTheyComeAndEndsWithIt(t *testing.T) {
	r := newRig(t)
	r.create(t, "a")
	r.writeLog(t, "a", "one\n")
	resp := r.open(t, context.Background(), http.MethodGet, logPath+"?follow=true", "")
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	lines := bufio.NewReader(resp.Body)
	for _, line := range []string{"one\n", "two\n", "three\n"} {
		got, err := lines.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, line, got)
		switch line {
		case "one\n":
			r.writeLog(t, "a", "two\n")
		case "two\n":
			r.writeLog(t, "a", "three\n")
		}
	}
	r.do(t, http.MethodDelete, instancesPath+"/a", "")
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	assert.Empty(t, rest)
}

func TestFollowingBeginsAtTheStartOfTheRange(t *testing.T) {
	r := newRig(t)
	r.create(t, "a")
	r.writeLog(t, "a", "one\ntwo\n")
	resp := r.open(t, context.Background(), http.MethodGet, logPath+"?follow=true", "", "Range", "bytes=4-")
	defer resp.Body.Close()
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "two\n", line)
	got := r.do(t, http.MethodGet, logPath+"?follow=true", "", "Range", "bytes=0-5")
	assert.Equal(t, http.StatusBadRequest, got.status, "follow has no end")
}

func TestAFollowedLogThatIsCutShortDoesNotLookComplete(t *testing.T) {
	r := newRig(t)
	r.create(t, "a")
	r.writeLog(t, "a", "one\n")
	resp := r.open(t, context.Background(), http.MethodGet, logPath+"?follow=true", "")
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	_, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, r.api.Shutdown(context.Background()))
	_, err = io.ReadAll(lines)
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// drop makes the log of an instance lose its first bytes.
func (r *rig) drop(t *testing.T, id string, n int64) {
	t.Helper()
	name, ok := r.logs.Latest(id)
	require.True(t, ok)
	f, err := os.OpenFile(filepath.Join(r.logDir, name), os.O_WRONLY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, n))
	require.NoError(t, f.Close())
}

func TestAnswerSaysWhereALogBeginsThatLostItsBeginning(t *testing.T) {
	r := newRig(t)
	r.create(t, "a")
	r.writeLog(t, "a", "one\ntwo\nthree\n")
	r.drop(t, "a", 4)
	for name, test := range map[string]struct {
		asked, contentRange, body string
		status                    int
	}{
		"whole":                        {"", "bytes 4-13/14", "two\nthree\n", 200},
		"an open end from the start":   {"bytes=0-", "bytes 4-13/14", "two\nthree\n", 206},
		"a range that begins too soon": {"bytes=2-5", "bytes 4-5/14", "tw", 206},
		"a range that is there":        {"bytes=8-9", "bytes 8-9/14", "th", 206},
		"a range that is gone":         {"bytes=0-3", "bytes */14", "", 416},
	} {
		t.Run(name, func(t *testing.T) {
			got := r.readLog(t, test.asked)
			assert.Equal(t, test.status, got.status)
			assert.Equal(t, test.contentRange, got.header.Get("Content-Range"))
			if test.status == http.StatusRequestedRangeNotSatisfiable {
				assert.Contains(t, got.problem(t).Detail, "the log begins at byte 4")
				return
			}
			assert.Equal(t, test.body, got.body)
		})
	}
	resp := r.open(t, context.Background(), http.MethodGet, logPath+"?follow=true", "", "Range", "bytes=1-")
	defer resp.Body.Close()
	assert.Equal(t, "bytes 4-13/14", resp.Header.Get("Content-Range"))
	r.do(t, http.MethodDelete, instancesPath+"/a", "")
	followed, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, "two\nthree\n", string(followed))
}
