package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/simgpu"
	"hotseat.dev/hotseat/test/helpers/harness"
)

// patience bounds every wait for something that has to happen. It is no
// measure of speed.
const patience = 5 * time.Minute

// node is a running launcher with two simulated GPUs.
type node struct {
	b       *bench
	url     string
	state   string // folder
	gpus    string // folder of the simulated GPUs
	program *harness.Program
	log     *os.File
	client  *client.Client
	watcher *watcher
}

// newNode starts a launcher with further flags, and waits until it serves.
func (b *bench) newNode(name string, flags ...string) (n *node, err error) {
	addr, err := harness.FreeAddress()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(b.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make a folder: %w", err)
	}
	n = &node{b: b, url: "http://" + addr, state: filepath.Join(dir, "state"), gpus: filepath.Join(dir, "gpus")}
	if n.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return nil, fmt.Errorf("cannot make the log: %w", err)
	}
	args := []string{"serve", "--listen", addr, "--gpus", "simulated:2", "--state-dir", n.state, "--vllm", b.engine, "--front-door="}
	cmd := exec.Command(b.launcher, append(args, flags...)...)
	cmd.Env = append(os.Environ(), simgpu.EnvDir+"="+n.gpus)
	if n.program, err = harness.Start(cmd, n.log); err != nil {
		return nil, errors.Join(err, n.log.Close())
	}
	if n.client, err = client.New(client.Options{Server: n.url}); err != nil {
		return nil, errors.Join(err, n.stop())
	}
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	if err := n.program.AwaitServing(ctx, addr); err != nil {
		text, _ := os.ReadFile(n.log.Name())
		return nil, errors.Join(fmt.Errorf("%w\n%s", err, text), n.stop())
	}
	n.watcher = watch(n.client)
	return n, nil
}

// stop ends the launcher, and with it its engines.
func (n *node) stop() error {
	if n.watcher != nil {
		n.watcher.stop()
	}
	if n.client != nil {
		n.client.Close()
	}
	return errors.Join(n.program.Stop(patience), n.log.Close())
}

func (n *node) pid() int { return n.program.PID() }

// spec describes an instance on one GPU, with more arguments.
func spec(on int, args ...string) launcherapi.InstanceSpec {
	return launcherapi.InstanceSpec{Args: append([]string{"model"}, args...), GPUUUIDs: []string{harness.GPU(on)}}
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
