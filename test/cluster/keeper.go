package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// startLimit bounds the start of a cluster. It is no measure of speed.
const startLimit = 3 * time.Minute

// keeper is PID 1 of a cluster.
type keeper struct {
	*Cluster
	keys  *keys
	ended chan error  // of a part
	nodes []nodeStart // from node 1 on
}

// nodeStart is a node that is about to start.
type nodeStart struct {
	pid     int
	proceed io.Closer // whose end tells the node that the API server is ready
}

// Keep is the keeper of a cluster, which [Up] starts in namespaces of its own
// with the folder's lock and a socket for the API server. It ends the cluster by
// its own end: when a part of the cluster ends, when it is told to by SIGTERM,
// or, if the cluster is held, when its standard input ends.
func Keep(name string) error {
	for fd := 3; fd <= 4; fd++ {
		unix.CloseOnExec(fd) // Up passed them to the keeper alone
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	k := &keeper{Cluster: &Cluster{Name: name}, ended: make(chan error, 8+MaxNodes)}
	if err := readJSON(k.path("cluster.json"), k.Cluster); err != nil {
		return err
	}
	if k.Held {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // whatever ends it
			stop()
		}()
	}
	if err := k.run(ctx); err != nil {
		return err // whoever called Up, or the next sweep, removes the rest
	}
	if err := unix.Kill(-1, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("cannot end the processes of the cluster: %w", err)
	}
	return removeAll(k.Name)
}

func (k *keeper) run(ctx context.Context) error {
	listener, err := net.FileListener(os.NewFile(3, "socket of the API server"))
	if err != nil {
		return fmt.Errorf("cannot listen for the API server: %w", err)
	}
	defer listener.Close()
	if err := errors.Join(isolate(k.Name), makeBridge(k.Nodes)); err != nil {
		return err
	}
	if k.keys, err = newKeys(k.path("keys"), k.Nodes); err != nil {
		return err
	}
	starting, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := k.startAll(starting); err != nil {
		return err
	}
	go forward(listener)
	pids := []int{}
	for _, node := range k.nodes {
		pids = append(pids, node.pid)
	}
	if err := errors.Join(json.NewEncoder(os.Stdout).Encode(pids), os.Stdout.Close()); err != nil {
		return fmt.Errorf("cannot say that the cluster is ready: %w", err)
	}
	select {
	case err := <-k.ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// startAll starts the nodes beside the control plane; their kubelets wait for
// the API server.
func (k *keeper) startAll(ctx context.Context) error {
	if err := k.startControlPlane(); err != nil {
		return err
	}
	for number := 1; number <= k.Nodes; number++ {
		if err := k.startNode(number); err != nil {
			return err
		}
	}
	api := newAPI(k.keys)
	defer api.CloseIdleConnections()
	if err := until(ctx, k.ended, "the API server is ready", func() error { return api.get("/readyz", nil) }); err != nil {
		return err
	}
	for _, node := range k.nodes {
		if err := node.proceed.Close(); err != nil {
			return fmt.Errorf("cannot let a node go on: %w", err)
		}
	}
	if k.Nodes == 0 {
		return nil
	}
	if err := k.startControllers(); err != nil {
		return err
	}
	for number := 1; number <= k.Nodes; number++ {
		if err := until(ctx, k.ended, NodeName(number)+" is ready", func() error { return api.nodeReady(number, k.GPUs) }); err != nil {
			return err
		}
	}
	return until(ctx, k.ended, "Pods can be made", func() error {
		return api.get("/api/v1/namespaces/default/serviceaccounts/default", nil)
	})
}

// startNode makes a node's namespaces with its PID 1 in them, and joins the node
// to the bridge. The node waits for one byte before it uses its network, and for
// the end of its input before it uses the API server.
func (k *keeper) startNode(number int) error {
	name := NodeName(number)
	if err := os.MkdirAll(k.path(name), 0o755); err != nil {
		return fmt.Errorf("cannot make the folder of %s: %w", name, err)
	}
	if err := k.keys.kubeconfig(k.path(name, "kubeconfig"), Server, "system:node:"+name); err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(k.Bin(), "cluster"), "node", k.Name, strconv.Itoa(number))
	cmd.SysProcAttr = ownNamespaces()
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := k.begin(k.ended, name, cmd); err != nil {
		return err
	}
	k.nodes = append(k.nodes, nodeStart{pid: cmd.Process.Pid, proceed: input})
	if err := joinBridge(number, cmd.Process.Pid); err != nil {
		return err
	}
	if _, err := input.Write([]byte{'\n'}); err != nil {
		return fmt.Errorf("cannot let %s go on: %w", name, err)
	}
	return nil
}
