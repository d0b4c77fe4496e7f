package nodeview

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// When a connection to a launcher that cannot be reached any more is given up,
// with the calls on it: Linux would wait for a quarter of an hour, and a call
// that was cut off would find out long after the launcher is back.
const (
	idle   = 5 * time.Second // without a byte from the launcher, until it is probed
	probe  = 2 * time.Second
	giveUp = 12 * time.Second // without an acknowledgement
)

const (
	// buffer is the size of those of a connection, in bytes: a thousand launchers are
	// watched, by a connection or two each.
	buffer = 1 << 10
	// unused is how long a connection stays open that no call uses.
	unused = 90 * time.Second
)

// dialer connects to a launcher.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// newDialer makes that of one launcher, of that name where it is called by TLS.
func newDialer(name string, secure func(context.Context, string) (*tls.Config, error)) dialer {
	plain := &net.Dialer{
		Timeout:         askLimit,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: idle, Interval: probe, Count: int((giveUp - idle) / probe)},
		Control: func(_, _ string, c syscall.RawConn) (err error) {
			set := func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(giveUp.Milliseconds()))
			}
			if failed := c.Control(set); failed != nil {
				return failed
			}
			return err
		},
	}
	if name == "" {
		return plain.DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		config, err := secure(ctx, name)
		if err != nil {
			return nil, err
		}
		return (&tls.Dialer{NetDialer: plain, Config: config}).DialContext(ctx, network, address)
	}
}

// newHTTP makes the clients for one launcher: for calls that end, and for streams.
func newHTTP(name string, secure func(context.Context, string) (*tls.Config, error)) (calls, lasting *http.Client, end func()) {
	dial := newDialer(name, secure)
	transport := &http.Transport{DialContext: dial, DialTLSContext: dial, ReadBufferSize: buffer, WriteBufferSize: buffer, IdleConnTimeout: unused}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // a redirect is no answer
	return &http.Client{Transport: transport, CheckRedirect: stay}, &http.Client{Transport: streams{dial}, CheckRedirect: stay}, transport.CloseIdleConnections
}
