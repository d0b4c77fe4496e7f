package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/edges/api"
	"hotseat.dev/hotseat/spec/launcherapi"
)

const watchPath = instancesPath + "/watch"

// watching is a watch stream that is open.
type watching struct {
	*bufio.Reader
	cancel context.CancelFunc
}

func (r *rig) watch(t *testing.T, query string, header ...string) watching {
	t.Helper()
	return r.follow(t, watchPath+query, header...)
}

// follow opens a stream of events.
func (r *rig) follow(t *testing.T, path string, header ...string) watching {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	resp := r.open(t, ctx, http.MethodGet, path, "", header...)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	t.Cleanup(func() {
		cancel()
		_ = resp.Body.Close()
	})
	return watching{bufio.NewReader(resp.Body), cancel}
}

// next reads an event.
func (w watching) next(t *testing.T) launcherapi.RawEvent {
	t.Helper()
	line, err := w.ReadString('\n')
	require.NoError(t, err)
	return decode[launcherapi.RawEvent](t, line)
}

// says reads events, written as "CREATED a 1".
func (w watching) says(t *testing.T, want ...string) {
	t.Helper()
	for _, one := range want {
		e := w.next(t)
		var i launcherapi.Instance
		require.NoError(t, json.Unmarshal(e.Object, &i))
		assert.Equal(t, one, fmt.Sprintf("%s %s %d", e.Type, i.InstanceID, i.Revision))
	}
}

func TestAWatchBeginsWithWhatThereIsAndGoesOnLive(t *testing.T) {
	r := newRig(t)
	r.create(t, "a")
	r.create(t, "b")
	first, second := r.watch(t, ""), r.watch(t, "")
	for _, w := range []watching{first, second} {
		w.says(t, "CREATED a 1", "CREATED b 2")
	}
	r.create(t, "c")
	r.do(t, http.MethodPost, instancesPath+"/a/sleep", `{"wait":false}`)
	r.do(t, http.MethodDelete, instancesPath+"/b", "")
	for _, w := range []watching{first, second} {
		w.says(t, "CREATED c 3", "UPDATED a 4", "DELETED b 5")
	}
}

func TestAWatchSinceARevisionTellsOnlyWhatIsLater(t *testing.T) {
	r := newRig(t)
	for _, id := range []string{"a", "b", "c"} {
		r.create(t, id)
	}
	w := r.watch(t, "?since=1")
	w.says(t, "CREATED b 2", "CREATED c 3")
	w = r.watch(t, "?since=3")
	r.create(t, "d")
	w.says(t, "CREATED d 4")
	w = r.watch(t, "?since=0")
	w.says(t, "CREATED a 1")
}

func TestAWatchHasTheHeadersOfAStream(t *testing.T) {
	r := newRig(t)
	resp := r.open(t, context.Background(), http.MethodGet, watchPath, "")
	defer resp.Body.Close()
	assert.Equal(t, "application/x-ndjson", resp.Header.Get("Content-Type"))
	assert.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"))
}

func TestARevisionThatIsTooOldIsGone(t *testing.T) {
	r := newRig(t)
	for n := range ring + 2 {
		r.create(t, fmt.Sprint("i", n))
	}
	got := r.do(t, http.MethodGet, watchPath+"?since=1", "")
	assert.Equal(t, http.StatusGone, got.status)
	assert.Equal(t, launcherapi.CodeGone, got.problem(t).Code)
	got = r.do(t, http.MethodGet, watchPath+"?since=99", "")
	assert.Equal(t, http.StatusGone, got.status, "it has not been reached")
	r.watch(t, "?since=2").says(t, "CREATED i2 3")
}

func TestAReaderThatFallsBehindIsToldSoLive(t *testing.T) {
	r := newRig(t)
	w := r.watch(t, "?since=0")
	// A reader that takes nothing: more than sockets and buffers hold, at once.
	long := launcherapi.Instance{InstanceID: "a", Model: strings.Repeat("x", 1<<20), ServedModelNames: []string{}, Engine: "vllm", State: "awake", Status: "running"}
	for range 64 {
		r.feed.Append(launcherapi.EventUpdated, long)
	}
	for {
		e := w.next(t)
		if e.Type == launcherapi.EventUpdated {
			continue
		}
		require.Equal(t, launcherapi.EventError, e.Type)
		problem := decode[launcherapi.Problem](t, string(e.Object))
		assert.Equal(t, http.StatusGone, problem.Status)
		assert.Equal(t, launcherapi.CodeGone, problem.Code)
		break
	}
	_, err := w.ReadByte()
	assert.ErrorIs(t, err, io.EOF)
}

func TestHeartbeatsComeWhenNothingHappens(t *testing.T) {
	r := newRig(t)
	r.create(t, "a")
	for _, every := range []string{"100ms", "0.1"} {
		w := r.watch(t, "?since=1&heartbeat="+every)
		for range 2 {
			e := w.next(t)
			assert.Equal(t, launcherapi.EventHeartbeat, e.Type)
			assert.JSONEq(t, `{"revision":1}`, string(e.Object))
		}
	}
	for n, none := range []string{"1h", "0"} {
		w := r.watch(t, "?since=1&heartbeat="+none)
		for before := range n {
			w.says(t, fmt.Sprintf("CREATED b%d %d", before, before+2))
		}
		r.create(t, fmt.Sprint("b", n))
		w.says(t, fmt.Sprintf("CREATED b%d %d", n, n+2))
	}
}

func TestAWatchIsGivenAsServerSentEvents(t *testing.T) {
	r := newRig(t)
	r.create(t, "a")
	read := func(w watching) string {
		var event strings.Builder
		for {
			line, err := w.ReadString('\n')
			require.NoError(t, err)
			if line == "\n" {
				return event.String()
			}
			event.WriteString(line)
		}
	}
	w := r.watch(t, "?heartbeat=100ms", "Accept", "text/event-stream")
	first := read(w)
	assert.Regexp(t, "^id: 1\nevent: CREATED\ndata: \\{\"type\":\"CREATED\",\"object\":\\{.*\"instance_id\":\"a\".*\\}\\}\n$", first)
	assert.Equal(t, "event: HEARTBEAT\ndata: {\"type\":\"HEARTBEAT\",\"object\":{\"revision\":1}}\n", read(w))
	w.cancel()
	r.create(t, "b")
	w = r.watch(t, "", "Accept", "text/event-stream", "Last-Event-ID", "1")
	assert.Contains(t, read(w), "id: 2\nevent: CREATED\n")
	assert.Contains(t, read(r.watch(t, "?since=0", "Accept", "text/event-stream, */*;q=0.1", "Last-Event-ID", "2")), "id: 1\n", "since goes first")
}

func TestWatchersThatLeaveLeaveNothingBehind(t *testing.T) {
	r := newRig(t)
	r.create(t, "a")
	for range 50 {
		w := r.watch(t, "")
		w.says(t, "CREATED a 1")
		w.cancel()
	}
	// TestMain finds the goroutines of any that stayed.
}

// stall begins to watch at an address, reads nothing, and has the feed give more than
// sockets and buffers hold.
func (r *rig) stall(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	_, err = fmt.Fprintf(conn, "GET %s?since=0 HTTP/1.1\r\nHost: localhost\r\n\r\n", watchPath)
	require.NoError(t, err)
	_, err = bufio.NewReader(conn).ReadString('\n') // the answer has begun
	require.NoError(t, err)
	long := launcherapi.Instance{InstanceID: "a", Model: strings.Repeat("x", 4<<20)}
	for range ring {
		r.feed.Append(launcherapi.EventUpdated, long)
	}
}

func TestAReaderThatTakesNothingIsCutOff(t *testing.T) {
	ended := make(chan string, 10)
	r := newRig(t, func(o *api.Options) {
		o.StallTimeout = 50 * time.Millisecond
		o.Observe = func(route, _ string, _ int, _ time.Duration) { ended <- route }
	})
	r.stall(t, r.Listener.Addr().String())
	assert.Equal(t, watchPath, <-ended)
}

func TestAWatchEndsCleanlyWhenTheServerShutsDown(t *testing.T) {
	r := newRig(t)
	plain, events := r.watch(t, ""), r.watch(t, "", "Accept", "text/event-stream")
	require.NoError(t, r.api.Shutdown(context.Background()))
	e := plain.next(t)
	assert.Equal(t, launcherapi.EventError, e.Type)
	assert.Equal(t, launcherapi.CodeUnavailable, decode[launcherapi.Problem](t, string(e.Object)).Code)
	_, err := plain.ReadByte()
	assert.ErrorIs(t, err, io.EOF)
	rest, err := io.ReadAll(events)
	require.NoError(t, err)
	assert.Contains(t, string(rest), "event: ERROR\n")
}

func TestAWatchEndsWhenTheFeedIsClosed(t *testing.T) {
	r := newRig(t)
	w := r.watch(t, "")
	r.feed.Close()
	assert.Equal(t, launcherapi.EventError, w.next(t).Type)
	_, err := w.ReadByte()
	assert.ErrorIs(t, err, io.EOF)
}

func TestAListAndAWatchFromItMissNothing(t *testing.T) {
	r := newRig(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 200 {
			r.instances.Put("a", launcher.Awake, launcherapi.EventUpdated)
		}
	}()
	for range 20 {
		w := r.watch(t, "")
		var last uint64
		for range 2 {
			e := w.next(t)
			if e.Type == launcherapi.EventError {
				break // it fell behind
			}
			i := decode[launcherapi.Instance](t, string(e.Object))
			assert.Greater(t, i.Revision, last)
			if last > 0 {
				assert.Equal(t, last+1, i.Revision, "the one after the list's")
			}
			last = i.Revision
			if last == 200 {
				break
			}
		}
		w.cancel()
	}
	<-done
}
