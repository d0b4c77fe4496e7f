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

// buffer is the size of those of a connection, in bytes: a thousand launchers are
// watched, by one connection each.
const buffer = 1 << 10

// newHTTP makes the client for one launcher, of that name where it is called by TLS.
func newHTTP(name string, secure func(context.Context, string) (*tls.Config, error)) (client *http.Client, end func()) {
	dialer := &net.Dialer{
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
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext, transport.Proxy = dialer.DialContext, nil
	transport.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		config, err := secure(ctx, name)
		if err != nil {
			return nil, err
		}
		return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, address)
	}
	transport.ReadBufferSize, transport.WriteBufferSize = buffer, buffer
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // a redirect is no answer
	return &http.Client{Transport: transport, CheckRedirect: stay}, transport.CloseIdleConnections
}
