package gateway

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// Clients bounds the connections of clients to all public ports of a launcher together, so
// that they leave descriptors for the launcher's own work. Beyond the bound, the connection
// that has carried no request for the longest time is closed; where each carries one, that is
// the newest.
type Clients struct {
	most int

	mu      sync.Mutex
	open    int // without those that are being closed
	idle    *list.List
	element map[net.Conn]*list.Element // of idle; nil: the connection carries a request
}

// NewClients makes a bound.
func NewClients(most int) *Clients {
	return &Clients{most: most, idle: list.New(), element: map[net.Conn]*list.Element{}}
}

// track is called for each connection's changes, as a server's ConnState hook is. The
// descriptors of a connection that was taken over for an upgrade are not counted. A nil
// *Clients bounds nothing.
func (c *Clients) track(conn net.Conn, state http.ConnState) {
	if c == nil {
		return
	}
	if surplus := c.note(conn, state); surplus != nil {
		_ = surplus.Close() // its server notices that and ends it
	}
}

// note counts a connection, and returns one to close, or nil.
func (c *Clients) note(conn net.Conn, state http.ConnState) (surplus net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, counted := c.element[conn]
	if at != nil {
		c.idle.Remove(at)
	}
	switch state {
	case http.StateNew:
		c.open++
		c.element[conn] = c.idle.PushBack(conn)
	case http.StateIdle, http.StateActive:
		if !counted {
			return nil // it is being closed
		}
		c.element[conn] = nil
		if state == http.StateIdle {
			c.element[conn] = c.idle.PushBack(conn)
		}
	case http.StateHijacked, http.StateClosed:
		if counted {
			c.open--
			delete(c.element, conn)
		}
	}
	oldest := c.idle.Front()
	if c.open <= c.most || oldest == nil {
		return nil
	}
	surplus = c.idle.Remove(oldest).(net.Conn)
	delete(c.element, surplus)
	c.open--
	return surplus
}
