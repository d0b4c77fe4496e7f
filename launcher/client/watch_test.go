package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// watching is a watch in a goroutine of its own.
type watching struct {
	events chan string
	ended  chan error
	cancel context.CancelFunc
}

func watch(t *testing.T, c *client.Client, since *uint64) *watching {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &watching{events: make(chan string, 1000), ended: make(chan error, 1), cancel: cancel}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event, err := range c.Watch(ctx, since) {
			if err != nil {
				w.ended <- err
				return
			}
			w.events <- fmt.Sprintf("%s %s %s", event.Type, event.Object.InstanceID, event.Object.State)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return w
}

// says waits for events, and for none in between.
func (w *watching) says(t *testing.T, want ...string) {
	t.Helper()
	for _, one := range want {
		select {
		case got := <-w.events:
			require.Equal(t, one, got)
		case err := <-w.ended:
			t.Fatalf("the watch ended before %q: %v", one, err)
		case <-time.After(patience.Wait()):
			t.Fatalf("%q did not come", one)
		}
	}
}

func TestAWatchTellsWhatThereIsAndWhatHappens(t *testing.T) {
	h := newHost(t)
	h.create(t, "a")
	w := watch(t, h.client(t), nil)
	w.says(t, "CREATED a starting")
	h.instances.Put("a", launcher.Awake, launcherapi.EventUpdated)
	h.create(t, "b")
	w.says(t, "UPDATED a awake", "CREATED b starting")
	_, _ = h.instances.Delete(t.Context(), "a")
	w.says(t, "DELETED a stopped")
	w.cancel()
	require.ErrorIs(t, <-w.ended, context.Canceled)
}

func (h *host) create(t *testing.T, id string) {
	t.Helper()
	_, err := h.client(t).Create(within(t), id, spec("m"))
	require.NoError(t, err)
}

func TestAWatchTellsNothingThatTheListHasTakenInAlready(t *testing.T) {
	h := newHost(t)
	h.create(t, "a")
	h.create(t, "b")
	_, _ = h.instances.Delete(t.Context(), "b")
	w := watch(t, h.client(t), nil)
	w.says(t, "CREATED a starting")
	h.create(t, "c")
	w.says(t, "CREATED c starting")
}

func TestAWatchFromARevisionTellsOnlyWhatIsLater(t *testing.T) {
	h := newHost(t)
	h.create(t, "a")
	h.create(t, "b")
	since := uint64(1)
	watch(t, h.client(t), &since).says(t, "CREATED b starting")
}

func TestALoopThatEndsEndsTheWatch(t *testing.T) {
	h := newHost(t)
	h.create(t, "a")
	for _, err := range h.client(t).Watch(within(t), nil) {
		require.NoError(t, err)
		break
	}
}

func TestAWatchGoesOnWhereItWasAfterARestart(t *testing.T) {
	h := newHost(t)
	h.create(t, "a")
	since := uint64(1)
	whole, later := watch(t, h.client(t), nil), watch(t, h.client(t), &since)
	whole.says(t, "CREATED a starting")
	for n := range 3 {
		id := fmt.Sprint("i", n)
		h.down(t)
		h.instances.Put("a", launcher.Awake, launcherapi.EventUpdated) // while nobody listens
		h.up(t)
		h.create(t, id)
		for _, w := range []*watching{whole, later} {
			w.says(t, "UPDATED a awake", "CREATED "+id+" starting")
		}
	}
}

func TestAWatchThatMissedTooMuchTellsTheDifference(t *testing.T) {
	h := newHost(t)
	for _, id := range []string{"stays", "changes", "ends", "goes"} {
		h.create(t, id)
	}
	since := uint64(4)
	whole, later := watch(t, h.client(t), nil), watch(t, h.client(t), &since)
	whole.says(t, "CREATED stays starting", "CREATED changes starting", "CREATED ends starting", "CREATED goes starting")
	h.down(t)
	_, _ = h.instances.Delete(t.Context(), "goes")
	h.instances.Put("ends", launcher.Failed, launcherapi.EventStopped)
	for range ring {
		h.instances.Put("changes", launcher.Awake, launcherapi.EventUpdated)
	}
	h.up(t)
	whole.says(t, "STOPPED ends failed", "UPDATED changes awake", "DELETED goes starting")
	err := <-later.ended
	assert.True(t, client.IsGone(err), "from a revision there is nothing to tell a difference from: %v", err)
	h.create(t, "new")
	whole.says(t, "CREATED new starting")
}

func TestAWatchFindsItsWayWhenTheLauncherHasForgottenAll(t *testing.T) {
	h := newHost(t)
	h.create(t, "a")
	h.create(t, "b")
	w := watch(t, h.client(t), nil)
	w.says(t, "CREATED a starting", "CREATED b starting")
	h.down(t)
	h.forget(0) // revisions begin again
	h.up(t)
	var gone []string
	for range 2 {
		gone = append(gone, <-w.events)
	}
	assert.ElementsMatch(t, []string{"DELETED a starting", "DELETED b starting"}, gone)
	h.create(t, "c")
	w.says(t, "CREATED c starting")
}

func TestAWatchThatFallsBehindLivesOn(t *testing.T) {
	h := newHost(t)
	h.create(t, "a")
	seen := 0
	for event, err := range h.client(t).Watch(within(t), nil) {
		require.NoError(t, err)
		if seen++; seen == 1 {
			for range 20 * ring { // faster than anybody reads
				h.instances.Put("a", launcher.Awake, launcherapi.EventUpdated)
			}
			h.instances.Put("a", launcher.Sleeping, launcherapi.EventUpdated)
		}
		if event.Object.State == string(launcher.Sleeping) {
			break
		}
	}
}

func TestAConnectionThatFallsSilentIsMadeAgain(t *testing.T) {
	h := newHost(t)
	h.create(t, "a")
	// A relay that passes the first stream's beginning on and then nothing more,
	// without closing anything.
	var streams atomic.Int32
	quiet := make(chan struct{})
	defer close(quiet)
	relay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		watched := r.URL.Path == "/v2/vllm/instances/watch"
		if watched && streams.Add(1) == 1 {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-quiet:
			case <-r.Context().Done():
			}
			return
		}
		req, _ := http.NewRequestWithContext(r.Context(), r.Method, "http://"+h.addr+r.URL.String(), nil)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(flushed{w}, resp.Body)
	}))
	defer relay.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	c, err := client.New(client.Options{Server: relay.URL, Heartbeat: 100 * time.Millisecond})
	require.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for event, err := range c.Watch(ctx, nil) {
		require.NoError(t, err)
		if event.Type == launcherapi.EventCreated {
			h.instances.Put("a", launcher.Awake, launcherapi.EventUpdated)
			continue
		}
		assert.Equal(t, "awake", event.Object.State)
		break
	}
	assert.Equal(t, int32(2), streams.Load())
}

type flushed struct{ http.ResponseWriter }

func (f flushed) Write(p []byte) (int, error) {
	n, err := f.ResponseWriter.Write(p)
	return n, errors.Join(err, http.NewResponseController(f.ResponseWriter).Flush())
}

func TestAWatchThatIsRefusedEndsWithTheReason(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer server.Close()
	c, err := client.New(client.Options{Server: server.URL})
	require.NoError(t, err)
	defer c.Close()
	since := uint64(0)
	for _, from := range []*uint64{nil, &since} {
		var got error
		for _, err := range c.Watch(within(t), from) {
			got = err
		}
		assert.True(t, client.IsUnauthorized(got))
	}
}

func TestAWatchWaitsForALauncherThatIsNotThereYet(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	h := newHost(t)
	h.down(t)
	h.addr = addr
	w := watch(t, h.client(t), nil)
	h.up(t)
	h.create(t, "a")
	w.says(t, "CREATED a starting")
}
