package gateway

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const quietLimit = 10 * time.Second

// quietGate is an open gate that counts the calls of onQuiet.
func quietGate(calls *atomic.Int32) *gate {
	g := newGate(1, time.Now)
	g.quiet = newQuietWatch(quietLimit, func() { calls.Add(1) })
	g.set(gateOpen, "")
	return g
}

func TestQuietEngineIsNoticedOnlyWhileRequestsAreInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		g := quietGate(&calls)
		time.Sleep(time.Hour)
		assert.Zero(t, calls.Load(), "there was no request")
		assert.Zero(t, g.quietFor())

		first, second := &ticket{}, &ticket{}
		_, refused := g.enter(first)
		require.Nil(t, refused)
		time.Sleep(9 * time.Second)
		_, refused = g.enter(second)
		require.Nil(t, refused)
		assert.Zero(t, calls.Load())
		time.Sleep(1100 * time.Millisecond)
		assert.EqualValues(t, 1, calls.Load(), "a second request is no sign of life")
		assert.Equal(t, 10100*time.Millisecond, g.quietFor())
		time.Sleep(2 * quietLimit)
		assert.EqualValues(t, 3, calls.Load(), "it is noticed again")

		g.leave(first)
		time.Sleep(9 * time.Second)
		g.quiet.noteSign()
		time.Sleep(9 * time.Second)
		assert.EqualValues(t, 3, calls.Load(), "something came back")
		g.leave(second)
		time.Sleep(time.Hour)
		assert.EqualValues(t, 3, calls.Load(), "no request is in flight any more")
		assert.Zero(t, g.quietFor())
	})
}

func TestQuietEngineIsNotNoticedWithoutALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, time.Now)
		g.set(gateOpen, "")
		_, refused := g.enter(&ticket{})
		require.Nil(t, refused)
		time.Sleep(time.Hour)
		assert.Equal(t, time.Hour, g.quietFor())
	})
}

func TestEachPieceOfAnAnswerIsASignOfLife(t *testing.T) {
	piece := make(chan struct{})
	engine := newEngine(t, func(w http.ResponseWriter, _ *http.Request) {
		for range piece {
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
		}
	})
	p := newProxy(t, engine.URL)
	p.Open()
	answered := make(chan struct{})
	client := newClient(t)
	go func() {
		defer close(answered)
		post(t, client, p.url("/v1/completions"), "{}")
	}()
	for range 3 {
		before := p.gate.quiet.sign.Load()
		piece <- struct{}{}
		eventually(t, func() bool { return p.gate.quiet.sign.Load() > before })
	}
	close(piece)
	<-answered
	eventually(t, func() bool { return p.QuietFor() == 0 })
}
