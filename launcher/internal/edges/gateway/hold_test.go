package gateway

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/patience"
)

// echo answers with the request's body.
func echo(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }

func TestHeldRequestsFlowWhenTheGateOpens(t *testing.T) {
	engine := newEngine(t, echo)
	seen := &observer{}
	p := newProxy(t, engine.URL, func(o *Options) { o.Observe = seen.observe })
	client := newClient(t)
	first, second := goPost(t, client, p.url("/v1/completions"), "one"), goPost(t, client, p.url("/v1/completions"), "two")
	eventually(t, func() bool { return p.Held() == 2 })
	require.Zero(t, p.InFlight())
	require.True(t, p.LastUsed().IsZero())
	p.Open()
	require.Equal(t, "one", receive(t, first).body)
	require.Equal(t, "two", receive(t, second).body)
	o := seen.nth(t, 2)
	require.Equal(t, OutcomeAnswered, o.Outcome)
	require.Equal(t, ClassInference, o.Class)
	require.Positive(t, o.Held)
	require.GreaterOrEqual(t, o.Duration, o.Held)
	require.Zero(t, p.Held())
	require.Zero(t, p.InFlight())
	require.False(t, p.LastUsed().IsZero())
}

func TestRequestBeyondMaxHeldGets429(t *testing.T) {
	engine := newEngine(t, echo)
	seen := &observer{}
	p := newProxy(t, engine.URL, func(o *Options) { o.MaxHeld = 1; o.Observe = seen.observe })
	p.Shut("another model has the GPU")
	client := newClient(t)
	held := goPost(t, client, p.url("/v1/completions"), "one")
	eventually(t, func() bool { return p.Held() == 1 })
	got := post(t, client, p.url("/v1/completions"), "two")
	requireError(t, got, http.StatusTooManyRequests, "another model has the GPU")
	require.Equal(t, "5", got.header.Get("Retry-After"))
	require.Equal(t, OutcomeHeldFull, seen.nth(t, 1).Outcome)
	p.Open()
	require.Equal(t, "one", receive(t, held).body)
}

func TestHeldRequestIsRefusedAfterHoldTimeout(t *testing.T) {
	engine := newEngine(t, echo)
	seen := &observer{}
	p := newProxy(t, engine.URL, func(o *Options) { o.HoldTimeout = 10 * time.Millisecond; o.Observe = seen.observe })
	p.Shut("the model is being woken")
	got := post(t, newClient(t), p.url("/v1/completions"), "{}")
	requireError(t, got, http.StatusServiceUnavailable, "the model is being woken")
	require.Equal(t, "5", got.header.Get("Retry-After"))
	o := seen.nth(t, 1)
	require.Equal(t, OutcomeHeldTimeout, o.Outcome)
	require.GreaterOrEqual(t, o.Held, 10*time.Millisecond)
	require.Zero(t, p.Held())
}

func TestFailRefusesHeldAndNewRequestsAtOnce(t *testing.T) {
	engine := newEngine(t, echo)
	seen := &observer{}
	p := newProxy(t, engine.URL, func(o *Options) { o.Observe = seen.observe })
	client := newClient(t)
	held := goPost(t, client, p.url("/v1/completions"), "{}")
	eventually(t, func() bool { return p.Held() == 1 })
	p.Fail("the engine ran out of device memory")
	requireError(t, receive(t, held), http.StatusServiceUnavailable, "the engine ran out of device memory")
	requireError(t, post(t, client, p.url("/v1/completions"), "{}"), http.StatusServiceUnavailable, "out of device memory")
	requireError(t, get(t, client, p.url("/health")), http.StatusServiceUnavailable, "out of device memory")
	require.Equal(t, OutcomeFailed, seen.nth(t, 3).Outcome)
	p.Open()
	require.Equal(t, "again", post(t, client, p.url("/v1/completions"), "again").body, "a new engine took its place")
}

func TestLeavingHeldClientFreesItsPlace(t *testing.T) {
	var reached atomic.Int64
	engine := newEngine(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	seen := &observer{}
	p := newProxy(t, engine.URL, func(o *Options) { o.Observe = seen.observe })
	client := newClient(t)
	for n, body := range []string{"", "a body that nobody reads", strings.Repeat("x", 16<<10)} {
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan answer, 1)
		go func() {
			left <- do(client, request(ctx, t, http.MethodPost, p.url("/v1/completions"), strings.NewReader(body)))
		}()
		eventually(t, func() bool { return p.Held() == 1 })
		leave()
		require.ErrorIs(t, receive(t, left).err, context.Canceled)
		eventually(t, func() bool { return p.Held() == 0 })
		o := seen.nth(t, n+1)
		require.Equal(t, OutcomeClientGone, o.Outcome)
		require.Equal(t, statusClientGone, o.Status)
	}
	p.Open()
	p.Shut("x")
	_, err := p.Drain(patientContext(t))
	require.NoError(t, err)
	require.Zero(t, reached.Load())
}

func TestClientLeavingAsTheGateOpensIsNotCounted(t *testing.T) {
	p := newProxy(t, "127.0.0.1:1")
	for range 100 { // enough for both orders of leaving and opening
		p.Shut("x")
		ticket, _ := ticketFor()
		held, _ := p.gate.enter(ticket)
		p.Open()
		func() {
			defer func() {
				if recover() == nil {
					p.gate.leave(ticket) // the gate admitted the request first
				}
			}()
			require.Nil(t, p.hold(endedContext(), &exchange{}, held))
		}()
		require.Zero(t, p.InFlight())
	}
}

func TestHeldRequestWithExpectHeaderIsNotRead(t *testing.T) {
	engine := newEngine(t, echo)
	p := newProxy(t, engine.URL)
	conn := dialRaw(t, p.address())
	_, err := io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
	require.NoError(t, err)
	eventually(t, func() bool { return p.Held() == 1 })
	// If the proxy read the body now, the server would send 100 Continue.
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
	_, err = conn.Read(make([]byte, 1))
	require.ErrorContains(t, err, "timeout")
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience.Wait())))
	p.Open()
	line := make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))
	_, err = io.ReadFull(conn, line)
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 100 Continue\r\n\r\n", string(line))
	_, err = io.WriteString(conn, "body")
	require.NoError(t, err)
	eventually(t, func() bool { return p.InFlight() == 0 })
}

func TestHeldRequestsLeakNoDescriptors(t *testing.T) {
	engine := newEngine(t, echo)
	p := newProxy(t, engine.URL, func(o *Options) { o.HoldTimeout = time.Millisecond })
	conn := dialRaw(t, p.address()) // a library's client may open a second connection when it is slow
	c := &client{t: t, conn: conn, reader: bufio.NewReader(conn)}
	hold := func() {
		c.send(firstRequest)
		c.requireAnswer(http.StatusServiceUnavailable, "the request waited too long")
	}
	hold()
	before := descriptors(t)
	for range 50 {
		hold()
	}
	require.Equal(t, before, descriptors(t))
}

func TestReadOnlyRequestsPassWhileTheGateIsShut(t *testing.T) {
	engine := newEngine(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) })
	seen := &observer{}
	p := newProxy(t, engine.URL, func(o *Options) { o.Observe = seen.observe })
	client := newClient(t)
	for n, path := range []string{"/health", "/ping", "/version", "/metrics", "/load", "/v1/models"} {
		require.Equal(t, path, get(t, client, p.url(path)).body)
		o := seen.nth(t, n+1)
		require.Equal(t, Observation{Class: ClassStatus, Status: 200, Outcome: OutcomeAnswered, Duration: o.Duration}, o)
	}
	require.True(t, p.LastUsed().IsZero(), "a probe is no use of the model")
}

func TestEngineThatDoesNotListenGives503(t *testing.T) {
	r := reserve(t, NewPorts())
	seen := &observer{}
	p := newProxy(t, "127.0.0.1:"+portOf(r), func(o *Options) { o.Observe = seen.observe })
	got := get(t, newClient(t), p.url("/health"))
	requireError(t, got, http.StatusServiceUnavailable, "the engine does not listen: the engine is starting")
	require.Equal(t, "5", got.header.Get("Retry-After"))
	require.Equal(t, OutcomeEngineFailed, seen.nth(t, 1).Outcome)
}
