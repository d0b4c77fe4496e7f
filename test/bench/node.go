package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/simgpu"
)

// patience bounds every wait for something that has to happen. It is no
// measure of speed.
const patience = 5 * time.Minute

// node is a running launcher with two simulated GPUs.
type node struct {
	b       *bench
	url     string
	gpus    string // folder of the simulated GPUs
	cmd     *exec.Cmd
	exited  chan struct{}
	log     *os.File
	client  *client.Client
	watcher *watcher
}

// newNode starts a launcher with further flags, and waits until it serves.
func (b *bench) newNode(name string, flags ...string) (n *node, err error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(b.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make a folder: %w", err)
	}
	n = &node{b: b, url: "http://" + addr, gpus: filepath.Join(dir, "gpus"), exited: make(chan struct{})}
	if n.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return nil, fmt.Errorf("cannot make the log: %w", err)
	}
	args := []string{"serve", "--listen", addr, "--gpus", "simulated:2", "--state-dir", filepath.Join(dir, "state"), "--vllm", b.engine}
	n.cmd = exec.Command(b.launcher, append(args, flags...)...)
	n.cmd.Env = append(os.Environ(), simgpu.EnvDir+"="+n.gpus)
	n.cmd.Stdout, n.cmd.Stderr = n.log, n.log
	if err := n.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot start the launcher: %w", err), n.log.Close())
	}
	go func() {
		_ = n.cmd.Wait() // how it ended is in ProcessState
		close(n.exited)
	}()
	if n.client, err = client.New(client.Options{Server: n.url}); err != nil {
		return nil, errors.Join(err, n.stop())
	}
	if err := n.awaitServing(); err != nil {
		return nil, errors.Join(err, n.stop())
	}
	n.watcher = watch(n.client)
	return n, nil
}

func (n *node) awaitServing() error {
	err := eventually(n.b.ctx, "the launcher serves", func() (bool, error) {
		select {
		case <-n.exited:
			text, _ := os.ReadFile(n.log.Name())
			return false, fmt.Errorf("the launcher ended: %s\n%s", n.cmd.ProcessState, text)
		default:
		}
		return n.client.Health(n.b.ctx) == nil, nil
	})
	if err != nil {
		return fmt.Errorf("cannot start the launcher: %w", err)
	}
	return nil
}

// stop ends the launcher, and with it its engines.
func (n *node) stop() error {
	if n.watcher != nil {
		n.watcher.stop()
	}
	if n.client != nil {
		n.client.Close()
	}
	var err error
	_ = n.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-n.exited:
	case <-late.C:
		err = errors.Join(errors.New("the launcher does not end"), n.cmd.Process.Kill())
		<-n.exited
	}
	return errors.Join(err, n.log.Close())
}

func (n *node) pid() int { return n.cmd.Process.Pid }

// gpu is the UUID of a simulated GPU.
func gpu(n int) string { return fmt.Sprintf("GPU-00000000-0000-0000-0000-%012x", n) }

// spec describes an instance on one GPU, with more arguments.
func spec(on int, args ...string) launcherapi.InstanceSpec {
	return launcherapi.InstanceSpec{Args: append([]string{"model"}, args...), GPUUUIDs: []string{gpu(on)}}
}

// awake makes an instance and waits until it is awake.
func (n *node) awake(id string, s launcherapi.InstanceSpec) (launcherapi.Instance, error) {
	made, err := n.client.Create(n.b.ctx, id, s)
	if err != nil {
		return made, err
	}
	_, err = n.watcher.await(n.b.ctx, id, "awake")
	return made, err
}

// enginePort is where the engine of an instance listens, behind its public
// port: its own command line says it.
func enginePort(pid int) (int, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return 0, fmt.Errorf("cannot read the engine's command line: %w", err)
	}
	args := strings.Split(string(data), "\x00")
	for i, arg := range args {
		if arg == "--port" && i+1 < len(args) {
			return strconv.Atoi(args[i+1])
		}
		if v, ok := strings.CutPrefix(arg, "--port="); ok {
			return strconv.Atoi(v)
		}
	}
	return 0, fmt.Errorf("no --port in %q", args)
}

// metric reads one number of the launcher's metrics.
func (n *node) metric(name string) (int, error) {
	text, err := n.client.Metrics(n.b.ctx)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			f, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return int(f), err
		}
	}
	return 0, fmt.Errorf("there is no metric %s", name)
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("cannot find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// eventually asks every few milliseconds until done says true.
func eventually(ctx context.Context, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("it never came true that %s: %w", what, ctx.Err())
		}
	}
}

// ask makes a call and drops the answer, which has to be a 200.
func ask(ctx context.Context, c *http.Client, method, url string) error {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	return finish(resp)
}
