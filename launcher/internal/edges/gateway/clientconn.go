package gateway

import (
	"net"
	"sync"
	"time"
)

// clientConn is a client's connection. It keeps deadlines that are meant for a request's
// body away from what the server reads after the body.
//
// When the server has read a whole body, it reads on in the background, to notice that the
// client hangs up. If a deadline ended that read, the server would take the client for gone.
// It would answer the request, use the connection again, and cancel the next request at once.
// The server removes the read deadline when that read begins; this is how clientConn knows
// that the body is over. If the server already has a byte of a later request, it begins no such
// read and removes no deadline; a deadline for the body can then end no read either, and the
// server replaces it before the next request.
type clientConn struct {
	*net.TCPConn

	mu     sync.Mutex
	inBody bool // a handler runs, and the server has not read the whole body yet
}

// SetReadDeadline is called by the server, and to cut a request or a WebSocket. Only the server
// removes a deadline, by a zero time.
func (c *clientConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.IsZero() {
		c.inBody = false
	}
	return c.TCPConn.SetReadDeadline(t)
}

// beginBody notes that a request with a body has come. c may be nil.
func (c *clientConn) beginBody() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inBody = true
}

// boundBody sets a deadline for reading the request's body. It does nothing when the server
// has read the whole body. c may be nil.
func (c *clientConn) boundBody(t time.Time) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inBody {
		_ = c.TCPConn.SetReadDeadline(t) // fails only on a connection that is closed already
	}
}

// clientListener accepts the connections of clients.
type clientListener struct{ net.Listener }

func (l clientListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &clientConn{TCPConn: conn.(*net.TCPConn)}, nil
}
