package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// loopback is the address that engines listen on.
const loopback = "127.0.0.1"

// Ports hands out the loopback ports that engines listen on, and leased ports ([Ports.Lease]).
//
// A reservation is a socket that is bound to the port and never listens. vLLM binds
// with SO_REUSEADDR, and with SO_REUSEPORT as well when it has several API servers
// (create_server_socket in vllm/entrypoints/launchers/launcher.py, 0.30.0). The
// reserving socket gets both options after it was bound. So the engine can bind the
// port too, and the kernel gives the port to no other program that asks for any free
// one. The kernel delivers connections to listening sockets only, so all of them
// reach the engine (socket(7); net/ipv4/inet_connection_sock.c).
//
// Both sockets must belong to one user. Before the engine listens, another server of
// that user can bind exactly this port with SO_REUSEADDR. The kernel cannot tell that
// server from the engine.
type Ports struct {
	mu       sync.Mutex
	reserved map[int]bool
}

// NewPorts makes an allocator. A launcher has only one: a second could not tell the
// reservations of the first from sockets of engines.
func NewPorts() *Ports { return &Ports{reserved: map[int]bool{}} }

// Reservation is a port that is kept for one engine, from before the engine's start
// until the engine is gone.
type Reservation struct {
	ports *Ports
	port  int
	fd    int // the reserving socket; -1: the engine alone holds the port
	once  sync.Once
}

// Reserve reserves a port that is free on loopback.
func (p *Ports) Reserve() (*Reservation, error) { return p.bind(0) }

// Claim reserves the port of an engine that outlived an earlier launcher. The engine
// listens there already, or will. If the engine does not share the port, its own
// socket keeps others away. The error is a *PortTakenError when the port is reserved
// already.
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
	var fd, bound int
	err := p.avoidReserved(func() (int, func(), error) {
		unused, port, err := bindShared(port)
		fd, bound = unused, port
		return port, func() { _ = unix.Close(unused) }, err
	})
	if errors.Is(err, unix.EADDRINUSE) && port != 0 {
		fd, bound, err = -1, port, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot reserve a port on %s: %w", loopback, err)
	}
	p.reserved[bound] = true
	return &Reservation{ports: p, port: bound, fd: fd}, nil
}

// listen opens a public port. Package net listens with SO_REUSEADDR, so the kernel
// would let it have a reserved port. Therefore listen checks the reservations, and
// holds the lock so that no new one is made meanwhile.
func (p *Ports) listen(host string, port int) (net.Listener, error) {
	if p == nil {
		return listen(host, port)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reserved[port] {
		return nil, &PortTakenError{Host: host, Port: port}
	}
	var listener net.Listener
	err := p.avoidReserved(func() (int, func(), error) {
		unused, err := listen(host, port)
		if err != nil {
			return 0, nil, err
		}
		listener = unused
		return unused.Addr().(*net.TCPAddr).Port, func() { _ = unused.Close() }, nil // no client has connected
	})
	return listener, err
}

func listen(host string, port int) (net.Listener, error) {
	address := net.JoinHostPort(host, strconv.Itoa(port))
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, &PortTakenError{Host: host, Port: port}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", address, err)
	}
	return listener, nil
}

// bindShared opens a socket and binds it to a loopback port, so that the engine can
// bind the port too. Port 0 means any free port.
func bindShared(port int) (fd, bound int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	if bound, err = bindAndShare(fd, port); err != nil {
		_ = unix.Close(fd) // never used
		return 0, 0, err
	}
	return fd, bound, nil
}

// bindAndShare binds a socket and sets the options that share its port. When the
// kernel chooses the port, the bind comes first: with the options set, the kernel
// might choose a port that is shared already.
func bindAndShare(fd, port int) (bound int, err error) {
	share := func() error {
		return errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	}
	if port != 0 {
		if err := share(); err != nil {
			return 0, err
		}
	}
	address := &unix.SockaddrInet4{Port: port, Addr: [4]byte(net.ParseIP(loopback).To4())}
	if err := unix.Bind(fd, address); err != nil {
		return 0, err
	}
	if port == 0 {
		if err := share(); err != nil {
			return 0, err
		}
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	return name.(*unix.SockaddrInet4).Port, nil
}

// Port returns the port's number.
func (r *Reservation) Port() int { return r.port }

// Close releases the port. Call it when the engine is gone. A second call does
// nothing.
func (r *Reservation) Close() error {
	var err error
	r.once.Do(func() {
		r.ports.mu.Lock()
		defer r.ports.mu.Unlock()
		delete(r.ports.reserved, r.port)
		if r.fd < 0 {
			return
		}
		if closed := unix.Close(r.fd); closed != nil {
			err = fmt.Errorf("cannot give back port %d: %w", r.port, closed)
		}
	})
	return err
}
