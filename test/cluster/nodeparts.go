package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"hotseat.dev/hotseat/deploy/images"
)

// startContainerd starts containerd, which keeps its files in /var/lib/containerd
// and listens in /run/containerd, as it does by default.
func (n *node) startContainerd() error {
	config := fmt.Sprintf(`version = 2
disabled_plugins = ["io.containerd.internal.v1.restart", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  disable_apparmor = true
  restrict_oom_score_adj = true # or no sandbox starts without CAP_SYS_RESOURCE
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
`, pauseImage, cniDir, n.path("cni"))
	if err := os.WriteFile(n.path("containerd.toml"), []byte(config), 0o644); err != nil {
		return fmt.Errorf("cannot write containerd's configuration: %w", err)
	}
	if err := n.writeCNI(); err != nil {
		return err
	}
	if err := n.begin(n.ended, n.name()+"-containerd", exec.Command("containerd", "--config", n.path("containerd.toml"))); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	return until(ctx, n.ended, "containerd answers", func() error { return run("ctr", "version") })
}

// writeCNI gives each Pod an address of the node's range on a bridge.
func (n *node) writeCNI() error {
	if err := os.MkdirAll(n.path("cni"), 0o755); err != nil {
		return fmt.Errorf("cannot make the folder of CNI's configuration: %w", err)
	}
	return writeJSON(n.path("cni", "pods.conflist"), map[string]any{
		"cniVersion": "0.4.0", "name": "pods",
		"plugins": []any{map[string]any{
			"type": "bridge", "bridge": "pods", "isDefaultGateway": true, "hairpinMode": true,
			"ipam": map[string]any{"type": "host-local", "ranges": []any{[]any{map[string]any{"subnet": podsOf(n.number)}}}},
		}},
	})
}

func (n *node) importPause() error {
	archive := n.path("pause.tar")
	pause := images.Image{Files: map[string]string{"/pause": filepath.Join(n.Bin(), "pause")}}
	if err := writeImage(archive, pauseImage, pause); err != nil {
		return err
	}
	return run("ctr", importArgs(archive)...)
}

func (n *node) startProxy() error {
	rules := map[string]any{}
	if n.ProxyMinSync != "" {
		rules["minSyncPeriod"] = n.ProxyMinSync
	}
	err := writeJSON(n.path("proxy.yaml"), map[string]any{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "nftables", "nftables": rules, "clusterCIDR": podRange,
		"clientConnection": map[string]any{"kubeconfig": n.Cluster.path("keys", "proxy")}, "hostnameOverride": n.name(),
		// The sizes of the connection table are the machine's.
		"conntrack": map[string]any{"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
	})
	if err != nil {
		return err
	}
	return n.beginAgain(n.ended, PartOf(n.number, Proxy), n.kube(Proxy, "--config="+n.path("proxy.yaml")), n.registerAgain)
}

func (n *node) startKubelet() error {
	err := writeJSON(n.path("kubelet.yaml"), map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock", "volumePluginDir": "/var/lib/kubelet/volume-plugins",
		"cgroupDriver": "cgroupfs", "cgroupRoot": "/" + n.group(), "enforceNodeAllocatable": []string{"pods"},
		"nodeStatusUpdateFrequency": "1s", // or the GPUs show after ten
		"nodeStatusReportFrequency": "5m", // what has not changed: as by default, and not each second
		"failCgroupV1":              false, "failSwapOn": false, "makeIPTablesUtilChains": false, "resolvConf": "", "maxPods": 200,
		"clusterDNS":                  []string{control},                     // which refuses: names fail at once
		"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99, // images come from no registry
		"evictionHard":   map[string]string{"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%", "nodefs.inodesFree": "0%"},
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true}, "x509": map[string]any{"clientCAFile": n.Cluster.path("keys", "ca.crt")}},
		"authorization":  map[string]any{"mode": "Webhook"},
	})
	if err != nil {
		return err
	}
	kubelet := n.kube(Kubelet, "--config="+n.path("kubelet.yaml"), "--kubeconfig="+n.path("kubeconfig"),
		"--hostname-override="+n.name(), "--node-ip="+nodeAddress(n.number), "--cert-dir="+n.path("kubelet-keys"))
	return n.beginAgain(n.ended, PartOf(n.number, Kubelet), kubelet, n.deleted)
}

// startRouter starts what enforces NetworkPolicies: kube-router
// (https://www.kube-router.io), which could be more than this firewall. It ends where
// the API server does not know the node yet.
func (n *node) startRouter() error {
	if n.Router == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	err := until(ctx, n.ended, "the API server knows the node", func() error {
		return run(filepath.Join(n.Bin(), "kubectl"), "--kubeconfig="+n.path("kubeconfig"), "get", "node", n.name())
	})
	if err != nil {
		return err
	}
	return n.begin(n.ended, n.name()+"-kube-router", exec.Command(n.Router, "--run-firewall=true", "--run-router=false", "--run-service-proxy=false",
		"--kubeconfig="+n.Cluster.path("keys", "router"), "--hostname-override="+n.name()))
}

// inNode is how a command is run in the namespaces of a node.
func (c *Cluster) inNode(number int) ([]string, error) {
	if number < 1 || number > len(c.NodePIDs) {
		return nil, fmt.Errorf("cluster %s has no node %d: it has %d", c.Name, number, len(c.NodePIDs))
	}
	// The keeper's /proc shows the node's PID 1 by the number that the keeper knows.
	at := fmt.Sprintf("/proc/%d/root/proc/%d/ns/", c.Keeper, c.NodePIDs[number-1])
	return []string{"nsenter", "--mount=" + at + "mnt", "--pid=" + at + "pid", "--net=" + at + "net", "--uts=" + at + "uts", "--ipc=" + at + "ipc", "--"}, nil
}

// InNode gives a command that runs a program of this machine as the node sees
// the machine: its files, network and processes. Nodes count from 1.
func (c *Cluster) InNode(ctx context.Context, number int, program string, args ...string) (*exec.Cmd, error) {
	enter, err := c.inNode(number)
	if err != nil {
		return nil, err
	}
	args = append(append(enter[1:], program), args...)
	return exec.CommandContext(ctx, enter[0], args...), nil
}
