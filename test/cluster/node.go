package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// startNode makes a node's namespaces with its PID 1 in them, and joins the node
// to the bridge.
func (c Config) startNode(net network, plane *controlPlane, number int, ended chan<- error) error {
	name := nodeName(number)
	if err := os.MkdirAll(c.nodePath(number), 0o755); err != nil {
		return fmt.Errorf("cannot make the folder of %s: %w", name, err)
	}
	if err := plane.keys.kubeconfig(c.nodePath(number, "kubelet.kubeconfig"), net.server(), "system:node:"+name); err != nil {
		return err
	}
	log, err := c.log(name)
	if err != nil {
		return err
	}
	defer log.Close()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find this program: %w", err)
	}
	cmd := exec.Command(self, "node", c.Dir, strconv.Itoa(net.slot), strconv.Itoa(number))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Setsid:     true,
	}
	joined, err := cmd.StdinPipe() // closed once the node has its network
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot make the namespaces of %s: %w", name, err)
	}
	p := &part{name: name, cmd: cmd}
	go p.wait(ended)
	if err := c.join(net, number, cmd.Process.Pid); err != nil {
		return err
	}
	return joined.Close()
}

func (c Config) nodePath(number int, elements ...string) string {
	return c.path(append([]string{"nodes", nodeName(number)}, elements...)...)
}

// join makes the link between a node and the bridge.
func (c Config) join(net network, number, pid int) error {
	return runAll(fmt.Sprintf(`
		ip link add %[1]s type veth peer name eth0 netns %[2]d
		ip link set %[1]s master bridge
		ip link set %[1]s up`, nodeName(number), pid))
}

// Node is PID 1 of a node: it starts the parts of the node, and returns only
// when one of them has ended or could not be started.
func Node(dir string, slotNumber, number int) error {
	var c Config
	if err := readJSON(filepath.Join(dir, configFile), &c); err != nil {
		return fmt.Errorf("cannot read the cluster's configuration: %w", err)
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil { // until the node has its network
		return fmt.Errorf("cannot wait for the network: %w", err)
	}
	n := &node{Config: c, net: network{slot: slotNumber}, number: number, ended: make(chan error, 8)}
	for _, step := range []func() error{n.isolate, n.address, n.makeGroups, n.startContainerd, n.importImages, n.startProxy, n.startKubelet, n.startPlugin} {
		if err := step(); err != nil {
			return err
		}
	}
	return <-n.ended
}

// node is what PID 1 of a node knows.
type node struct {
	Config
	net    network
	number int
	ended  chan error
}

func (n *node) path(elements ...string) string { return n.nodePath(n.number, elements...) }
func (n *node) name() string                   { return nodeName(n.number) }

// Folders that the kubelet and containerd insist on, which each node has for
// itself.
var nodeFolders = []string{"/var/lib/kubelet", "/var/lib/cni", "/var/log/pods", "/var/log/containers", "/etc/cni/net.d"}

// Settings of the machine that the kubelet writes and that no namespace parts:
// each node writes to a file of its own instead.
var machineSettings = []string{"/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/panic", "/proc/sys/kernel/panic_on_oops"}

func (n *node) isolate() error {
	if err := isolate(n.name()); err != nil {
		return err
	}
	for _, folder := range nodeFolders {
		private := n.path("root", folder)
		if err := errors.Join(os.MkdirAll(folder, 0o755), os.MkdirAll(private, 0o755)); err != nil {
			return fmt.Errorf("cannot make %s: %w", folder, err)
		}
		if err := unix.Mount(private, folder, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("cannot mount %s: %w", folder, err)
		}
	}
	for _, folder := range []string{"/run/containerd", "/run/netns"} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return fmt.Errorf("cannot make %s: %w", folder, err)
		}
		if err := unix.Mount("tmpfs", folder, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
			return fmt.Errorf("cannot mount %s: %w", folder, err)
		}
	}
	for _, setting := range machineSettings {
		value, err := os.ReadFile(setting)
		if err != nil {
			return fmt.Errorf("cannot read a setting of the machine: %w", err)
		}
		own := n.path(filepath.Base(setting))
		if err := os.WriteFile(own, value, 0o644); err != nil {
			return fmt.Errorf("cannot write a setting: %w", err)
		}
		if err := unix.Mount(own, setting, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("cannot keep %s from the kubelet: %w", setting, err)
		}
	}
	return nil
}

// address gives the node its address and the ways to the others' Pods. There is
// no way out of the cluster.
func (n *node) address() error {
	var lines strings.Builder
	fmt.Fprintf(&lines, "ip addr add %s/24 dev eth0\nip link set eth0 up\n", n.net.node(n.number))
	for other := 1; other <= n.Nodes; other++ {
		if other != n.number {
			fmt.Fprintf(&lines, "ip route add %s via %s\n", n.net.pods(other), n.net.node(other))
		}
	}
	fmt.Fprintf(&lines, "ip route add unreachable %s\n", n.net.all())
	// kube-proxy answers for addresses of services; the kernel only asks where
	// they are after it has looked for a route.
	fmt.Fprintf(&lines, "ip route add %s via %s\n", services, n.net.control())
	if err := runAll(lines.String()); err != nil {
		return err
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return fmt.Errorf("cannot let the node forward: %w", err)
	}
	return nil
}

// makeGroups makes the control groups below which the kubelet keeps its Pods.
// In hierarchies of version 1 a group of the cpuset needs its processors and
// memory nodes said before anybody can be in it.
func (n *node) makeGroups() error {
	roots, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	if err != nil {
		return err
	}
	if exists("/sys/fs/cgroup/cgroup.procs") {
		roots = []string{"/sys/fs/cgroup/cgroup.procs"}
	}
	for _, root := range roots {
		parent := filepath.Dir(root)
		for _, name := range []string{n.net.group(), n.name()} {
			group := filepath.Join(parent, name)
			if err := os.MkdirAll(group, 0o755); err != nil {
				return fmt.Errorf("cannot make a control group: %w", err)
			}
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				value, err := os.ReadFile(filepath.Join(parent, file))
				if err == nil && exists(filepath.Join(group, file)) {
					err = os.WriteFile(filepath.Join(group, file), value, 0o644)
				}
				if err != nil && !errors.Is(err, os.ErrNotExist) {
					return fmt.Errorf("cannot set up a control group: %w", err)
				}
			}
			parent = group
		}
	}
	return nil
}

func (n *node) begin(name string, env []string, program string, args ...string) error {
	p, err := n.start(n.name()+"-"+name, env, program, args...)
	if err != nil {
		return err
	}
	go p.wait(n.ended)
	return nil
}

const containerdSocket = "/run/containerd/containerd.sock"

func (n *node) startContainerd() error {
	config := fmt.Sprintf(`version = 2
root = %[1]q
state = "/run/containerd/state"
disabled_plugins = ["io.containerd.internal.v1.restart", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
oom_score = 0
[grpc]
  address = %[2]q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %[3]q
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
`, n.path("containerd"), containerdSocket, pauseImage)
	if err := os.WriteFile(n.path("containerd.toml"), []byte(config), 0o644); err != nil {
		return fmt.Errorf("cannot write containerd's configuration: %w", err)
	}
	if err := n.writeCNI(); err != nil {
		return err
	}
	if err := n.begin("containerd", nil, "containerd", "--config", n.path("containerd.toml")); err != nil {
		return err
	}
	return until(context.Background(), startLimit, n.ended, "containerd answers", func() error {
		return run("ctr", "--address", containerdSocket, "version")
	})
}

// writeCNI gives each Pod an address of the node's range on a bridge.
func (n *node) writeCNI() error {
	conf, err := json.Marshal(map[string]any{
		"cniVersion": "0.4.0", "name": "pods",
		"plugins": []any{
			map[string]any{
				"type": "bridge", "bridge": "pods", "isDefaultGateway": true, "ipMasq": false, "hairpinMode": true,
				"ipam": map[string]any{"type": "host-local", "ranges": []any{[]any{map[string]any{"subnet": n.net.pods(n.number)}}}},
			},
			map[string]any{"type": "portmap", "capabilities": map[string]any{"portMappings": true}},
		},
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile("/etc/cni/net.d/10-pods.conflist", conf, 0o644); err != nil {
		return fmt.Errorf("cannot write the configuration of CNI: %w", err)
	}
	return nil
}

func (n *node) importImages() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find this program: %w", err)
	}
	images := append([]Image{{Name: pauseImage, Files: map[string]string{"/cluster": self}, Entry: []string{"/cluster", "pause"}}}, n.Images...)
	for i, image := range images {
		archive := n.path(fmt.Sprintf("image-%d.tar", i))
		if err := image.write(archive); err != nil {
			return err
		}
		if err := run("ctr", "--address", containerdSocket, "--namespace", "k8s.io", "images", "import", archive); err != nil {
			return err
		}
		if err := os.Remove(archive); err != nil {
			return fmt.Errorf("cannot remove an archive: %w", err)
		}
	}
	return nil
}

func (n *node) startProxy() error {
	config := map[string]any{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "nftables", "clusterCIDR": n.net.all(),
		"clientConnection": map[string]any{"kubeconfig": n.Config.path("proxy.kubeconfig")}, "hostnameOverride": n.name(),
		"conntrack": map[string]any{"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
	}
	if err := writeJSON(n.path("proxy.yaml"), config); err != nil {
		return err
	}
	return n.begin("kube-proxy", nil, n.Kube, "kube-proxy", "--config="+n.path("proxy.yaml"))
}

func (n *node) startKubelet() error {
	config := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"containerRuntimeEndpoint": "unix://" + containerdSocket, "cgroupDriver": "cgroupfs", "cgroupRoot": "/" + n.net.group() + "/" + n.name(),
		"failCgroupV1": false, "failSwapOn": false, "enforceNodeAllocatable": []string{"pods"}, "makeIPTablesUtilChains": false,
		"resolvConf": "", "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99, "evictionHard": map[string]string{"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%", "nodefs.inodesFree": "0%"},
		"authentication":            map[string]any{"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true}, "x509": map[string]any{"clientCAFile": n.Config.path("keys", "ca.crt")}},
		"authorization":             map[string]any{"mode": "Webhook"},
		"nodeStatusReportFrequency": "10s", "nodeStatusUpdateFrequency": "2s", "nodeLeaseDurationSeconds": 20, "maxPods": 200,
		"serializeImagePulls": false, "registerNode": true, "shutdownGracePeriod": "0s",
	}
	if err := writeJSON(n.path("kubelet.yaml"), config); err != nil {
		return err
	}
	return n.begin("kubelet", nil, n.Kube, "kubelet", "--config="+n.path("kubelet.yaml"), "--kubeconfig="+n.path("kubelet.kubeconfig"),
		"--hostname-override="+n.name(), "--node-ip="+n.net.node(n.number), "--cert-dir="+n.path("kubelet-keys"))
}

// startPlugin starts the device plugin that advertises the simulated GPUs.
func (n *node) startPlugin() error {
	if n.GPUs == 0 {
		return nil
	}
	return n.begin("gpu-plugin", nil, n.Kube, "gpu-plugin", "--prefix="+GPUPrefix(n.number), "--gpus="+strconv.Itoa(n.GPUs))
}

// GPUPrefix is how the UUIDs of a node's GPUs begin; twelve hexadecimal digits
// follow, from zero on.
func GPUPrefix(number int) string { return fmt.Sprintf("GPU-%08d-0000-0000-0000-", number) }
