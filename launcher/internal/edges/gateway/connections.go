package gateway

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// connections knows the clients' connections and which of them are busy with a
// request, so that closing waits for exactly those.
type connections struct {
	gone chan struct{} // closed when finish was called and no connection is left

	mu        sync.Mutex
	busy      map[net.Conn]bool
	finishing bool
}

func newConnections() *connections {
	return &connections{gone: make(chan struct{}), busy: map[net.Conn]bool{}}
}

// track is the server's ConnState hook. The last call for a connection comes when
// its goroutine ends, or when a handler takes the connection over for an upgrade;
// from then on the gate counts the request.
func (c *connections) track(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew, http.StateIdle:
		c.busy[conn] = false
	case http.StateActive:
		c.busy[conn] = true
	case http.StateHijacked, http.StateClosed:
		delete(c.busy, conn)
		if c.finishing && len(c.busy) == 0 {
			close(c.gone)
		}
	}
}

// finish closes the connections that are not busy and waits until the others are
// closed too, which the server does when their request has ended. left is how many
// were not closed when ctx ended. Call finish once, when no new connection can come
// and none is kept alive.
func (c *connections) finish(ctx context.Context) (left int) {
	c.mu.Lock()
	c.finishing = true
	if len(c.busy) == 0 {
		close(c.gone)
	}
	for conn, busy := range c.busy {
		if !busy {
			_ = conn.Close() // its goroutine sees it closed
		}
	}
	c.mu.Unlock()
	select {
	case <-c.gone:
		return 0
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.busy)
}

// connKey is the key of the client's connection in a request's context.
type connKey struct{}

func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// connOf is the client's connection of a request; nil when the request came over
// another server.
func connOf(ctx context.Context) net.Conn {
	conn, _ := ctx.Value(connKey{}).(net.Conn)
	return conn
}
