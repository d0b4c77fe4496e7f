package gateway

import (
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// This file closes WebSockets. A WebSocket is in flight until one side ends it, so a drain
// waits for it. When a drain cuts it, the proxy sends the client a close frame
// (https://www.rfc-editor.org/rfc/rfc6455#section-5.5.1), so that the client can tell a cut
// from a broken network.

// webSocketConn is a client's connection after its upgrade. The reverse proxy copies the engine's
// frames to it, and closes it at the end.
type webSocketConn struct {
	net.Conn

	ticket *ticket
	reason func() string // why requests are cut
	sign   func()        // called before something of the engine's is written
	ended  func()        // called when the connection is closed

	mu     sync.Mutex // held while something is written
	passed frames     // what the engine has sent
	closed bool       // nothing of the engine's is passed on any more
}

// upgraded returns the connection of an admitted request that becomes a WebSocket.
func (p *Proxy) upgraded(conn net.Conn, t *ticket) net.Conn {
	return &webSocketConn{
		Conn: conn, ticket: t, sign: p.gate.quiet.noteSign,
		reason: func() string { reason, _ := p.gate.currentReason(); return reason },
		ended:  func() { p.options.Clients.Track(conn, http.StateClosed) }, // the server does not track it any more
	}
}

// Write passes bytes of the engine's frames on.
func (w *webSocketConn) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, net.ErrClosed
	}
	w.sign()
	n, err := w.Conn.Write(b)
	w.passed.add(b[:n])
	return n, err
}

// CloseWrite ends what the client gets, after the engine has closed its side.
func (w *webSocketConn) CloseWrite() error {
	if half, ok := w.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close closes the connection. If the request was cut, the client first gets a close frame.
func (w *webSocketConn) Close() error {
	if at, cut := w.ticket.wasCut(); cut {
		w.tellClient(at.Add(cutGrace))
	}
	w.ended()
	return w.Conn.Close()
}

// tellClient sends a close frame, unless the engine has sent one or is in the middle of a
// frame. A write in progress ends first; the cut has bounded it. Then tellClient waits until the
// client has closed its side, or until the deadline: if bytes of the client were unread, the
// kernel would reset the connection, and the client could lose the frame.
func (w *webSocketConn) tellClient(deadline time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if !w.passed.mayEnd() {
		return
	}
	if _, err := w.Conn.Write(closeFrame("the launcher cut the connection: " + w.reason())); err != nil {
		return // the client is gone, or reads nothing
	}
	if w.CloseWrite() == nil && w.SetReadDeadline(deadline) == nil {
		_, _ = io.Copy(io.Discard, w.Conn) // only until the client closes
	}
}

const (
	opcodeClose   = 0x8
	finalFrame    = 0x80
	statusTryLate = 1013 // "try again later", see https://www.iana.org/assignments/websocket
	maxControl    = 125  // bytes of a control frame's payload
)

// closeFrame returns a close frame with a reason.
func closeFrame(reason string) []byte {
	most := maxControl - 2 // the status
	reason = strings.ToValidUTF8(reason[:min(most, len(reason))], "")
	frame := []byte{finalFrame | opcodeClose, byte(2 + len(reason))}
	return append(binary.BigEndian.AppendUint16(frame, statusTryLate), reason...)
}

// frames follows the frames that one side of a WebSocket sends
// (https://www.rfc-editor.org/rfc/rfc6455#section-5.2).
type frames struct {
	head   [14]byte // of the frame that begins, as far as it was sent
	have   int      // bytes in head
	left   uint64   // bytes of the frame's payload that were not sent yet
	closed bool     // a close frame was sent
}

// add notes what the side has sent.
func (f *frames) add(b []byte) {
	for len(b) > 0 {
		if n := min(f.left, uint64(len(b))); n > 0 {
			f.left -= n
			b = b[n:]
			continue
		}
		f.head[f.have] = b[0]
		f.have++
		b = b[1:]
		if bytes, known := f.payload(); known {
			f.closed = f.closed || f.head[0]&0xf == opcodeClose
			f.have, f.left = 0, bytes
		}
	}
}

// payload returns how long the payload of the frame is that begins, once its whole head was
// sent.
func (f *frames) payload() (bytes uint64, known bool) {
	if f.have < 2 {
		return 0, false
	}
	end, short := 2, f.head[1]&0x7f
	switch short {
	case 126:
		end += 2
	case 127:
		end += 8
	}
	masked := f.head[1]&0x80 != 0
	if masked && f.have < end+4 || f.have < end {
		return 0, false
	}
	switch short {
	case 126:
		return uint64(binary.BigEndian.Uint16(f.head[2:])), true
	case 127:
		return binary.BigEndian.Uint64(f.head[2:]), true
	default:
		return uint64(short), true
	}
}

// mayEnd reports whether a close frame may come next.
func (f *frames) mayEnd() bool { return f.have == 0 && f.left == 0 && !f.closed }
