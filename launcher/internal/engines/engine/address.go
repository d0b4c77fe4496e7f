package engine

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// This file is about where engines listen: on a Unix socket, in a folder that their user
// alone may enter, or on a port of loopback, which every local user reaches.

// SocketBase is the base, for the calls of an Engine, of an engine that listens on a Unix
// socket. PortBase is that of an engine that listens on a port of loopback.
func SocketBase(path string) string { return socketScheme + path }

// PortBase is explained at SocketBase.
func PortBase(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }

const (
	socketScheme = "unix:"
	// socketHost begins the name of a host in the URL of a call to a socket. The path of the
	// socket follows in hexadecimal digits: net/http keeps connections by the host's name.
	socketHost = "unix-"
)

// urlOf returns the URL of a base, and the Host header of its calls; empty: that of the URL.
func urlOf(base string) (prefix, host string) {
	if path, ok := strings.CutPrefix(base, socketScheme); ok {
		return "http://" + socketHost + hex.EncodeToString([]byte(path)), "localhost"
	}
	return base, ""
}

// dialURL connects to the host of such a URL.
func dialURL(ctx context.Context, _, address string) (net.Conn, error) {
	ctx, stop := context.WithTimeout(ctx, dialTime)
	defer stop()
	host, _, _ := strings.Cut(address, ":")
	if digits, ok := strings.CutPrefix(host, socketHost); ok {
		if path, err := hex.DecodeString(digits); err == nil {
			return Dial(ctx, string(path))
		}
	}
	return Dial(ctx, address)
}

// dialTime bounds how long an engine may take to accept a connection.
const dialTime = 5 * time.Second

// withoutURL removes the URL of a call to a socket from an error. It says nothing to people.
func withoutURL(err error, method, path string) error {
	if failed, ok := errors.AsType[*url.Error](err); ok && strings.Contains(failed.URL, "://"+socketHost) {
		return fmt.Errorf("%s %s: %w", method, path, failed.Err)
	}
	return err
}

// Dial connects to an engine. address is the path of a Unix socket, or host:port.
//
// The kernel refuses a connection to a Unix socket for the moment while the engine's queue
// of new connections is full (EAGAIN, see connect(2)). Dial then tries again until ctx ends.
// Over TCP the kernel does so by itself.
func Dial(ctx context.Context, address string) (net.Conn, error) {
	var dialer net.Dialer
	if !filepath.IsAbs(address) {
		return dialer.DialContext(ctx, "tcp", address)
	}
	short, release, err := shortPath(address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "unix", Addr: &net.UnixAddr{Name: address, Net: "unix"}, Err: err}
	}
	defer release()
	for wait := time.Millisecond; ; wait = min(2*wait, longestWait) {
		conn, err := dialer.DialContext(ctx, "unix", short)
		if !errors.Is(err, syscall.EAGAIN) {
			return conn, err
		}
		again := time.NewTimer(wait)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return nil, err
		}
	}
}

// longestWait bounds the time between two attempts to connect to an engine whose queue is
// full.
const longestWait = 50 * time.Millisecond

// mostPath is the length, in bytes, of the longest path of a socket (unix(7)).
const mostPath = 107

// shortPath returns a path of a socket that fits into a socket's address: somebody may have
// renamed a folder on the way since the engine made the socket. release must be called when
// the path is not needed any more.
func shortPath(path string) (short string, release func(), err error) {
	if len(path) <= mostPath {
		return path, func() {}, nil
	}
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, fmt.Errorf("cannot open the folder of a socket: %w", err)
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir, filepath.Base(path)), func() { _ = unix.Close(dir) }, nil
}
