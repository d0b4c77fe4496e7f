package gateway

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// connections tracks the clients' connections, and which of them carry a request.
// Close waits for those and closes the others.
type connections struct {
	allClosed chan struct{} // closed when finish was called and no connection is left

	mu        sync.Mutex
	busy      map[net.Conn]bool
	finishing bool
}

func newConnections() *connections {
	return &connections{allClosed: make(chan struct{}), busy: map[net.Conn]bool{}}
}

// track is the server's ConnState hook. The server calls it for the last time when
// the connection's goroutine ends, or when a handler takes the connection over for
// an upgrade. After an upgrade the gate alone tracks the request.
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
			close(c.allClosed)
		}
	}
}

// finish closes the connections that carry no request. It waits until the server has
// closed the others, which it does when their request ends. left is how many were
// still open when ctx ended. Call finish once, after the listener was closed and
// keep-alives were disabled.
func (c *connections) finish(ctx context.Context) (left int) {
	c.mu.Lock()
	c.finishing = true
	if len(c.busy) == 0 {
		close(c.allClosed)
	}
	for conn, busy := range c.busy {
		if !busy {
			_ = conn.Close() // its goroutine notices that and ends
		}
	}
	c.mu.Unlock()
	select {
	case <-c.allClosed:
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

// connOf returns the client's connection of a request. It returns nil when another
// server received the request.
func connOf(ctx context.Context) *clientConn {
	conn, _ := ctx.Value(connKey{}).(*clientConn)
	return conn
}
