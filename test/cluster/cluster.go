package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Cluster is a running cluster.
type Cluster struct {
	Config
	State
}

// Kubeconfig is the path of the administrator's.
func (c *Cluster) Kubeconfig() string { return c.path(kubeconfigFile) }

// Kubectl runs kubectl as the administrator and gives its standard output.
func (c *Cluster) Kubectl(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, c.Kube, append([]string{"kubectl", "--kubeconfig=" + c.Kubeconfig()}, args...)...)
	cmd.Stdin = stdin
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("kubectl: %w: %s", err, exit.Stderr)
	}
	return out, err
}

// Up starts a cluster whose keeper outlives the caller, or, with held, one that
// ends with the caller, however the caller ends. program is test/cluster/cmd/cluster
// as it was built. Up returns once every node is ready.
func Up(ctx context.Context, program string, config Config, held bool) (*Cluster, error) {
	if err := os.MkdirAll(config.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the cluster's folder: %w", err)
	}
	if running, err := Find(config.Dir); err == nil {
		return nil, fmt.Errorf("a cluster runs in %s already, kept by process %d: end it first", config.Dir, running.Keeper)
	}
	if err := errors.Join(os.RemoveAll(config.path(stateFile)), os.RemoveAll(config.path("log"))); err != nil {
		return nil, fmt.Errorf("cannot clear the folder of an earlier cluster: %w", err)
	}
	if err := writeJSON(config.path(configFile), config); err != nil {
		return nil, err
	}
	log, err := config.log("keeper")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	args := []string{"keep", config.Dir}
	if held {
		args = append(args, "--held")
	}
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if held {
		// The write end is open for as long as this process lives.
		if _, err := cmd.StdinPipe(); err != nil {
			return nil, err
		}
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the cluster's keeper: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return await(ctx, config, cmd.Process, ended)
}

// await waits until the cluster is ready. A cluster that does not become ready
// is ended.
func await(ctx context.Context, config Config, keeper *os.Process, ended <-chan error) (*Cluster, error) {
	c := &Cluster{Config: config}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := readJSON(config.path(stateFile), &c.State)
		if err == nil && c.Ready {
			return c, nil
		}
		if err == nil && c.Failed != "" {
			<-ended
			return nil, errors.New(c.Failed)
		}
		select {
		case err := <-ended:
			said, _ := os.ReadFile(config.path("log", "keeper.log"))
			return nil, fmt.Errorf("the cluster's keeper ended: %w\n%s", err, said)
		case <-ctx.Done():
			_ = keeper.Signal(syscall.SIGTERM) // it may have ended by itself
			<-ended
			return nil, fmt.Errorf("the cluster was not ready: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// ErrNone says that no cluster runs in a folder.
var ErrNone = errors.New("no cluster runs here")

// Find gives the cluster that runs in a folder.
func Find(dir string) (*Cluster, error) {
	c := &Cluster{}
	if err := errors.Join(readJSON(filepath.Join(dir, configFile), &c.Config), readJSON(filepath.Join(dir, stateFile), &c.State)); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, ErrNone
		}
		return nil, err
	}
	if !kept(c.Keeper, dir) {
		return nil, ErrNone
	}
	return c, nil
}

// kept says whether a process is the keeper of a folder's cluster.
func kept(pid int, dir string) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && containsWord(line, dir)
}

func containsWord(cmdline []byte, word string) bool {
	for len(cmdline) > 0 {
		n := 0
		for n < len(cmdline) && cmdline[n] != 0 {
			n++
		}
		if string(cmdline[:n]) == word {
			return true
		}
		cmdline = cmdline[min(n+1, len(cmdline)):]
	}
	return false
}

// Down ends the cluster and returns when nothing of it is left but the logs.
func (c *Cluster) Down(ctx context.Context) error {
	if err := syscall.Kill(c.Keeper, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("cannot end the cluster: %w", err)
	}
	for kept(c.Keeper, c.Dir) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the cluster's keeper, process %d, does not end: %w", c.Keeper, context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}
