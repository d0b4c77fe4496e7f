package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// EnvName names the environment variable that says which cluster is meant
// where no name is given.
const EnvName = "HOTSEAT_CLUSTER"

// Options say what a cluster is to be.
type Options struct {
	Name     string    // of the cluster on this machine; empty: what EnvName says, or "default"
	Nodes    int       // at most MaxNodes; 0: the API server alone, without scheduler and controllers
	GPUs     int       // simulated ones on each node, at most MaxGPUs
	Detached bool      // the cluster outlives the caller; otherwise it ends with the caller, however that ends
	Progress io.Writer // is told when Kubernetes has to be built; nil: nobody
	// AuditPolicy is the path of an audit policy of the API server, which then
	// writes what the policy asks for to [Cluster.AuditLog]; empty: it writes none.
	AuditPolicy string
	// NetworkPolicies has every node enforce NetworkPolicies, which otherwise mean
	// nothing here. It takes the Debian packages iptables and ipset.
	NetworkPolicies bool
	// PodGroups has Kubernetes' own scheduler place the Pods of PodGroups together, by the feature
	// gate GenericWorkload.
	PodGroups bool
	// ProxyMinSync is the least time between two of kube-proxy's changes of its rules, such as
	// 10ms; empty: kube-proxy's default.
	ProxyMinSync string
}

// The most that Options can ask for.
const (
	MaxNodes = 16
	MaxGPUs  = 64
)

// Cluster is a running cluster.
type Cluster struct {
	Name   string `json:"name"`
	Nodes  int    `json:"nodes"`
	GPUs   int    `json:"gpus"`   // on each node
	Keeper int    `json:"keeper"` // process number on this machine

	Kube      string `json:"kube"`                 // the program that holds all of Kubernetes
	Port      int    `json:"port"`                 // of the API server on 127.0.0.1
	NodePIDs  []int  `json:"node_pids"`            // PID 1 of each node, as the keeper sees it
	Held      bool   `json:"held"`                 // ends with the process that started it
	Audit     string `json:"audit,omitempty"`      // policy of the API server's audit log
	PodGroups bool   `json:"pod_groups,omitempty"` // see Options
	Router    string `json:"router,omitempty"`     // the program kube-router, where NetworkPolicies are enforced

	ProxyMinSync string `json:"proxy_min_sync,omitempty"` // as in Options
	// ProxyStays says that kube-proxy goes on when its node is deleted, as before Kubernetes 1.37
	// (pkg/proxy/node.go, OnNodeDelete).
	ProxyStays bool `json:"proxy_stays,omitempty"`

	cmd *exec.Cmd // the keeper, of a cluster that this process started
}

func (c *Cluster) path(elements ...string) string {
	return filepath.Join(append([]string{base, c.Name}, elements...)...)
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.path("kubeconfig") }

// Bin is a folder that holds kubectl.
func (c *Cluster) Bin() string { return c.path("bin") }

// AuditLog is the path of the API server's audit log: one event a line, as
// k8s.io/apiserver/pkg/apis/audit/v1 has it. It is behind by up to a second.
func (c *Cluster) AuditLog() string { return c.path("log", "audit.log") }

// Environ is what a program that is to use the cluster finds in its environment.
func (c *Cluster) Environ() []string {
	return append(c.caches(), EnvName+"="+c.Name, "KUBECONFIG="+c.Kubeconfig(), "PATH="+c.Bin()+":"+os.Getenv("PATH"))
}

// caches is this process' environment, with what kubectl and helm remember of an
// API server kept with the cluster: in the home of the user, where they have that
// else, it would stay.
// (https://kubernetes.io/docs/reference/kubectl/kubectl/#environment-variables, https://helm.sh/docs/helm/helm/)
func (c *Cluster) caches() []string {
	of := func(variable, folder string) string { return variable + "=" + c.path("cache", folder) }
	return append(os.Environ(), of("KUBECACHEDIR", "kubectl"), of("HELM_CACHE_HOME", "helm"), of("HELM_CONFIG_HOME", "helm-config"), of("HELM_DATA_HOME", "helm-data"))
}

// NodeName is the name of a node, from 1 on.
func NodeName(number int) string { return fmt.Sprintf("node-%d", number) }

// Kubectl runs kubectl as the administrator and gives its standard output.
// stdin can be nil.
func (c *Cluster) Kubectl(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	return c.client(ctx, "kubectl", stdin, args)
}

// Helm runs helm (https://helm.sh) as the administrator and gives its standard
// output.
func (c *Cluster) Helm(ctx context.Context, args ...string) ([]byte, error) {
	return c.client(ctx, "helm", nil, args)
}

// client runs one of the programs that talk to the API server.
func (c *Cluster) client(ctx context.Context, name string, stdin io.Reader, args []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(c.Bin(), name), append([]string{"--kubeconfig=" + c.Kubeconfig()}, args...)...)
	cmd.Stdin, cmd.Env = stdin, append(c.caches(), "GOGC=off", "GOMEMLIMIT=512MiB") // it ends before a collection pays
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, exit.Stderr)
	}
	return out, err
}

var goodName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,30}$`)

func nameOf(name string) (string, error) {
	name = cmp.Or(name, os.Getenv(EnvName), "default")
	if !goodName.MatchString(name) {
		return "", fmt.Errorf("%q cannot be the name of a cluster: use at most 31 of a-z, 0-9 and -", name)
	}
	return name, nil
}

func (o Options) cluster() (*Cluster, error) {
	name, err := nameOf(o.Name)
	switch {
	case err != nil:
		return nil, err
	case o.Nodes < 0 || o.Nodes > MaxNodes:
		return nil, fmt.Errorf("a cluster cannot have %d nodes: ask for 0 to %d", o.Nodes, MaxNodes)
	case o.GPUs < 0 || o.GPUs > MaxGPUs:
		return nil, fmt.Errorf("a node cannot have %d GPUs: ask for 0 to %d", o.GPUs, MaxGPUs)
	}
	c := &Cluster{Name: name, Nodes: o.Nodes, GPUs: o.GPUs, Held: !o.Detached, PodGroups: o.PodGroups, ProxyMinSync: o.ProxyMinSync}
	if o.AuditPolicy != "" {
		if c.Audit, err = filepath.Abs(o.AuditPolicy); err != nil {
			return nil, fmt.Errorf("cannot find the audit policy: %w", err)
		}
	}
	return c, checkMachine(o.Nodes > 0, o.NetworkPolicies)
}

// Up starts a cluster and returns when its API server and every node are ready.
// The caller ends it with [Cluster.Down]. It takes root, a working folder inside
// this repository, and for nodes some Debian packages, which an error names.
func Up(ctx context.Context, o Options) (*Cluster, error) {
	c, err := o.cluster()
	if err != nil {
		return nil, err
	}
	if err := Sweep(); err != nil {
		return nil, err
	}
	if err := c.up(ctx, o); err != nil {
		return nil, err
	}
	return c, nil
}

// up starts the cluster. It does not sweep, which could take the folder that another
// cluster of [UpAll] is about to claim.
func (c *Cluster) up(ctx context.Context, o Options) (err error) {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	kubernetes, err := kubernetesOf(os.Getenv(EnvRelease))
	if err != nil {
		return err
	}
	if c.Kube, err = kubernetes.build(ctx, o.Progress); err != nil {
		return err
	}
	c.ProxyStays = proxyStays(kubernetes.release)
	if o.Nodes > 0 {
		allowInotify(inotifyInstances, o.Progress)
	}
	if o.NetworkPolicies {
		if c.Router, err = kubeRouter.build(ctx, o.Progress); err != nil {
			return err
		}
	}
	helm, err := helm.build(ctx, o.Progress)
	if err != nil {
		return err
	}
	lock, err := claim(c.Name)
	if err != nil {
		return err
	}
	if err := c.start(ctx, lock, helm); err != nil {
		if c.cmd != nil && c.cmd.Process != nil {
			_ = c.cmd.Process.Kill() // it may have ended by itself
			_ = c.cmd.Wait()         // it was killed
		}
		return errors.Join(err, removeAll(c.Name), lock.Close())
	}
	return lock.Close() // the keeper has its own copy
}

// start starts the keeper and waits until it says that the cluster is ready.
func (c *Cluster) start(ctx context.Context, lock *os.File, helm string) error {
	if err := buildPrograms(ctx, c.Bin(), map[string]string{"kubectl": c.Kube, "helm": helm}); err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("cannot listen for the API server: %w", err)
	}
	defer listener.Close()
	socket, err := listener.(*net.TCPListener).File()
	if err != nil {
		return fmt.Errorf("cannot listen for the API server: %w", err)
	}
	defer socket.Close()
	c.Port = listener.Addr().(*net.TCPAddr).Port
	if err := writeJSON(c.path("cluster.json"), c); err != nil {
		return err
	}
	ready, err := c.startKeeper(lock, socket)
	if err != nil {
		return err
	}
	defer ready.Close()
	defer context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Now()) })()
	if err := json.NewDecoder(ready).Decode(&c.NodePIDs); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("the cluster did not become ready: %w", context.Cause(ctx))
		}
		return fmt.Errorf("cannot start the cluster: %s", tail(c.path("log", "keeper.log")))
	}
	return writeJSON(c.path("cluster.json"), c)
}

// startKeeper gives the pipe on which the keeper says that the cluster is ready.
func (c *Cluster) startKeeper(lock, socket *os.File) (*os.File, error) {
	log, err := c.log("keeper")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	ready, said, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer said.Close()
	c.cmd = exec.Command(filepath.Join(c.Bin(), "cluster"), "keep", c.Name)
	c.cmd.Stdout, c.cmd.Stderr, c.cmd.Dir = said, log, "/"
	c.cmd.ExtraFiles = []*os.File{socket, lock}
	c.cmd.SysProcAttr = ownNamespaces()
	if c.Held {
		if _, err := c.cmd.StdinPipe(); err != nil { // its other end is open for as long as this process lives
			return nil, errors.Join(err, ready.Close())
		}
	}
	if err := c.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot make the cluster's namespaces: %w", err), ready.Close())
	}
	c.Keeper = c.cmd.Process.Pid
	return ready, nil
}

// ErrNone says that no such cluster runs.
var ErrNone = errors.New("no such cluster runs")

// Find gives the running cluster of a name; an empty name is as in [Options].
func Find(name string) (*Cluster, error) {
	name, err := nameOf(name)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Name: name}
	lock, err := lockFolder(c.path())
	if !errors.Is(err, unix.EWOULDBLOCK) {
		if err == nil {
			err = lock.Close()
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %s (make cluster-up starts one)", ErrNone, name)
		}
		return nil, err
	}
	if err := readJSON(c.path("cluster.json"), c); err != nil || c.Keeper == 0 {
		return nil, fmt.Errorf("cluster %s is not ready yet: %w", name, errors.Join(err, ErrNone))
	}
	return c, nil
}

// Down ends the cluster and removes all that is left of it, and of others whose
// keeper is gone.
func (c *Cluster) Down() error {
	err := c.kill()
	if c.cmd != nil {
		_ = c.cmd.Wait() // it was killed
	}
	return errors.Join(err, Sweep())
}

// kill ends the keeper, and waits until the kernel has ended all else.
func (c *Cluster) kill() error {
	fd, err := unix.PidfdOpen(c.Keeper, 0)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot end the cluster: %w", err)
	}
	defer func() { _ = unix.Close(fd) }() // it was only waited for
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("cannot end the cluster: %w", err)
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 30_000)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err == nil && n == 0 {
			err = errors.New("it is not gone after half a minute")
		}
		if err != nil {
			return fmt.Errorf("cannot end the cluster's keeper, process %d: %w", c.Keeper, err)
		}
		return nil
	}
}
