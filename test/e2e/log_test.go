package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// The rows about logs of the section "API" of spec/rows.md.

// log reads an instance's log, or the range of it that is asked for.
func (n *Node) log(id, ranged string) Answer {
	n.t.Helper()
	if ranged == "" {
		return n.Call("GET", instances+"/"+id+"/log", nil)
	}
	return n.Call("GET", instances+"/"+id+"/log", nil, "Range", ranged)
}

// logFile reads the file behind an instance's log.
func (n *Node) logFile(i launcherapi.Instance) []byte {
	n.t.Helper()
	data, err := os.ReadFile(filepath.Join(n.State, "logs", i.LogName))
	require.NoError(n.t, err)
	return data
}

// quiet makes an instance that writes nothing more, and gives its log.
func (n *Node) quiet(args ...string) (launcherapi.Instance, []byte) {
	n.t.Helper()
	n.Create("a", Spec("a", On(0), append([]string{"--sim-crash-at-ready", "exit:3"}, args...)...))
	i := n.Await("a", "failed")
	return i, n.logFile(i)
}

func TestALogIsReadWholeAndInRanges(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	_, want := n.quiet()
	size := len(want)
	require.Greater(t, size, 200)
	for name, test := range map[string]struct {
		ranged      string
		status      int
		first, last int
	}{
		"whole":                        {"", 200, 0, size - 1},
		"from the start to the end":    {"bytes=0-", 206, 0, size - 1},
		"one byte":                     {"bytes=7-7", 206, 7, 7},
		"in the middle":                {"bytes=10-109", 206, 10, 109},
		"open-ended":                   {"bytes=100-", 206, 100, size - 1},
		"the last byte":                {fmt.Sprintf("bytes=%d-", size-1), 206, size - 1, size - 1},
		"an end beyond the log's end":  {"bytes=50-99999999", 206, 50, size - 1},
		"the unit in capitals is fine": {"Bytes=0-9", 206, 0, 9},
	} {
		t.Run(name, func(t *testing.T) {
			got := n.log("a", test.ranged)
			require.Equal(t, test.status, got.Status, "%s", got.Body)
			assert.Equal(t, string(want[test.first:test.last+1]), string(got.Body))
			assert.Equal(t, fmt.Sprintf("bytes %d-%d/%d", test.first, test.last, size), got.Header.Get("Content-Range"))
			assert.Equal(t, fmt.Sprint(len(got.Body)), got.Header.Get("Content-Length"))
			assert.Equal(t, "application/octet-stream", got.Header.Get("Content-Type"))
			assert.Equal(t, "bytes", got.Header.Get("Accept-Ranges"))
		})
	}
}

func TestAnOpenEndedReadOfALogIsCappedAtOneMebibyte(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	const mebibyte = 1 << 20
	_, want := n.quiet("--sim-log-long-line", "3MiB")
	size := len(want)
	require.Greater(t, size, 3*mebibyte)
	whole := n.log("a", "")
	assert.Equal(t, 200, whole.Status)
	assert.Equal(t, fmt.Sprintf("bytes 0-%d/%d", mebibyte-1, size), whole.Header.Get("Content-Range"))
	assert.True(t, bytes.Equal(want[:mebibyte], whole.Body))
	var all []byte // as a client reads it on
	for len(all) < size {
		part := n.log("a", fmt.Sprintf("bytes=%d-", len(all)))
		require.Equal(t, 206, part.Status)
		require.LessOrEqual(t, len(part.Body), mebibyte)
		all = append(all, part.Body...)
	}
	assert.True(t, bytes.Equal(want, all))
	bounded := n.log("a", fmt.Sprintf("bytes=5-%d", 2*mebibyte+4))
	assert.Len(t, bounded.Body, 2*mebibyte, "who names both ends gets all of it")
}

func TestARangeThatBeginsAtTheLogsEndOrBeyondIsA416(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	_, content := n.quiet()
	for _, ranged := range []string{fmt.Sprintf("bytes=%d-", len(content)), "bytes=99999999-", "bytes=99999999-99999999", "bytes=99999999999999999999-"} {
		got := n.log("a", ranged)
		assert.Equal(t, 416, got.Problem(t).Status, ranged)
		assert.Equal(t, fmt.Sprintf("bytes */%d", len(content)), got.Header.Get("Content-Range"))
	}
}

func TestAnEmptyLogIsA416(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--vllm", "sh -c 'exec sleep 1000'", "--engine-socket", "always") // nobody says a word
	n.Create("a", Spec("a", On(0)))
	for _, ranged := range []string{"", "bytes=0-", "bytes=0-0"} {
		got := n.log("a", ranged)
		assert.Equal(t, 416, got.Problem(t).Status, ranged)
		assert.Equal(t, "bytes */0", got.Header.Get("Content-Range"))
	}
}

func TestARangeThatCannotBeServedIsA400(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.quiet()
	for _, ranged := range []string{
		"bytes=-500", "invalid", "bytes", "bytes=", "bytes=-", "bytes=--5", "bytes=5-2", "bytes=a-b", "bytes=0-b", "bytes=0x1-", "bytes=1.5-",
		"bytes=+1-", "lines=0-5", "bytes=0-1,3-4", "bytes=0-1,",
		"bytes 0-5", "bytes=0 - 5", "bytes=\xff-",
	} {
		assert.Equal(t, 400, n.log("a", ranged).Problem(t).Status, ranged)
	}
}

func TestALogGrowsAcrossReads(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0))
	before := n.log("a", "").Body
	n.Ask(a, "hello")
	n.Eventually("the question is in the log", func() bool {
		more := n.log("a", fmt.Sprintf("bytes=%d-", len(before)))
		return more.Status == 206 && strings.Contains(string(more.Body), "/v1/completions")
	})
	assert.True(t, bytes.HasPrefix(n.log("a", "").Body, before))
}

// follow reads a log as it grows; the reader is closed with the test.
func (n *Node) follow(id, ranged string) *http.Response {
	n.t.Helper()
	req, err := http.NewRequestWithContext(n.t.Context(), "GET", n.URL+instances+"/"+id+"/log?follow=true", nil)
	require.NoError(n.t, err)
	if ranged != "" {
		req.Header.Set("Range", ranged)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(n.t, err)
	n.t.Cleanup(func() { _ = resp.Body.Close() })
	require.Equal(n.t, 200, resp.StatusCode)
	return resp
}

func TestALogIsFollowedUntilNobodyWritesToIt(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0))
	whole, rest := n.follow("a", ""), n.follow("a", "bytes=100-")
	lines := bufio.NewReader(whole.Body)
	var seen strings.Builder
	for asked := false; ; {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		seen.WriteString(line)
		if !asked { // it goes on beyond what there was
			n.Ask(a, "hello")
			asked = true
		}
		if strings.Contains(line, "/v1/completions") {
			break
		}
	}
	n.Delete("a")
	_, err := io.Copy(&seen, lines)
	require.NoError(t, err, "it ends in order when the instance is gone")
	want := string(n.logFile(a))
	assert.Equal(t, want, seen.String())
	other, err := io.ReadAll(rest.Body)
	require.NoError(t, err)
	assert.Equal(t, want[100:], string(other))
}

func TestAFollowThatIsNotReadHoldsNothingUp(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	i, content := n.quiet("--sim-log-long-line", "20MiB")
	first := make([]byte, 10)
	stalled := n.follow("a", "")
	_, err := io.ReadFull(stalled.Body, first)
	require.NoError(t, err)
	assert.Equal(t, string(content[:10]), string(first))
	n.Delete("a")
	assert.Equal(t, 404, n.Call("GET", instances+"/a", nil).Status)
	assert.Equal(t, content, n.logFile(i))
	assert.Equal(t, 0, n.Stop(), "the launcher ends in order though somebody does not read")
}

func TestAFollowWithAnEndIsA400(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.quiet()
	a := n.Call("GET", instances+"/a/log?follow=true", nil, "Range", "bytes=0-10")
	assert.Equal(t, 400, a.Problem(t).Status)
}

func TestBytesOfALogThatAreNotUTF8ComeThroughAsTheyAre(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	_, want := n.quiet("--sim-log-not-utf8", "3")
	require.False(t, utf8.Valid(want))
	got := n.log("a", "")
	assert.True(t, bytes.Equal(want, got.Body))
	assert.True(t, utf8.Valid(n.Call("GET", instances+"/a", nil).Body), "the last lines in JSON are UTF-8 all the same")
	assert.NotEmpty(t, n.Get("a").LastLogLines)
}

func TestALogIsStillThereAfterItsProcessDied(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	i, want := n.quiet()
	assert.Equal(t, string(want), string(n.log("a", "").Body))
	n.Delete("a")
	assert.Equal(t, 404, n.log("a", "").Problem(t).Status)
	assert.Equal(t, string(want), string(n.logFile(i)), "the file stays when the instance is forgotten")

	n.Create("a", Spec("a", On(0)))
	again := n.Await("a", "awake")
	assert.NotEqual(t, i.LogName, again.LogName, "another life of that id has a log of its own")
	assert.Equal(t, string(want), string(n.logFile(i)))
}

func TestALogIsReadByManyAtOnce(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	_, want := n.quiet("--sim-log-long-line", "1MiB")
	answers := make(chan Answer, 20)
	for range cap(answers) {
		go func() {
			a, _ := tryCall(context.Background(), "GET", n.URL+instances+"/a/log", nil, "Range", fmt.Sprintf("bytes=0-%d", len(want)))
			answers <- a
		}()
	}
	for range cap(answers) {
		assert.True(t, bytes.Equal(want, (<-answers).Body))
	}
}

func TestLogOfARunningEngineStaysWithinItsLimit(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	n := NewNode(t, "--log-max-bytes", "1MiB")
	a := n.Awake("a", On(0), "--sim-log-lines", "100000")
	path := filepath.Join(n.State, "logs", a.LogName)
	n.Eventually("its log holds no more than it may", func() bool {
		info, err := os.Stat(path)
		require.NoError(t, err)
		return info.Sys().(*syscall.Stat_t).Blocks*512 <= limit
	})
	whole := n.log("a", "")
	require.Equal(t, 200, whole.Status)
	var first, last, total int64
	_, err := fmt.Sscanf(whole.Header.Get("Content-Range"), "bytes %d-%d/%d", &first, &last, &total)
	require.NoError(t, err)
	require.Greater(t, total, int64(4*limit))
	require.Greater(t, first, total-limit)
	require.True(t, bytes.HasPrefix(n.logFile(a)[first:], whole.Body))
	assert.NotContains(t, string(whole.Body), "\x00")
	assert.Contains(t, n.Log(), "log_max_bytes=1048576", "the launcher says so")

	assert.Equal(t, 416, n.log("a", "bytes=0-99").Problem(t).Status)
	assert.Equal(t, whole.Header.Get("Content-Range"), n.follow("a", "bytes=5-").Header.Get("Content-Range"))
	shown := n.launcher("logs", "a")
	require.Zero(t, n.ends(shown))
	assert.True(t, strings.HasPrefix(shown.out.String(), fmt.Sprintf("[hotseat: %d bytes of the log are missing here", first)), "%.200s", shown.out.String())
	tail := n.launcher("logs", "--tail", "3", "a")
	require.Zero(t, n.ends(tail))
	assert.Equal(t, 3, strings.Count(tail.out.String(), "\n"))

	n.Kill9()
	n.Start()
	n.Await("a", "awake")
	again := n.log("a", "")
	assert.True(t, strings.HasPrefix(again.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", first)), "the next launcher knows where it begins")
	n.Ask(a, "hello")
	n.Eventually("the question is in the log", func() bool {
		more := n.log("a", fmt.Sprintf("bytes=%d-", total))
		return more.Status == 206 && strings.Contains(string(more.Body), "/v1/completions")
	})
}
