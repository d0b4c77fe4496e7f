package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Server is the API server in the cluster's network.
const Server = "https://" + control + ":6443"

// Addresses; see the package's comment.
const (
	control    = "10.100.0.1"
	podRange   = "10.101.0.0/16"
	services   = "10.96.0.0/16"
	apiService = "10.96.0.1" // the service kubernetes.default
)

func nodeAddress(number int) string { return fmt.Sprintf("10.100.1.%d", number) }

func podsOf(number int) string { return fmt.Sprintf("10.101.%d.0/24", number) }

// makeBridge joins the control plane and the nodes.
func makeBridge(nodes int) error {
	var lines strings.Builder
	fmt.Fprintf(&lines, "ip link add bridge type bridge\nip addr add %s/16 dev bridge\nip link set bridge up\n", control)
	for number := 1; number <= nodes; number++ {
		fmt.Fprintf(&lines, "ip route add %s via %s\n", podsOf(number), nodeAddress(number))
	}
	if nodes > 0 {
		fmt.Fprintf(&lines, "ip route add %s via %s\n", services, nodeAddress(1)) // whose kube-proxy knows them
	}
	return runAll(lines.String())
}

// joinBridge makes the link between the bridge and a node, whose PID 1 is given.
func joinBridge(number, pid int) error {
	return runAll(fmt.Sprintf(`
		ip link add %[1]s type veth peer name eth0 netns %[2]d
		ip link set %[1]s master bridge
		ip link set %[1]s up`, NodeName(number), pid))
}

// takeAddress gives a node its address and the ways to the others' Pods. There
// is no way out of the cluster.
func takeAddress(number, nodes int) error {
	var lines strings.Builder
	fmt.Fprintf(&lines, "ip addr add %s/16 dev eth0\nip link set eth0 up\n", nodeAddress(number))
	for other := 1; other <= nodes; other++ {
		if other != number {
			fmt.Fprintf(&lines, "ip route add %s via %s\n", podsOf(other), nodeAddress(other))
		}
	}
	// The kernel looks for a route before kube-proxy's rules say where a service is.
	fmt.Fprintf(&lines, "ip route add %s via %s\n", services, control)
	if err := runAll(lines.String()); err != nil {
		return err
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return fmt.Errorf("cannot let the node forward: %w", err)
	}
	return nil
}

// forward joins each connection to listener with one to the API server. The
// listener is in the network of the machine, the API server in this process's.
func forward(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer client.Close()
			api, err := net.Dial("tcp", control+":6443")
			if err != nil {
				return // the client sees its connection end
			}
			defer api.Close()
			var both sync.WaitGroup
			both.Go(func() { pass(api, client) })
			both.Go(func() { pass(client, api) })
			both.Wait()
		}()
	}
}

// pass copies until from ends, and lets to know.
func pass(to, from net.Conn) {
	_, _ = io.Copy(to, from)           // either side can go at any time
	_ = to.(*net.TCPConn).CloseWrite() // it may be closed already
}

// InNetwork gives a command that runs a program of this machine in the network
// of the control plane: it sees the machine's files and processes, but all its
// addresses are the cluster's.
func (c *Cluster) InNetwork(ctx context.Context, program string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{fmt.Sprintf("--net=/proc/%d/ns/net", c.Keeper), "--", program}, args...)...)
}

// Dial connects to an address of the cluster's network, such as a Pod's or a
// service's, as [net.Dial] would from the control plane. address must be numeric.
func (c *Cluster) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return inside(c, func() (net.Conn, error) { return new(net.Dialer).DialContext(ctx, network, address) })
}

// Listen gives a listener at a free port of the control plane, whose address
// Pods can reach.
func (c *Cluster) Listen(ctx context.Context) (net.Listener, error) {
	return inside(c, func() (net.Listener, error) { return new(net.ListenConfig).Listen(ctx, "tcp", control+":0") })
}

// inside makes a socket in the cluster's network.
func inside[T any](c *Cluster, open func() (T, error)) (T, error) {
	type answer struct {
		socket T
		err    error
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", c.Keeper))
	if err != nil {
		return answer{}.socket, fmt.Errorf("cannot find the network of cluster %s: %w", c.Name, err)
	}
	defer ns.Close()
	answers := make(chan answer, 1)
	go func() {
		// The thread ends with the goroutine, since it is never unlocked: no
		// other goroutine can find itself in the cluster's network.
		runtime.LockOSThread()
		var a answer
		if a.err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); a.err == nil {
			a.socket, a.err = open()
		}
		answers <- a
	}()
	a := <-answers
	return a.socket, a.err
}
