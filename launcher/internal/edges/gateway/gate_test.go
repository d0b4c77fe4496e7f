package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNoRequestReachesDrainedEngine(t *testing.T) {
	const clients, each = 50, 20
	var asleep atomic.Bool
	var served, violations atomic.Int64
	engine := newEngine(t, func(http.ResponseWriter, *http.Request) {
		early := asleep.Load()
		for range 10 {
			runtime.Gosched()
		}
		if early || asleep.Load() {
			violations.Add(1)
		}
		served.Add(1)
	})
	p := newProxy(t, engine.URL, func(o *Options) { o.MaxHeld = clients })
	client := newClient(t)

	var running sync.WaitGroup
	failures := make(chan string, clients*each)
	for range clients {
		running.Go(func() {
			for range each {
				if got := post(t, client, p.url("/v1/completions"), "{}"); got.err != nil || got.status != http.StatusOK {
					failures <- fmt.Sprint(got.status, got.body, got.err)
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() { running.Wait(); close(ended) }()
	flips := flipUntil(t, ended, p, &asleep)
	close(failures)
	for failure := range failures {
		t.Error(failure)
	}
	require.Zero(t, violations.Load())
	require.EqualValues(t, clients*each, served.Load())
	require.Greater(t, flips, 10)
	eventually(t, func() bool { return p.InFlight() == 0 }) // the client gets its answer before the request leaves
	require.Zero(t, p.Held())
}

// flipUntil opens and shuts the gate until the clients have ended. It marks the
// engine asleep while the gate is shut and drained.
func flipUntil(t *testing.T, ended <-chan struct{}, p *Proxy, asleep *atomic.Bool) int {
	t.Helper()
	for flips := 0; ; flips++ {
		p.Open()
		select {
		case <-ended:
			return flips
		case <-time.After(time.Millisecond):
		}
		p.Shut("a flip")
		cut, err := p.Drain(patientContext(t))
		require.NoError(t, err)
		require.Zero(t, cut)
		asleep.Store(true)
		if p.InFlight() != 0 {
			t.Error("a request slipped in")
		}
		select {
		case <-ended:
		case <-time.After(time.Millisecond):
		}
		asleep.Store(false)
	}
}

func TestDrainedGateAdmitsNoRequest(t *testing.T) {
	g := newGate(4, time.Now)
	var asleep, over atomic.Bool
	var violations, admitted atomic.Int64
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for !over.Load() {
				ticket, _ := ticketFor()
				held, refused := g.enter(ticket)
				if held != nil {
					<-held.ready
					refused = held.refused
				}
				if refused != nil {
					continue
				}
				if asleep.Load() {
					violations.Add(1)
				}
				admitted.Add(1)
				g.leave(ticket)
			}
		})
	}
	for n := 0; n < 500 || admitted.Load() == 0; n++ { // on a busy machine no goroutine may have run by then
		g.set(gateOpen, "")
		runtime.Gosched()
		g.set(gateShut, "a flip")
		_, err := g.drain(context.Background())
		require.NoError(t, err)
		asleep.Store(true)
		runtime.Gosched()
		asleep.Store(false)
	}
	over.Store(true)
	g.set(gateClosed, "the end")
	running.Wait()
	require.Zero(t, violations.Load())
	require.Positive(t, admitted.Load())
}

// ticketFor returns a ticket, and the context that ends when the ticket is cut.
func ticketFor() (*ticket, context.Context) {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &ticket{cancel: cancel}, ctx
}

func TestGateStateDecidesAboutRequest(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*gate)
		status  int // of a refusal; 0: admitted; -1: held
	}{
		"a new gate holds it":                     {func(*gate) {}, -1},
		"an open gate admits it":                  {func(g *gate) { g.set(gateOpen, "") }, 0},
		"a shut gate holds it":                    {func(g *gate) { g.set(gateOpen, ""); g.set(gateShut, "x") }, -1},
		"a failed gate refuses it":                {func(g *gate) { g.set(gateFailed, "x") }, 503},
		"a failed gate that is shut holds it":     {func(g *gate) { g.set(gateFailed, "x"); g.set(gateShut, "y") }, -1},
		"a failed gate that is opened admits it":  {func(g *gate) { g.set(gateFailed, "x"); g.set(gateOpen, "") }, 0},
		"a closed gate refuses it":                {func(g *gate) { g.set(gateClosed, "x") }, 503},
		"a closed gate cannot be opened":          {func(g *gate) { g.set(gateClosed, "x"); g.set(gateOpen, "") }, 503},
		"a closed gate cannot be shut":            {func(g *gate) { g.set(gateClosed, "x"); g.set(gateShut, "") }, 503},
		"a shut gate with max_held requests: 429": {func(g *gate) { t1, _ := ticketFor(); _, _ = g.enter(t1) }, 429},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(1, time.Now)
			c.prepare(g)
			ticket, _ := ticketFor()
			held, refused := g.enter(ticket)
			inFlight, _, _ := g.counts()
			switch c.status {
			case 0:
				require.Nil(t, held)
				require.Nil(t, refused)
				require.Equal(t, 1, inFlight)
			case -1:
				require.NotNil(t, held)
				require.Nil(t, refused)
				require.Zero(t, inFlight)
			default:
				require.Nil(t, held)
				require.Equal(t, c.status, refused.status)
				require.Zero(t, inFlight)
			}
		})
	}
}

func TestHeldRequestIsInFlightOnceTheGateOpens(t *testing.T) {
	g := newGate(1, time.Now)
	ticket, _ := ticketFor()
	held, _ := g.enter(ticket)
	g.set(gateOpen, "")
	g.set(gateShut, "again, before the request has noticed")
	inFlight, waiting, _ := g.counts()
	require.Equal(t, 1, inFlight)
	require.Zero(t, waiting)
	require.Nil(t, g.endWait(held), "it was admitted, however late it asks")
}

func TestHeldTooLongIsRefusedUnlessDecidedBefore(t *testing.T) {
	g := newGate(2, time.Now)
	first, _ := ticketFor()
	second, _ := ticketFor()
	late, _ := g.enter(first)
	require.Equal(t, http.StatusServiceUnavailable, g.endWait(late).status)
	failed, _ := g.enter(second)
	g.set(gateFailed, "the engine died")
	require.Equal(t, "the engine died", g.endWait(failed).message)
	inFlight, waiting, _ := g.counts()
	require.Zero(t, inFlight)
	require.Zero(t, waiting)
}

func TestDrainOfOpenGateFails(t *testing.T) {
	g := newGate(1, time.Now)
	g.set(gateOpen, "")
	_, err := g.drain(endedContext())
	require.ErrorIs(t, err, ErrOpen)

	ticket, _ := ticketFor()
	_, _ = g.enter(ticket)
	g.set(gateShut, "x")
	drained := make(chan error, 1)
	go func() {
		_, err := g.drain(context.Background())
		drained <- err
	}()
	eventually(t, func() bool { g.mu.Lock(); defer g.mu.Unlock(); return g.changed != nil })
	g.set(gateOpen, "")
	require.ErrorIs(t, receive(t, drained), ErrOpen, "opened meanwhile")
}

func TestDrainWaitsForLastRequestAndCutsNone(t *testing.T) {
	g := newGate(1, time.Now)
	g.set(gateOpen, "")
	first, firstContext := ticketFor()
	second, _ := ticketFor()
	_, _ = g.enter(first)
	_, _ = g.enter(second)
	g.set(gateShut, "x")
	drained := make(chan int, 1)
	go func() {
		cut, _ := g.drain(context.Background())
		drained <- cut
	}()
	g.leave(first)
	require.Empty(t, drained)
	g.leave(second)
	require.Zero(t, receive(t, drained))
	require.NoError(t, firstContext.Err())
}

func TestDrainCutsRemainingRequestsAtItsDeadline(t *testing.T) {
	g := newGate(1, time.Now)
	g.set(gateOpen, "")
	for range 2 {
		ticket, ctx := ticketFor()
		_, _ = g.enter(ticket)
		context.AfterFunc(ctx, func() { g.leave(ticket) })
	}
	g.set(gateShut, "x")
	cut, err := g.drain(endedContext())
	require.NoError(t, err)
	require.Equal(t, 2, cut)
	inFlight, _, _ := g.counts()
	require.Zero(t, inFlight)
}

func TestAdmissionAndEndOfRequestSetLastUsed(t *testing.T) {
	now := time.Unix(100, 0)
	g := newGate(1, func() time.Time { return now })
	lastUsed := func() time.Time { _, _, at := g.counts(); return at }
	require.True(t, lastUsed().IsZero())
	ticket, _ := ticketFor()
	_, _ = g.enter(ticket)
	require.True(t, lastUsed().IsZero(), "a request that waits is no use yet")
	now = now.Add(time.Second)
	g.set(gateOpen, "")
	require.Equal(t, time.Unix(101, 0), lastUsed())
	now = now.Add(time.Second)
	g.leave(ticket)
	require.Equal(t, time.Unix(102, 0), lastUsed())
	g.set(gateFailed, "x")
	now = now.Add(time.Second)
	_, refused := g.enter(ticket)
	require.NotNil(t, refused)
	require.Equal(t, time.Unix(102, 0), lastUsed(), "a refusal is no use")
}

func TestCutRequestHasErrCutAsCause(t *testing.T) {
	ticket, ctx := ticketFor()
	ticket.cut()
	require.True(t, errors.Is(context.Cause(ctx), errCut))
}
