// Package connlimit bounds the connections of clients to HTTP servers, so that clients leave
// descriptors for the other work of a program.
package connlimit

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
	"syscall"
)

// Limit bounds the connections to one server, or to several together. Beyond the bound it
// closes, for each new connection, the one that has carried no request for the longest time.
// Where each carries one, it closes the newest of the address with the most connections, so
// that one client cannot keep out the others. A nil *Limit bounds nothing.
type Limit struct {
	most int

	mu        sync.Mutex
	open      map[net.Conn]*connection // without those that are being closed
	idle      *list.List               // those that carry no request, in the order in which they became so
	addresses map[string]*list.List    // the connections of each client address, oldest first
}

// connection is an open connection.
type connection struct {
	address string
	at      *list.Element // in Limit.addresses
	idle    *list.Element // in Limit.idle; nil: it carries a request
}

// New makes a limit.
func New(most int) *Limit {
	return &Limit{most: most, open: map[net.Conn]*connection{}, idle: list.New(), addresses: map[string]*list.List{}}
}

// Bounds of Share: a few connections must be possible, and nobody needs more than that many.
const (
	leastShare = 16
	mostShare  = 1024
)

// Share returns a part of the descriptors that the program may open, such as an eighth of them
// for part 8, but at least 16 and at most 1024.
func Share(part uint64) int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return leastShare
	}
	return int(min(max(limit.Cur/part, leastShare), mostShare))
}

// connKey is the key of the connection in a request's context.
type connKey struct{}

type limited struct {
	limit *Limit
	conn  net.Conn
}

// Watch bounds the connections of a server. Call it before the server serves.
func (l *Limit) Watch(s *http.Server) {
	s.ConnState = l.Track
	s.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, limited{l, conn})
	}
}

// AwaitBody counts the connection of a request as one without a request, until came is called:
// a client can send a body as slowly as it likes. Another server's request is left alone.
func AwaitBody(r *http.Request) (came func()) {
	c, ok := r.Context().Value(connKey{}).(limited)
	if !ok {
		return func() {}
	}
	c.limit.Track(c.conn, http.StateIdle)
	return func() { c.limit.Track(c.conn, http.StateActive) }
}

// Track notes a change of a connection, as a server's ConnState hook does. The server calls
// the hook for the last time when a handler takes a connection over. Such a connection counts
// until the handler calls Track with http.StateClosed.
func (l *Limit) Track(conn net.Conn, state http.ConnState) {
	if l == nil {
		return
	}
	surplus := l.note(conn, state)
	if surplus == nil {
		return
	}
	if secured, ok := surplus.(interface{ NetConn() net.Conn }); ok {
		surplus = secured.NetConn() // TLS would wait for a client that reads nothing
	}
	_ = surplus.Close() // its server notices that and ends it
}

// note counts a connection, and returns one to close, or nil.
func (l *Limit) note(conn net.Conn, state http.ConnState) (surplus net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.open[conn]
	if c == nil && state != http.StateNew {
		return nil // it is being closed
	}
	switch state {
	case http.StateNew:
		c = l.add(conn)
		c.idle = l.idle.PushBack(conn)
	case http.StateIdle:
		l.becomeBusy(c)
		c.idle = l.idle.PushBack(conn)
	case http.StateActive, http.StateHijacked:
		l.becomeBusy(c)
	case http.StateClosed:
		l.remove(conn, c)
	}
	if len(l.open) <= l.most {
		return nil
	}
	surplus = l.surplus(conn, c)
	l.remove(surplus, l.open[surplus])
	return surplus
}

func (l *Limit) add(conn net.Conn) *connection {
	c := &connection{address: addressOf(conn)}
	all := l.addresses[c.address]
	if all == nil {
		all = list.New()
		l.addresses[c.address] = all
	}
	c.at = all.PushBack(conn)
	l.open[conn] = c
	return c
}

func (l *Limit) becomeBusy(c *connection) {
	if c.idle != nil {
		l.idle.Remove(c.idle)
		c.idle = nil
	}
}

func (l *Limit) remove(conn net.Conn, c *connection) {
	l.becomeBusy(c)
	all := l.addresses[c.address]
	all.Remove(c.at)
	if all.Len() == 0 {
		delete(l.addresses, c.address)
	}
	delete(l.open, conn)
}

// surplus returns the connection to close when newest has come.
func (l *Limit) surplus(newest net.Conn, c *connection) net.Conn {
	if oldest := l.idle.Front(); oldest != nil && oldest.Value != newest {
		return oldest.Value.(net.Conn)
	}
	most := l.addresses[c.address]
	for _, all := range l.addresses {
		if all.Len() > most.Len() {
			most = all
		}
	}
	return most.Back().Value.(net.Conn)
}

// Counts returns how many connections are open, and how many of them carry no request.
func (l *Limit) Counts() (open, idle int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open), l.idle.Len()
}

// addressOf returns the address of a client without its port.
func addressOf(conn net.Conn) string {
	address := conn.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}
