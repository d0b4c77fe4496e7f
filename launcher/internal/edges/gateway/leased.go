package gateway

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Leased is a port that is kept for an engine, which is to listen there by itself, at an
// address of its choice.
//
// Until [Leased.Yield] a socket that never listens is bound to the port, at every address.
// It shares the port with nobody: not every library of an engine sets SO_REUSEADDR. Until Close a
// socket in the abstract namespace, which is that of the network like the ports, tells the other
// launchers of the machine that the port is leased.
type Leased struct {
	ports *Ports
	port  int

	mu     sync.Mutex
	fd     int          // the socket; -1: the engine has the port, or will have it soon
	claim  net.Listener // tells other launchers; nil: none
	closed bool
}

// Lease keeps a port that no process uses, at any address; 0 means any free port. The error
// is a *PortTakenError if the port is used or reserved.
func (p *Ports) Lease(port int) (*Leased, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if port == 0 {
		for _, quiet := range quietPorts(kernelPorts()) {
			if l, err := p.lease(quiet); err == nil {
				return l, nil
			}
		}
	}
	return p.lease(port)
}

// lease is Lease for a caller that has the lock; 0 means any free port that the kernel chooses.
func (p *Ports) lease(port int) (*Leased, error) {
	if p.reserved[port] {
		return nil, &PortTakenError{Host: everywhere, Port: port}
	}
	var l *Leased
	err := p.avoidReserved(func() (int, func(), error) {
		fd, bound, err := bindAlone(port)
		l = &Leased{ports: p, port: bound, fd: fd}
		return bound, func() { _ = unix.Close(fd) }, err // never used
	})
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, &PortTakenError{Host: everywhere, Port: port}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot lease a port: %w", err)
	}
	if l.claim, err = claimPort(l.port); err != nil { // another launcher has given it to an engine
		_ = unix.Close(l.fd) // never used
		return nil, &PortTakenError{Host: everywhere, Port: l.port}
	}
	p.reserved[l.port] = true
	return l, nil
}

// claimPort tells the other launchers of the machine that a port is leased. The error says that
// one of them has leased it.
func claimPort(port int) (net.Listener, error) {
	return new(net.ListenConfig).Listen(context.Background(), "unix", fmt.Sprintf("@hotseat-leased-port-%d", port))
}

// Quiet ports are those that are leased first. No well-known program has its default among them;
// those of torch are 29500 and 29501.
const (
	firstQuiet = 20000
	lastQuiet  = 28999
	quietTries = 32
)

// quietPorts returns some ports that the kernel does not choose by itself, neither for a program
// that asks for any free port nor for a connection: between Yield and the moment at which the
// engine listens, which may be a minute later, nobody gets such a port by chance. The kernel
// chooses ports from low to high.
func quietPorts(low, high int) []int {
	var ports []int
	for range quietTries {
		if port := firstQuiet + rand.IntN(lastQuiet-firstQuiet+1); port < low || port > high {
			ports = append(ports, port)
		}
	}
	return ports
}

// kernelPorts returns the range of ports from which the kernel chooses (ip(7)). If that is not
// known, it may be any port.
func kernelPorts() (low, high int) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		_, err = fmt.Sscan(string(text), &low, &high)
	}
	if err != nil {
		return 1, 65535
	}
	return low, high
}

// Used keeps the leased port of an engine that outlived an earlier launcher.
func (p *Ports) Used(port int) *Leased {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reserved[port] = true
	claim, _ := claimPort(port) // the engine has the port in any case
	return &Leased{ports: p, port: port, fd: -1, claim: claim}
}

// avoidReserved calls bind until the port that it returns is not reserved: the kernel may choose
// the port of an engine that does not listen yet. The lock is held.
func (p *Ports) avoidReserved(bind func() (port int, undo func(), err error)) error {
	for {
		port, undo, err := bind()
		if err != nil || !p.reserved[port] {
			return err
		}
		defer undo() // not before, or the kernel could choose it again
	}
}

// everywhere stands for all addresses of the machine.
const everywhere = "0.0.0.0"

// bindAlone opens a socket and binds it to a port of every address. Port 0 means any free
// port.
func bindAlone(port int) (fd, bound int, err error) {
	fd, bound, err = bindTo(unix.AF_INET6, &unix.SockaddrInet6{Port: port})
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL) { // the machine has no IPv6
		return bindTo(unix.AF_INET, &unix.SockaddrInet4{Port: port})
	}
	return fd, bound, err
}

func bindTo(domain int, address unix.Sockaddr) (fd, bound int, err error) {
	fd, err = unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, 0, err
	}
	if domain == unix.AF_INET6 {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
	}
	if err == nil {
		err = unix.Bind(fd, address)
	}
	var name unix.Sockaddr
	if err == nil {
		name, err = unix.Getsockname(fd)
	}
	if err != nil {
		_ = unix.Close(fd) // never used
		return -1, 0, err
	}
	switch name := name.(type) {
	case *unix.SockaddrInet6:
		return fd, name.Port, nil
	case *unix.SockaddrInet4:
		return fd, name.Port, nil
	}
	_ = unix.Close(fd) // never used
	return -1, 0, net.UnknownNetworkError(fmt.Sprintf("%T", name))
}

// Port returns the port's number.
func (l *Leased) Port() int { return l.port }

// Yield gives the port to the engine. Call it when the engine is about to start. The launcher
// gives the port to nobody else until Close.
func (l *Leased) Yield() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closeSocket()
}

// closeSocket closes the socket, if it is open. The lock is held.
func (l *Leased) closeSocket() error {
	if l.fd < 0 {
		return nil
	}
	fd := l.fd
	l.fd = -1
	if err := unix.Close(fd); err != nil {
		return fmt.Errorf("cannot give away port %d: %w", l.port, err)
	}
	return nil
}

// Close ends the lease. A second call does nothing.
func (l *Leased) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	l.ports.mu.Lock()
	defer l.ports.mu.Unlock()
	delete(l.ports.reserved, l.port)
	err := l.closeSocket()
	if l.claim != nil {
		err = errors.Join(err, l.claim.Close())
	}
	return err
}
