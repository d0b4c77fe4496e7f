package requester

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/requesterapi"
)

func (s *running) chunk(start int, binding, text string) answer {
	s.t.Helper()
	query := url.Values{requesterapi.ParamStartPos: {fmt.Sprint(start)}}
	if binding != "" {
		query.Set(requesterapi.ParamBinding, binding)
	}
	return s.post(requesterapi.PathSetLog+"?"+query.Encode(), text)
}

func TestEachByteOfTheLogIsWrittenOnce(t *testing.T) {
	s := start(t)
	for _, row := range []struct {
		start, next, written int
		text                 string
	}{
		{0, 5, 5, "hello"},
		{0, 5, 0, "hello"},
		{3, 8, 3, "lo wo"},
		{8, 11, 3, "rld"},
		{2, 11, 0, "llo"},
		{11, 11, 0, ""},
		{0, 12, 1, "hello world\n"},
	} {
		got := s.chunk(row.start, "", row.text)
		require.Equal(t, 200, got.status, got.body)
		require.Equal(t, requesterapi.LogPosition{NextPos: int64(row.next), Written: row.written}, read[requesterapi.LogPosition](t, got))
	}
	p := requireProblem(t, s.chunk(13, "", "x"), 400, requesterapi.CodeLogGap, "begins at 13, but the log ends at 12")
	require.Equal(t, int64(12), *p.NextPos)
	require.Equal(t, "hello world\n", s.log.String())
}

func TestTheLogOfAnotherBindingBeginsAnew(t *testing.T) {
	s := start(t)
	require.Equal(t, 200, s.chunk(0, "one", "one's\n").status)
	got := s.chunk(700, "two", "two's\n")
	require.Equal(t, requesterapi.LogPosition{NextPos: 706, Written: 6}, read[requesterapi.LogPosition](t, got), "the log of one that slept need not be sent from its start")
	requireProblem(t, s.chunk(707, "two", "x"), 400, requesterapi.CodeLogGap, "ends at 706")
	s.bind("two", "127.0.0.1:1")
	requireProblem(t, s.chunk(6, "one", "late\n"), 409, requesterapi.CodeOtherBinding, "bound to two")
	require.Equal(t, "one's\ntwo's\n", s.log.String())
}

func TestALogThatHasANameGoesOnUnderAnotherBinding(t *testing.T) {
	s := start(t)
	named := func(start int, binding, name, text string) answer {
		query := url.Values{requesterapi.ParamStartPos: {fmt.Sprint(start)}, requesterapi.ParamBinding: {binding}, requesterapi.ParamLog: {name}}
		return s.post(requesterapi.PathSetLog+"?"+query.Encode(), text)
	}
	howFar := func() requesterapi.Log {
		return read[requesterapi.Proxy](t, s.call(http.MethodGet, s.spi+requesterapi.PathProxyConfig, "")).Log
	}
	require.Zero(t, howFar())
	require.Equal(t, 200, named(100, "one", "engine.1", "hello\n").status)
	require.Equal(t, requesterapi.Log{Name: "engine.1", NextPos: 106}, howFar(), "for a controller that has forgotten it")
	got := named(100, "two", "engine.1", "hello\nagain\n")
	require.Equal(t, requesterapi.LogPosition{NextPos: 112, Written: 6}, read[requesterapi.LogPosition](t, got))
	require.Equal(t, 200, named(0, "two", "engine.2", "new\n").status)
	require.Equal(t, requesterapi.Log{Name: "engine.2", NextPos: 4}, howFar())
	require.Equal(t, "hello\nagain\nnew\n", s.log.String())
	requireProblem(t, named(0, "two", strings.Repeat("n", requesterapi.MaxBinding+1), ""), 400, requesterapi.CodeInvalid, "log has 513 bytes")
	requireProblem(t, named(0, "two", "a b", ""), 400, requesterapi.CodeInvalid, "printable ASCII")
}

func TestChunksThatComeAtOnceAndInDisorderMakeOneLog(t *testing.T) {
	var whole strings.Builder
	for i := range 500 {
		fmt.Fprintf(&whole, "line %d\n", i)
	}
	log := whole.String()
	out := &buffer{}
	relay := newLogRelay(out)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for len(out.String()) < len(log) {
				from := rand.IntN(len(log))
				_, err := relay.add(t.Context(), "", int64(from), []byte(log[from:min(len(log), from+100)]))
				var f *failure
				if err != nil && assert.ErrorAs(t, err, &f) {
					assert.Equal(t, requesterapi.CodeLogGap, f.Code)
				}
			}
		})
	}
	all.Wait()
	require.Equal(t, log, out.String())
}

// half takes half of what it is given and fails.
type half struct{ buffer }

func (h *half) Write(p []byte) (int, error) {
	n, _ := h.buffer.Write(p[:len(p)/2])
	return n, errors.New("no room")
}

func TestWhatALogCouldNotTakeIsTakenLater(t *testing.T) {
	out := &half{}
	relay := newLogRelay(out)
	_, err := relay.add(t.Context(), "", 0, []byte("abcd"))
	require.ErrorContains(t, err, "cannot write the log: no room")
	_, err = relay.add(t.Context(), "", 0, []byte("abcdef"))
	require.Error(t, err)
	require.Equal(t, "abcd", out.String())
	require.Equal(t, int64(4), relay.known().NextPos)

	relay.turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = relay.add(ctx, "", 4, []byte("x"))
	require.ErrorIs(t, err, context.Canceled, "whoever waits for a slow log can go")
}
