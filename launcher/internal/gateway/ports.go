package gateway

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// loopback is the address that engines listen on.
const loopback = "127.0.0.1"

// Ports hands out the loopback ports that engines listen on.
//
// A port is reserved by a socket that is bound to it with SO_REUSEPORT and
// never listens. vLLM binds with SO_REUSEPORT too (create_server_socket in
// vllm/entrypoints/launchers/launcher.py, 0.30.0), so the engine can take the
// port, while whoever binds without it cannot; the kernel never picks the port
// for anybody else, and, since it delivers connections to listening sockets
// only, all of them reach the engine (socket(7); net/ipv4/inet_connection_sock.c).
// Both sockets must belong to one user.
type Ports struct {
	mu       sync.Mutex
	reserved map[int]bool
}

// NewPorts makes an allocator. A launcher has one, since two could not tell
// each other's reservations from an engine's socket.
func NewPorts() *Ports { return &Ports{reserved: map[int]bool{}} }

// Reservation is a port kept for one engine, from before it starts until it is
// gone.
type Reservation struct {
	ports *Ports
	port  int
	fd    int
	once  sync.Once
}

// Reserve takes a port that is free on loopback.
func (p *Ports) Reserve() (*Reservation, error) { return p.bind(0) }

// Claim takes a given port, on which an engine may listen already: for one
// that outlived an earlier launcher. A *PortTakenError when it is reserved, or
// held by a socket that does not share it.
func (p *Ports) Claim(port int) (*Reservation, error) {
	if port < 1 || port > 65535 {
		return nil, fmt.Errorf("cannot claim port %d: out of range", port)
	}
	return p.bind(port)
}

func (p *Ports) bind(port int) (*Reservation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reserved[port] {
		return nil, &PortTakenError{Host: loopback, Port: port}
	}
	fd, bound, err := bindShared(port)
	if errors.Is(err, unix.EADDRINUSE) && port != 0 {
		return nil, &PortTakenError{Host: loopback, Port: port}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot reserve a port on %s: %w", loopback, err)
	}
	p.reserved[bound] = true
	return &Reservation{ports: p, port: bound, fd: fd}, nil
}

// bindShared opens a socket bound to a loopback port, 0 for any. SO_REUSEADDR
// stays off: with it on both sides, Linux would let a listener in that does not
// share the port.
func bindShared(port int) (fd, bound int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	if bound, err = shareAndBind(fd, port); err != nil {
		_ = unix.Close(fd) // never used
		return 0, 0, err
	}
	return fd, bound, nil
}

func shareAndBind(fd, port int) (bound int, err error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return 0, err
	}
	address := &unix.SockaddrInet4{Port: port, Addr: [4]byte(net.ParseIP(loopback).To4())}
	if err := unix.Bind(fd, address); err != nil {
		return 0, err
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	return name.(*unix.SockaddrInet4).Port, nil
}

// Port is the port's number.
func (r *Reservation) Port() int { return r.port }

// Close gives the port back; close it when the engine is gone. A second call
// does nothing.
func (r *Reservation) Close() error {
	var err error
	r.once.Do(func() {
		r.ports.mu.Lock()
		defer r.ports.mu.Unlock()
		delete(r.ports.reserved, r.port)
		if closed := unix.Close(r.fd); closed != nil {
			err = fmt.Errorf("cannot give back port %d: %w", r.port, closed)
		}
	})
	return err
}
