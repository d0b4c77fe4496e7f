package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Parts that [Cluster.Stop] can end: of the control plane, and of each node.
const (
	APIServer = "kube-apiserver"
	Etcd      = "etcd"
	Kubelet   = "kubelet"    // of a node
	Proxy     = "kube-proxy" // of a node
)

// PartOf is a part of a node, for [Cluster.Stop]. Nodes count from 1.
func PartOf(node int, part string) string { return NodeName(node) + "-" + part }

func (c *Cluster) pidFile(part string) string  { return c.path("pid-" + part) }
func (c *Cluster) stopFile(part string) string { return c.path("stopped-" + part) }

// Stop ends a part by SIGKILL and returns when it is gone. It stays away until
// start, which does not wait until the part answers again.
func (c *Cluster) Stop(ctx context.Context, part string) (start func() error, err error) {
	var pid int
	if err := readJSON(c.pidFile(part), &pid); err != nil {
		return nil, fmt.Errorf("cluster %s has no part %s that runs: %w", c.Name, part, err)
	}
	if err := os.WriteFile(c.stopFile(part), nil, 0o600); err != nil {
		return nil, fmt.Errorf("cannot keep %s away: %w", part, err)
	}
	start = func() error { return os.Remove(c.stopFile(part)) }
	if err := c.killPart(ctx, part, pid); err != nil {
		return nil, errors.Join(err, start())
	}
	for {
		if _, err := os.Stat(c.pidFile(part)); errors.Is(err, fs.ErrNotExist) {
			return start, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("%s does not go away: %w", part, context.Cause(ctx)), start())
		case <-time.After(partPause):
		}
	}
}

// killPart ends the process of a part, whose number is that of the namespace
// which it was started in: its node's, or the keeper's.
func (c *Cluster) killPart(ctx context.Context, part string, pid int) error {
	kill := fmt.Sprintf("kill -KILL %d", pid)
	cmd := exec.CommandContext(ctx, "nsenter", fmt.Sprintf("--pid=/proc/%d/ns/pid_for_children", c.Keeper), "--", "sh", "-c", kill)
	for node := 1; node <= c.Nodes; node++ {
		if strings.HasPrefix(part, NodeName(node)+"-") {
			var err error
			if cmd, err = c.InNode(ctx, node, "sh", "-c", kill); err != nil {
				return err
			}
		}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot end %s, process %d: %w: %s", part, pid, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// partPause is how often the other side's files are looked for.
const partPause = 20 * time.Millisecond

// stopped says that a part is to stay away.
func (c *Cluster) stopped(part string) bool {
	_, err := os.Stat(c.stopFile(part))
	return err == nil
}

// launchAgain says that a part is gone, and starts it once it may come back.
func (c *Cluster) launchAgain(part string, cmd *exec.Cmd) error {
	if err := os.Remove(c.pidFile(part)); err != nil {
		return fmt.Errorf("cannot say that %s is gone: %w", part, err)
	}
	for c.stopped(part) {
		<-time.After(partPause)
	}
	return c.launch(part, cmd)
}
