package gateway

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// hold has a request wait at the shut gate: until the gate opens, the engine fails,
// the wait takes too long, or the client leaves.
func (p *Proxy) hold(ctx context.Context, x *exchange, w *waiter) *refusal {
	began := p.options.Now()
	defer func() { x.held = p.options.Now().Sub(began) }()
	gone, stop, err := watchHangup(w.ticket.conn)
	if err != nil {
		p.options.Logger.Debug("a held request goes on should its client leave", "instance", p.options.Name, "error", err)
	}
	defer stop()
	late := time.NewTimer(p.options.HoldTimeout)
	defer late.Stop()
	select {
	case <-w.ready:
		return w.refused
	case <-late.C:
		return p.gate.settle(w)
	case <-ctx.Done():
	case <-gone:
	}
	if p.gate.settle(w) == nil {
		p.gate.leave(w.ticket) // the gate had just admitted the request
	}
	x.status, x.outcome = statusClientGone, OutcomeClientGone
	panic(http.ErrAbortHandler)
}

// watchHangup tells when a client hangs up. The server notices a hang-up by reading
// on, which it cannot do while a request's body stands unread; so the kernel is
// asked, through an epoll descriptor for that event alone. The hang-up of a client
// whose body goes beyond maxAhead and the socket's buffers is not noticed, since it
// comes after all of the client's data. The channel is closed at the hang-up; stop
// closes the descriptor and is never nil.
func watchHangup(conn net.Conn) (gone <-chan struct{}, stop func(), err error) {
	nothing := func() {}
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return nil, nothing, nil
	}
	file, err := hangupFile(socket)
	if err != nil {
		return nil, nothing, fmt.Errorf("cannot watch a connection: %w", err)
	}
	epoll, err := file.SyscallConn()
	if err != nil {
		_ = file.Close() // nothing was written
		return nil, nothing, fmt.Errorf("cannot watch a connection: %w", err)
	}
	hungUp, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		err := epoll.Read(func(fd uintptr) bool {
			n, _ := unix.EpollWait(int(fd), make([]unix.EpollEvent, 1), 0)
			return n > 0
		})
		if err == nil { // an error: stop was called
			close(hungUp)
		}
	}()
	return hungUp, func() {
		_ = file.Close() // nothing was written
		<-ended
	}, nil
}

// hangupFile is an epoll descriptor, readable when the peer of a socket has closed
// its side. It is non-blocking, so that the runtime's poller can wait for it.
func hangupFile(socket syscall.Conn) (*os.File, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	var added error
	err = raw.Control(func(fd uintptr) {
		added = unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{Events: unix.EPOLLRDHUP})
	})
	if err == nil {
		err = added
	}
	if err == nil {
		err = unix.SetNonblock(epfd, true)
	}
	if err != nil {
		_ = unix.Close(epfd)
		return nil, err
	}
	return os.NewFile(uintptr(epfd), "epoll"), nil
}
