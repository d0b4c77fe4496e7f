package gateway

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// hold blocks while a request waits at the shut gate. The wait ends when the gate
// opens, fails or closes, when HoldTimeout is over, or when the client leaves.
func (p *Proxy) hold(ctx context.Context, x *exchange, w *waiter) *refusal {
	began := p.options.Now()
	defer func() { x.held = p.options.Now().Sub(began) }()
	gone, stop, err := watchHangup(w.ticket.conn)
	if err != nil {
		p.options.Logger.Debug("cannot watch for the hang-up of a client; its held request continues without it", "instance", p.options.Name, "error", err)
	}
	defer stop()
	late := time.NewTimer(p.options.HoldTimeout)
	defer late.Stop()
	select {
	case <-w.ready:
		return w.refused
	case <-late.C:
		return p.gate.endWait(w)
	case <-ctx.Done():
	case <-gone:
	}
	if p.gate.endWait(w) == nil {
		p.gate.leave(w.ticket) // the gate admitted the request just before
	}
	x.status, x.outcome = statusClientGone, OutcomeClientGone
	panic(http.ErrAbortHandler)
}

// watchHangup closes the channel gone when the client hangs up. The server notices a
// hang-up only when it reads on, which it cannot do while the request's body is
// unread. So watchHangup asks the kernel, through an epoll descriptor for that one
// event. A hang-up comes after all of the client's data, so it is not noticed with a
// body larger than maxReadAhead and the socket's buffers. The caller calls stop,
// which closes the descriptor and is never nil.
func watchHangup(conn *clientConn) (gone <-chan struct{}, stop func(), err error) {
	nothing := func() {}
	if conn == nil {
		return nil, nothing, nil
	}
	file, err := hangupFile(conn)
	if err != nil {
		return nil, nothing, fmt.Errorf("cannot watch a connection: %w", err)
	}
	epoll, err := file.SyscallConn()
	if err != nil {
		_ = file.Close() // nothing was written, so no error matters
		return nil, nothing, fmt.Errorf("cannot watch a connection: %w", err)
	}
	hungUp, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		err := epoll.Read(func(fd uintptr) bool {
			n, _ := unix.EpollWait(int(fd), make([]unix.EpollEvent, 1), 0)
			return n > 0
		})
		if err == nil { // an error means that stop was called
			close(hungUp)
		}
	}()
	return hungUp, func() {
		_ = file.Close() // nothing was written, so no error matters
		<-ended
	}, nil
}

// hangupFile returns an epoll descriptor that becomes readable when the peer of the
// socket closes its side. It is non-blocking, so that Go's poller can wait for it.
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
