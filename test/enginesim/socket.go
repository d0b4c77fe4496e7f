package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/test/enginesim/internal/vllmerr"
)

// socket is an address that is bound, so that nobody else gets it, and refuses
// connections until it listens: vLLM binds before it loads the model.
type socket struct{ fd int }

func bind(c *config) (*socket, error) {
	addr, domain, err := resolve(c)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot make a socket: %w", err)
	}
	s := &socket{fd: fd}
	if domain != unix.AF_UNIX {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err == nil && c.reusePort {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}
	if err == nil {
		err = unix.Bind(fd, addr)
	}
	if err != nil {
		s.close()
		return nil, python3(err)
	}
	return s, nil
}

// python3 writes an error of the system as Python does.
func python3(err error) error {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return err
	}
	text := errno.Error()
	return vllmerr.New("OSError: [Errno %d] %s%s", int(errno), strings.ToUpper(text[:1]), text[1:])
}

func resolve(c *config) (unix.Sockaddr, int, error) {
	if c.uds != "" {
		return &unix.SockaddrUnix{Name: c.uds}, unix.AF_UNIX, nil
	}
	host := c.host
	if host == "" {
		host = "0.0.0.0"
	}
	ip, err := net.ResolveIPAddr("ip", host)
	if err != nil {
		return nil, 0, vllmerr.New("socket.gaierror: [Errno -2] Name or service not known")
	}
	if v4 := ip.IP.To4(); v4 != nil {
		return &unix.SockaddrInet4{Port: c.port, Addr: [4]byte(v4)}, unix.AF_INET, nil
	}
	return &unix.SockaddrInet6{Port: c.port, Addr: [16]byte(ip.IP.To16())}, unix.AF_INET6, nil
}

// backlog is uvicorn's.
const backlog = 2048

// listen makes the socket accept connections; the listener owns it from then
// on. There is none, and no error, when another socket on that port listens
// already: two may be bound, but one listens.
func (s *socket) listen() (net.Listener, error) {
	if err := unix.Listen(s.fd, backlog); errors.Is(err, unix.EADDRINUSE) {
		return nil, nil
	} else if err != nil {
		return nil, python3(err)
	}
	f := os.NewFile(uintptr(s.fd), "listener")
	s.fd = -1
	ln, err := net.FileListener(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("cannot listen: %w", err)
	}
	return ln, nil
}

func (s *socket) close() {
	if s.fd >= 0 {
		// Nothing was written to it.
		_ = unix.Close(s.fd)
		s.fd = -1
	}
}
