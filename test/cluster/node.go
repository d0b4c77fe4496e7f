package cluster

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/spec/simgpu"
)

// SimGPUDir is the folder of the simulated GPUs on each node, for Pods to mount
// from their host and to name in [simgpu.EnvDir].
const SimGPUDir = "/var/lib/hotseat/simgpu"

// simGPUBytes is the memory of a simulated GPU.
const simGPUBytes = 80 << 30

// UUIDs gives those of a node's GPUs, which are ids of the device plugin's devices
// too. Nodes count from 1; no two have the same.
func (c *Cluster) UUIDs(node int) []string {
	uuids := []string{}
	for n := range c.GPUs {
		uuids = append(uuids, fmt.Sprintf("GPU-%08x-0000-0000-0000-%012x", node, n))
	}
	return uuids
}

// node is PID 1 of a node.
type node struct {
	*Cluster
	number     int
	ended      chan error // of a part
	wasDeleted bool       // when kube-proxy ended last; see registerAgain
}

// Node is PID 1 of a node, which the keeper starts in namespaces of its own: it
// starts the parts of the node, and returns when one of them has ended or could
// not be started.
func Node(name string, number int) error {
	n := &node{Cluster: &Cluster{Name: name}, number: number, ended: make(chan error, 8)}
	if err := readJSON(n.Cluster.path("cluster.json"), n.Cluster); err != nil {
		return err
	}
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("cannot wait for the network: %w", err)
	}
	for _, step := range []func() error{n.isolate, n.address, n.makeGroups, n.makeGPUs, n.startContainerd, n.importPause, n.awaitAPI, n.startProxy, n.startKubelet, n.startRouter, n.startPlugin} {
		if err := step(); err != nil {
			return err
		}
	}
	go collect()
	if n.ProxyStays {
		go n.endProxyWithNode()
	}
	return <-n.ended
}

// collect takes note of the ends of orphans: each container's shim becomes a
// child of PID 1. It can be before the one who waits for a part, who then learns
// that the part has ended and not how.
func collect() {
	for {
		if _, err := unix.Wait4(-1, nil, 0, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return // there is no child left
		}
	}
}

func (n *node) path(elements ...string) string {
	return n.Cluster.path(append([]string{n.name()}, elements...)...)
}

func (n *node) name() string { return NodeName(n.number) }

func (n *node) address() error { return takeAddress(n.number, n.Nodes) }

func (n *node) awaitAPI() error {
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return fmt.Errorf("cannot wait for the API server: %w", err)
	}
	return nil
}

// machineSettings are settings of the machine that the kubelet writes and that
// are no namespace's: it writes to files of the node instead.
var machineSettings = []string{"vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops"}

// isolate gives the node a /var and a /run of its own, where all parts of a node
// keep their files.
func (n *node) isolate() error {
	if err := isolate(n.name()); err != nil {
		return err
	}
	if err := os.MkdirAll(n.path("var", "lib"), 0o755); err != nil {
		return fmt.Errorf("cannot make the node's /var: %w", err)
	}
	if err := os.Symlink("/run", n.path("var", "run")); err != nil {
		return fmt.Errorf("cannot make the node's /var: %w", err)
	}
	if err := unix.Mount(n.path("var"), "/var", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cannot mount the node's /var: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("cannot mount the node's /run: %w", err)
	}
	for _, setting := range machineSettings {
		value, err := os.ReadFile("/proc/sys/" + setting)
		if err != nil {
			return fmt.Errorf("cannot read a setting of the machine: %w", err)
		}
		own := n.path(filepath.Base(setting))
		if err := os.WriteFile(own, value, 0o644); err != nil {
			return fmt.Errorf("cannot write a setting: %w", err)
		}
		if err := unix.Mount(own, "/proc/sys/"+setting, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("cannot keep %s from the kubelet: %w", setting, err)
		}
	}
	return nil
}

func (n *node) group() string { return filepath.Join(groupPrefix+n.Name, n.name()) }

// makeGroups makes the control groups below which the kubelet keeps its Pods.
// In hierarchies of version 1 a group of the cpuset needs its processors and
// memory nodes said before anybody can be in it.
func (n *node) makeGroups() error {
	roots, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs") // of version 1
	if err != nil {
		return err
	}
	if len(roots) == 0 {
		roots = []string{"/sys/fs/cgroup/cgroup.procs"}
	}
	for _, root := range roots {
		parent := filepath.Dir(root)
		for name := range strings.SplitSeq(n.group(), "/") {
			group := filepath.Join(parent, name)
			if err := os.MkdirAll(group, 0o755); err != nil {
				return fmt.Errorf("cannot make a control group: %w", err)
			}
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				value, err := os.ReadFile(filepath.Join(parent, file))
				if err == nil {
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

// makeGPUs makes the folder that a launcher with --gpus simulated:N takes as it
// finds it. Every user may have its GPUs, as those of NVIDIA's driver, whose device
// files have mode 0666.
func (n *node) makeGPUs() error {
	if n.GPUs == 0 {
		return nil
	}
	gpus := []simgpu.GPU{}
	for index, uuid := range n.UUIDs(n.number) {
		gpus = append(gpus, simgpu.GPU{UUID: uuid, Index: index, Product: "Simulated GPU 80GiB", MemoryTotalBytes: simGPUBytes})
	}
	if _, err := simgpu.Create(SimGPUDir, gpus); err != nil {
		return err
	}
	return filepath.WalkDir(SimGPUDir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		return os.Chmod(path, 0o777)
	})
}

// startPlugin starts the device plugin that advertises the simulated GPUs.
func (n *node) startPlugin() error {
	if n.GPUs == 0 {
		return nil
	}
	return n.begin(n.ended, PartOf(n.number, "gpu-plugin"), n.kube("gpu-plugin", "--gpus="+strings.Join(n.UUIDs(n.number), ",")))
}

// kube is a part of Kubernetes.
func (n *node) kube(component string, args ...string) *exec.Cmd {
	return exec.Command(n.Kube, append([]string{component}, args...)...)
}
