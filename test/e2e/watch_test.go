package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// The rows about watch streams of the section "API" of spec/rows.md.

// says reads events, each written as "CREATED a starting", and gives the
// instances in them.
func says(t *testing.T, events <-chan launcherapi.RawEvent, want ...string) []launcherapi.Instance {
	t.Helper()
	var out []launcherapi.Instance
	for _, w := range want {
		e := next(t, events)
		var i launcherapi.Instance
		require.NoError(t, json.Unmarshal(e.Object, &i))
		require.Equal(t, w, fmt.Sprintf("%s %s %s", e.Type, i.InstanceID, i.State))
		out = append(out, i)
	}
	return out
}

func TestAWatchBeginsWithACreatedForEachInstanceAndGoesOnLive(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0))
	n.Create("b", Spec("b", On(1), "--sim-crash-at-load", "exit:3"))
	n.Await("b", "failed")
	n.Eventually("b has given its port back, which is an event of its own", func() bool { return n.Get("b").Port == 0 })
	first, leaveFirst := n.Watch("")
	defer leaveFirst()
	second, leaveSecond := n.Watch("")
	defer leaveSecond()
	for _, events := range []<-chan launcherapi.RawEvent{first, second} {
		made := says(t, events, "CREATED a awake", "CREATED b failed")
		assert.Equal(t, n.Get("a"), made[0], "with the state that it is in")
	}
	n.Sleep("a", 1)
	n.Wake("a")
	n.Delete("a")
	want := []string{
		"UPDATED a falling_asleep", "UPDATED a sleeping", "UPDATED a waking", "UPDATED a awake",
		"UPDATED a stopping", "STOPPED a stopped", "DELETED a stopped",
	}
	told := says(t, first, want...)
	assert.Equal(t, told, says(t, second, want...), "two watchers are told the same")
	for k, i := range told[1:] {
		assert.Equal(t, told[k].Revision+1, i.Revision, "revisions are consecutive")
	}
	assert.Equal(t, launcherapi.StatusStopped, told[5].Status)
	assert.NotNil(t, told[5].ExitCode)
	assert.Equal(t, n.list().Revision, told[6].Revision)
}

func TestAnEngineThatDiesIsToldAsStopped(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	events, leave := n.Watch("")
	defer leave()
	n.Create("a", Spec("a", On(0), "--sim-crash-at-load", "exit:3"))
	told := says(t, events, "CREATED a starting", "STOPPED a failed")
	require.NotNil(t, told[1].ExitCode)
	assert.Equal(t, 3, *told[1].ExitCode)
	assert.NotEmpty(t, told[1].LastLogLines)
	assert.Equal(t, launcherapi.StatusStopped, told[1].Status)
}

func TestAWatchSinceARevisionTellsWhatCameLater(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0))
	asleep := n.Sleep("a", 1)
	later, leave := n.Watch(fmt.Sprintf("?since=%d", a.Revision))
	defer leave()
	says(t, later, "UPDATED a falling_asleep", "UPDATED a sleeping")
	all, leaveAll := n.Watch("?since=0")
	defer leaveAll()
	says(t, all, "CREATED a starting", "UPDATED a awake", "UPDATED a falling_asleep", "UPDATED a sleeping")
	live, leaveLive := n.Watch(fmt.Sprintf("?since=%d", asleep.Revision))
	defer leaveLive()
	n.Wake("a")
	says(t, live, "UPDATED a waking", "UPDATED a awake")
}

func TestARevisionThatIsTooOldOrNotYetReachedIsGone(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--watch-buffer", "4")
	n.Awake("a", On(0))
	n.Sleep("a", 1)
	n.Wake("a")
	now := n.list().Revision
	for _, since := range []uint64{0, now - 5, now + 1, 1 << 60} {
		p := n.Call("GET", fmt.Sprintf("%s/watch?since=%d", instances, since), nil).Problem(t)
		assert.Equal(t, 410, p.Status, since)
		assert.Equal(t, launcherapi.CodeGone, p.Code)
	}
	events, leave := n.Watch(fmt.Sprintf("?since=%d", now-4))
	defer leave()
	says(t, events, "UPDATED a falling_asleep", "UPDATED a sleeping", "UPDATED a waking", "UPDATED a awake")
	for _, since := range []string{"x", "-1", "1.5", "99999999999999999999", "0x10"} {
		assert.Equal(t, 422, n.Call("GET", instances+"/watch?since="+since, nil).Problem(t).Status, since)
	}
}

func TestAReaderThatFallsBehindIsTold410Live(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--watch-buffer", "4")
	spec := Spec("a", On(0))
	spec["annotations"] = map[string]string{"long": strings.Repeat("x", 1<<20)} // so that a few events fill all buffers on the way
	made := n.Create("a", spec)
	n.Eventually("a is awake", func() bool {
		return strings.Contains(string(call(t, "GET", n.URL+instances+"/a", nil).Body), `"state":"awake"`)
	})

	conn, err := net.Dial("tcp", strings.TrimPrefix(n.URL, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "GET %s/watch?since=%d HTTP/1.1\r\nHost: localhost\r\n\r\n", instances, made.Revision)
	require.NoError(t, err)
	head := make([]byte, 1) // it has begun, and from here on it takes nothing
	_, err = io.ReadFull(conn, head)
	require.NoError(t, err)
	for range 8 {
		for _, verb := range []string{"/sleep", "/wake"} {
			require.Equal(t, 200, call(t, "POST", n.URL+instances+"/a"+verb, nil).Status)
		}
	}
	resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader(string(head)), conn)), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err, "the stream ends in order")
	lines := strings.Split(strings.TrimSpace(string(body)), "\n")
	assert.Less(t, len(lines), 32, "it did not get all")
	var last launcherapi.RawEvent
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &last))
	require.Equal(t, launcherapi.EventError, last.Type)
	var p launcherapi.Problem
	require.NoError(t, json.Unmarshal(last.Object, &p))
	assert.Equal(t, 410, p.Status)
	assert.Equal(t, launcherapi.CodeGone, p.Code)
}

func TestHeartbeatsComeWhenTheyAreAskedFor(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0))
	for _, every := range []string{"100ms", "0.1"} {
		events, leave := n.Watch(fmt.Sprintf("?since=%d&heartbeat=%s", a.Revision, every))
		for range 3 {
			e := <-events
			assert.Equal(t, launcherapi.EventHeartbeat, e.Type)
			assert.JSONEq(t, fmt.Sprintf(`{"revision":%d}`, a.Revision), string(e.Object))
		}
		leave()
	}
	for _, bad := range []string{"1ms", "-1s", "often"} {
		assert.Equal(t, 422, n.Call("GET", instances+"/watch?heartbeat="+bad, nil).Problem(t).Status, bad)
	}
}

// sseEvent is one server-sent event.
type sseEvent struct{ id, event, data string }

func readSSE(t *testing.T, r *bufio.Reader) sseEvent {
	t.Helper()
	var e sseEvent
	for {
		line, err := r.ReadString('\n')
		require.NoError(t, err)
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "id":
			e.id = value
		case "event":
			e.event = value
		case "data":
			e.data = value
		case "":
			return e
		}
	}
}

func TestAWatchSpeaksServerSentEventsWhenAsked(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0))
	open := func(headers ...string) *bufio.Reader {
		req, err := http.NewRequestWithContext(t.Context(), "GET", n.URL+instances+"/watch", nil)
		require.NoError(t, err)
		req.Header.Set("Accept", "text/event-stream")
		for k := 0; k+1 < len(headers); k += 2 {
			req.Header.Set(headers[k], headers[k+1])
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		t.Cleanup(func() { _ = resp.Body.Close() })
		require.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
		return bufio.NewReader(resp.Body)
	}
	stream := open()
	first := readSSE(t, stream)
	assert.Equal(t, "CREATED", first.event)
	n.Sleep("a", 1)
	second := readSSE(t, stream)
	assert.Equal(t, "UPDATED", second.event)
	var e launcherapi.RawEvent
	require.NoError(t, json.Unmarshal([]byte(second.data), &e))
	var i launcherapi.Instance
	require.NoError(t, json.Unmarshal(e.Object, &i))
	assert.Equal(t, second.id, fmt.Sprint(i.Revision), "the id is the revision")
	assert.Equal(t, "falling_asleep", i.State)

	resumed := open("Last-Event-ID", first.id) // as a browser does after a break
	assert.Equal(t, second, readSSE(t, resumed))
}

func TestWatchersThatDisconnectLeakNothing(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0))
	before := n.held()
	for round := range 3 {
		var leaves []func()
		for range 20 {
			events, leave := n.Watch("")
			leaves = append(leaves, leave)
			says(t, events, "CREATED a awake")
		}
		resp := n.follow("a", "")
		assert.Greater(t, n.held().files, before.files, "round %d", round)
		for _, leave := range leaves {
			leave()
		}
		require.NoError(t, resp.Body.Close())
	}
	n.gaveBack(before)
	n.Ask(a, "still there?")
}
