package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// startLimit bounds the start of a cluster. It is no measure of speed.
const startLimit = 3 * time.Minute

// Init is PID 1 of a cluster: it makes the cluster's network, starts every part,
// and returns only when one of them has ended or could not be started.
func Init(dir string, slotNumber int) error {
	var c Config
	if err := readJSON(filepath.Join(dir, configFile), &c); err != nil {
		return fmt.Errorf("cannot read the cluster's configuration: %w", err)
	}
	net := network{slot: slotNumber}
	if err := isolate("hotseat-cluster"); err != nil {
		return err
	}
	if err := makeBridge(net); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	ended := make(chan error, 16)
	plane, err := c.startControlPlane(ctx, net, ended)
	if err != nil {
		return err
	}
	for number := 1; number <= c.Nodes; number++ {
		if err := c.startNode(net, plane, number, ended); err != nil {
			return err
		}
	}
	if err := c.awaitNodes(ctx, ended); err != nil {
		return err
	}
	var state State
	if err := readJSON(c.path(stateFile), &state); err != nil {
		return fmt.Errorf("cannot read the state of the cluster: %w", err)
	}
	state.Ready = true
	if err := writeJSON(c.path(stateFile), state); err != nil {
		return err
	}
	return <-ended
}

// isolate keeps what this process mounts to itself, and shows the processes of
// its own namespace in /proc.
func isolate(hostname string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot make the mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("cannot mount /proc: %w", err)
	}
	if err := unix.Sethostname([]byte(hostname)); err != nil {
		return fmt.Errorf("cannot set the host's name: %w", err)
	}
	return run("ip", "link", "set", "lo", "up")
}

// makeBridge joins the control plane, the nodes and the machine.
func makeBridge(net network) error {
	if err := runAll(fmt.Sprintf(`
		ip link add bridge type bridge
		ip addr add %s/24 dev bridge
		ip link set bridge up`, net.control())); err != nil {
		return err
	}
	return until(context.Background(), 10*time.Second, nil, "the link to the machine is there", func() error {
		return runAll("ip link set machine master bridge\n ip link set machine up")
	})
}

// controlPlane is what nodes and people need to know of the control plane.
type controlPlane struct {
	net  network
	keys *keys
}

func (c Config) startControlPlane(ctx context.Context, net network, ended chan error) (*controlPlane, error) {
	keys, err := newKeys(c.path("keys"), net, c.Nodes)
	if err != nil {
		return nil, err
	}
	for file, user := range map[string]string{kubeconfigFile: userAdmin, "controller-manager.kubeconfig": userControllerManager, "scheduler.kubeconfig": userScheduler, "proxy.kubeconfig": userProxy} {
		if err := keys.kubeconfig(c.path(file), net.server(), user); err != nil {
			return nil, err
		}
	}
	for name, args := range map[string][]string{
		"etcd":                    c.etcd(),
		"kube-apiserver":          c.apiServer(net, keys),
		"kube-controller-manager": c.controllerManager(keys),
		"kube-scheduler":          c.scheduler(),
	} {
		if c.Nodes == 0 && (name == "kube-scheduler" || name == "kube-controller-manager") {
			continue // the API alone
		}
		p, err := c.start(name, nil, c.Kube, append([]string{name}, args...)...)
		if err != nil {
			return nil, err
		}
		go p.wait(ended)
	}
	plane := &controlPlane{net: net, keys: keys}
	return plane, plane.awaitAPI(ctx, ended)
}

const etcdURL = "http://127.0.0.1:2379"

func (c Config) etcd() []string {
	return []string{
		"--data-dir=" + c.path("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=" + etcdURL, "--advertise-client-urls=" + etcdURL,
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380", "--initial-cluster=default=http://127.0.0.1:2380",
	}
}

func (c Config) apiServer(net network, keys *keys) []string {
	args := []string{
		"--etcd-servers=" + etcdURL, "--bind-address=" + net.control(), "--advertise-address=" + net.control(), "--secure-port=6443",
		"--tls-cert-file=" + keys.file("apiserver.crt"), "--tls-private-key-file=" + keys.file("apiserver.key"), "--cert-dir=" + keys.dir,
		"--client-ca-file=" + keys.file("ca.crt"), "--token-auth-file=" + keys.file("tokens.csv"),
		"--kubelet-client-certificate=" + keys.file("kubelet-client.crt"), "--kubelet-client-key=" + keys.file("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-key-file=" + keys.file("service-account.key"), "--service-account-signing-key-file=" + keys.file("service-account.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--service-cluster-ip-range=" + services,
	}
	if c.Nodes == 0 {
		args = append(args, "--endpoint-reconciler-type=none", "--disable-admission-plugins=ServiceAccount")
	}
	return args
}

func (c Config) controllerManager(keys *keys) []string {
	config := c.path("controller-manager.kubeconfig")
	return []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--authentication-tolerate-lookup-failure=true", "--leader-elect=false", "--bind-address=127.0.0.1", "--cert-dir=" + keys.dir,
		"--use-service-account-credentials=true", "--service-account-private-key-file=" + keys.file("service-account.key"), "--root-ca-file=" + keys.file("ca.crt"),
		"--controllers=*,-bootstrap-signer-controller,-token-cleaner-controller",
	}
}

func (c Config) scheduler() []string {
	config := c.path("scheduler.kubeconfig")
	return []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--authentication-tolerate-lookup-failure=true", "--leader-elect=false", "--bind-address=127.0.0.1",
	}
}

// awaitAPI waits until the API server says that it is ready.
func (p *controlPlane) awaitAPI(ctx context.Context, ended <-chan error) error {
	roots := x509.NewCertPool()
	roots.AddCert(p.keys.ca)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}, Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	return until(ctx, startLimit, ended, "the API server is ready", func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.net.server()+"/readyz", nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+p.keys.tokens[userAdmin])
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("it answers %s", resp.Status)
		}
		return nil
	})
}

// awaitNodes waits until every node is ready.
func (c Config) awaitNodes(ctx context.Context, ended <-chan error) error {
	for number := 1; number <= c.Nodes; number++ {
		name := "node/" + nodeName(number)
		for _, condition := range []string{"create", "condition=Ready"} {
			if err := until(ctx, startLimit, ended, name+" is ready", func() error {
				return run(c.Kube, "kubectl", "--kubeconfig="+c.path(kubeconfigFile), "wait", "--for="+condition, name, "--timeout=10s")
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// until tries again every few milliseconds until there is no error, a part of
// the cluster ends, or limit is over.
func until(ctx context.Context, limit time.Duration, ended <-chan error, what string, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case end := <-ended:
			return end
		case <-ctx.Done():
			return fmt.Errorf("it did not come true within %s that %s: %w", limit, what, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// exists says whether a file is there.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
