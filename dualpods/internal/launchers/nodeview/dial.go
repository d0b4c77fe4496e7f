package nodeview

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// After these times a connection to an unreachable launcher is closed, with the calls on
// it. Linux would wait for a quarter of an hour, long after the launcher is back.
const (
	keepAliveIdle     = 5 * time.Second // without a byte from the launcher, until the first probe
	keepAliveInterval = 2 * time.Second
	ackTimeout        = 12 * time.Second // without an acknowledgement, until the connection is closed
)

const (
	// bufferSize is the size of a connection's buffers in bytes. It is small because the
	// controller has up to two connections to each of a thousand launchers.
	bufferSize = 1 << 10
	// idleTimeout is the time after which an idle connection is closed.
	idleTimeout = 90 * time.Second
)

// dialer dials a launcher.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// newDialer returns a dialer for one launcher: by TLS when it has a name.
func newDialer(name string, secure func(context.Context, string) (*tls.Config, error)) dialer {
	plain := &net.Dialer{
		Timeout:         listTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: int((ackTimeout - keepAliveIdle) / keepAliveInterval)},
		Control: func(_, _ string, c syscall.RawConn) (err error) {
			set := func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(ackTimeout.Milliseconds()))
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

// newHTTP returns the HTTP clients for one launcher: calls for short calls, lasting for
// streams. end closes idle connections.
func newHTTP(name string, secure func(context.Context, string) (*tls.Config, error)) (calls, lasting *http.Client, end func()) {
	dial := newDialer(name, secure)
	transport := &http.Transport{DialContext: dial, DialTLSContext: dial, ReadBufferSize: bufferSize, WriteBufferSize: bufferSize, IdleConnTimeout: idleTimeout}
	noRedirects := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // redirects are not followed
	return &http.Client{Transport: transport, CheckRedirect: noRedirects}, &http.Client{Transport: streamTransport{dial}, CheckRedirect: noRedirects}, transport.CloseIdleConnections
}

// withoutPort returns an error's text without the local port, which differs with each
// connection.
func withoutPort(err error) string {
	broken, ok := errors.AsType[*net.OpError](err)
	if !ok {
		return err.Error()
	}
	short := *broken
	short.Source = nil
	return strings.ReplaceAll(err.Error(), broken.Error(), short.Error())
}
