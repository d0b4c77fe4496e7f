//go:build cluster

package cluster_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/deploy/images"
	"hotseat.dev/hotseat/spec/simgpu"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if started != nil {
			if err := started.Down(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}
		os.Exit(code)
	}))
}

var started *cluster.Cluster // by shared

// shared returns a cluster of two nodes, which the first caller starts for all tests.
func shared(t *testing.T) *cluster.Cluster {
	t.Helper()
	if started == nil {
		ctx, cancel := context.WithTimeout(t.Context(), patience.LongWait())
		defer cancel()
		c, err := cluster.Up(ctx, cluster.Options{Name: ownName("shared"), Nodes: 2, GPUs: 2, Progress: os.Stderr})
		require.NoError(t, err)
		started = c
	}
	return started
}

// own starts a cluster for one test.
func own(t *testing.T, name string, nodes int) *cluster.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.LongWait())
	defer cancel()
	c, err := cluster.Up(ctx, cluster.Options{Name: name, Nodes: nodes, GPUs: 1, Progress: os.Stderr})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Down()) })
	return c
}

func ownName(what string) string { return fmt.Sprintf("test-%s-%d", what, os.Getpid()) }

func kubectl(t *testing.T, c *cluster.Cluster, stdin string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Wait())
	defer cancel()
	out, err := c.Kubectl(ctx, strings.NewReader(stdin), args...)
	require.NoError(t, err)
	return string(out)
}

const crd = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: seats.test.hotseat.dev}
spec:
  group: test.hotseat.dev
  scope: Namespaced
  names: {kind: Seat, plural: seats, singular: seat}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {min: {type: integer}, max: {type: integer}}
            x-kubernetes-validations:
            - {rule: self.min <= self.max, message: min is more than max}
`

func seat(low, high int) string {
	return fmt.Sprintf("{apiVersion: test.hotseat.dev/v1, kind: Seat, metadata: {name: s}, spec: {min: %d, max: %d}}", low, high)
}

func TestTheAPIAloneHoldsObjectsToTheRulesOfTheirCRD(t *testing.T) {
	c := own(t, ownName("api"), 0)
	kubectl(t, c, crd, "apply", "-f-")
	kubectl(t, c, "", "wait", "--for=condition=Established", "crd/seats.test.hotseat.dev")
	_, err := c.Kubectl(t.Context(), strings.NewReader(seat(2, 1)), "apply", "-f-")
	require.ErrorContains(t, err, "min is more than max")
	kubectl(t, c, seat(1, 2), "apply", "--server-side", "-f-")
	require.Equal(t, "2", kubectl(t, c, "", "get", "seat", "s", "-o=jsonpath={.spec.max}"))
}

func TestAPartThatWasStoppedComesBackWithAllThereWas(t *testing.T) {
	c := own(t, ownName("part"), 0)
	kubectl(t, c, "", "create", "configmap", "kept", "--from-literal=a=b")
	start, err := c.Stop(t.Context(), cluster.APIServer)
	require.NoError(t, err)
	_, err = c.Kubectl(t.Context(), nil, "get", "--raw", "/readyz") // "get configmap" looks for the kinds that there are, for most of a minute
	require.Error(t, err)
	require.NoError(t, start())
	require.Eventually(t, func() bool {
		out, err := c.Kubectl(t.Context(), nil, "get", "configmap", "kept", "-o=jsonpath={.data.a}")
		return err == nil && string(out) == "b"
	}, patience.Wait(), 100*time.Millisecond)
	_, err = c.Stop(t.Context(), "kubelet")
	require.ErrorContains(t, err, "has no part kubelet")
}

const witnessImage = "e2e.local/witness:v1"

func loadWitness(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	require.NoError(t, c.LoadImage(t.Context(), witnessImage, images.Image{Files: map[string]string{"/witness": build(t, "test/cluster/witness", "CGO_ENABLED=0")}}))
}

// build builds a program of this repository.
func build(t *testing.T, pkg string, env ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), filepath.Base(pkg))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, "hotseat.dev/hotseat/"+pkg)
	cmd.Env = append(os.Environ(), env...)
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, string(said))
	return out
}

// sharedNamespace makes a namespace in the shared cluster for the test, and has
// the witness's image on every node.
func sharedNamespace(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	loadWitness(t, c)
	name := strings.TrimPrefix(kubectl(t, c, "{apiVersion: v1, kind: Namespace, metadata: {generateName: test-}}", "create", "-f-", "-o=name"), "namespace/")
	name = strings.TrimSpace(name)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience.Wait())
		defer cancel()
		_, err := c.Kubectl(ctx, nil, "delete", "namespace", name, "--wait=false")
		assert.NoError(t, err)
	})
	return name
}

// startWitness starts a Pod on a node and gives its address.
func startWitness(t *testing.T, c *cluster.Cluster, namespace, name string, node int) string {
	t.Helper()
	kubectl(t, c, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: %[2]s, labels: {app: %[1]s}}
spec:
  nodeSelector: {kubernetes.io/hostname: %[3]s}
  terminationGracePeriodSeconds: 0
  containers:
  - name: witness
    image: %[4]s
    imagePullPolicy: Never
    readinessProbe: {httpGet: {path: /env, port: 8080}, periodSeconds: 1}
    resources: {limits: {nvidia.com/gpu: 1}}
`, name, namespace, cluster.NodeName(node), witnessImage), "apply", "-f-")
	return awaitReady(t, c, namespace, name)
}

// awaitReady waits until a Pod is ready, and gives its address.
func awaitReady(t *testing.T, c *cluster.Cluster, namespace, name string) string {
	t.Helper()
	_, err := c.Kubectl(t.Context(), nil, "-n", namespace, "wait", "--for=condition=Ready", "pod/"+name, "--timeout="+patience.Wait().String())
	if err != nil {
		t.Log(kubectl(t, c, "", "-n", namespace, "describe", "pod", name))
	}
	require.NoError(t, err)
	return kubectl(t, c, "", "-n", namespace, "get", "pod", name, "-o=jsonpath={.status.podIP}")
}

// get asks an address of the cluster's network over HTTP, and gives the status
// and the answer.
func get(t *testing.T, c *cluster.Cluster, address string) (int, string) {
	t.Helper()
	transport := &http.Transport{DialContext: c.Dial}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: patience.Wait()}
	resp, err := client.Get(address)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

func TestAPodHasAGPUThatItsNodeSimulates(t *testing.T) {
	c := shared(t)
	ns := sharedNamespace(t, c)
	assert.NotEqual(t, c.UUIDs(1), c.UUIDs(2))
	for node := 1; node <= 2; node++ {
		ip := startWitness(t, c, ns, fmt.Sprintf("w%d", node), node)
		_, uuid := get(t, c, "http://"+ip+":8080/env?name=NVIDIA_VISIBLE_DEVICES")
		assert.Contains(t, c.UUIDs(node), uuid)
	}
}

func TestALauncherSeesTheGPUsThatItsNodeGivesToPods(t *testing.T) {
	c := shared(t)
	ns := sharedNamespace(t, c)
	require.NoError(t, c.LoadImage(t.Context(), "e2e.local/launcher:v1", images.Image{Files: map[string]string{"/launcher": build(t, "launcher/cmd/launcher")}}))
	for node := 1; node <= 2; node++ {
		name := fmt.Sprintf("launcher%d", node)
		kubectl(t, c, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  nodeSelector: {kubernetes.io/hostname: %[3]s}
  containers:
  - name: launcher
    image: e2e.local/launcher:v1
    imagePullPolicy: Never
    args: [serve, "--listen=0.0.0.0:8001", --insecure-public, "--gpus=simulated:%[4]d", --state-dir=/tmp/state, --vllm=/launcher]
    env: [{name: %[5]s, value: %[6]s}]
    readinessProbe: {httpGet: {path: /health, port: 8001}, periodSeconds: 1}
    volumeMounts: [{name: gpus, mountPath: %[6]s}]
  volumes: [{name: gpus, hostPath: {path: %[6]s, type: Directory}}]
`, name, ns, cluster.NodeName(node), c.GPUs, simgpu.EnvDir, cluster.SimGPUDir), "apply", "-f-")
		_, answer := get(t, c, "http://"+awaitReady(t, c, ns, name)+":8001/v2/gpus")
		for _, uuid := range c.UUIDs(node) {
			assert.Contains(t, answer, uuid)
		}
	}
}

func TestPodsReachEachOtherAcrossNodesAndThroughAService(t *testing.T) {
	c := shared(t)
	ns := sharedNamespace(t, c)
	one, two := startWitness(t, c, ns, "one", 1), startWitness(t, c, ns, "two", 2)
	kubectl(t, c, "", "-n", ns, "expose", "pod", "two", "--port=80", "--target-port=8080")
	service := kubectl(t, c, "", "-n", ns, "get", "service", "two", "-o=jsonpath={.spec.clusterIP}")
	through := func(pod, address string) (int, string) {
		return get(t, c, "http://"+pod+":8080/get?url="+url.QueryEscape(address))
	}
	status, said := through(one, "http://192.0.2.1/")
	assert.Equal(t, http.StatusBadGateway, status)
	assert.Contains(t, said, "network is unreachable", "a packet that is for nobody in the cluster goes nowhere")
	status, name := through(one, "http://"+two+":8080/env?name=HOSTNAME")
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, "two", name, "from Pod to Pod")
	for from, ask := range map[string]func(string) (int, string){
		"the Pod on the other node":  func(address string) (int, string) { return through(one, address) },
		"the Pod that stands for it": func(address string) (int, string) { return through(two, address) },
		"outside, by the first node": func(address string) (int, string) { return get(t, c, address) },
	} {
		require.EventuallyWithT(t, func(t *assert.CollectT) { // kube-proxy learns of the service a moment later
			status, name := ask("http://" + service + "/env?name=HOSTNAME")
			assert.Equal(t, http.StatusOK, status, name)
			assert.Equal(t, "two", name)
		}, patience.Wait(), 100*time.Millisecond, "through the service, from %s", from)
	}
}

func TestDeletedNodeComesBackAndTheClusterGoesOn(t *testing.T) {
	c := shared(t)
	ns := sharedNamespace(t, c)
	other := startWitness(t, c, ns, "other", 1)
	node := cluster.NodeName(2)
	const state = `-o=jsonpath={.metadata.uid} {.status.conditions[?(@.type=="Ready")].status} {.status.allocatable.nvidia\.com/gpu}`
	before := strings.Fields(kubectl(t, c, "", "get", "node", node, state))
	require.Equal(t, []string{"True", strconv.Itoa(c.GPUs)}, before[1:])
	kubectl(t, c, "", "delete", "node", node)
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		out, err := c.Kubectl(context.Background(), nil, "get", "node", node, state)
		require.NoError(t, err)
		now := strings.Fields(string(out))
		require.Len(t, now, len(before))
		assert.NotEqual(t, before[0], now[0], "it is another object")
		assert.Equal(t, before[1:], now[1:], "it is ready, with its GPUs")
	}, patience.Wait(), 100*time.Millisecond)
	startWitness(t, c, ns, "again", 2)
	status, _ := get(t, c, "http://"+other+":8080/env?name=HOSTNAME")
	assert.Equal(t, http.StatusOK, status, "a Pod of the other node runs on")
}

// family gives a process and all that come from it.
func family(t *testing.T, pid int) []int {
	t.Helper()
	children := map[int][]int{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, file := range stats {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		_, after, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')'):]), " ")
		parent, err := strconv.Atoi(strings.Fields(after)[1])
		require.NoError(t, err)
		children[parent] = append(children[parent], child)
	}
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

func settings(t *testing.T) string {
	t.Helper()
	all := ""
	for _, name := range []string{"vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward", "net/netfilter/nf_conntrack_max"} {
		value, err := os.ReadFile("/proc/sys/" + name)
		if !os.IsNotExist(err) {
			require.NoError(t, err)
		}
		all += name + "=" + string(value)
	}
	return all
}

func groups(t *testing.T, name string) []string {
	t.Helper()
	found, err := filepath.Glob("/sys/fs/cgroup/*/hotseat-cluster-" + name)
	require.NoError(t, err)
	return found
}

func TestAKilledKeeperLeavesNothingRunningAndTheNextUpWorks(t *testing.T) {
	before := settings(t)
	name := ownName("kill")
	c := own(t, name, 1)
	loadWitness(t, c)
	startWitness(t, c, "default", "w", 1)
	processes := family(t, c.Keeper)
	require.Greater(t, len(processes), 12, "keeper, control plane, node, Pod")
	require.NotEmpty(t, groups(t, name))
	require.NoError(t, syscall.Kill(c.Keeper, syscall.SIGKILL))
	for _, pid := range processes[1:] {
		require.Eventually(t, func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH }, patience.Wait(), 10*time.Millisecond, "process %d", pid)
	}
	_, err := cluster.Find(name)
	require.ErrorIs(t, err, cluster.ErrNone)
	assert.Equal(t, before, settings(t))

	again := own(t, name, 0)
	assert.Empty(t, groups(t, name))
	kubectl(t, again, "", "get", "namespaces")
	require.NoError(t, again.Down())
	assert.NoDirExists(t, filepath.Dir(again.Kubeconfig()))
}

func TestAllClustersEndWithTheProcessThatHoldsThem(t *testing.T) {
	holder := exec.Command(filepath.Join(shared(t).Bin(), "cluster"), "run", "--lanes=2", "--nodes=0", "sh", "-c", "echo $HOTSEAT_CLUSTERS; cat")
	input, err := holder.StdinPipe() // its end ends cat
	require.NoError(t, err)
	output, err := holder.StdoutPipe()
	require.NoError(t, err)
	holder.Stderr = os.Stderr
	require.NoError(t, holder.Start())
	defer func() {
		_ = holder.Process.Kill() // it may have ended already
		_ = input.Close()
		_ = holder.Wait()
	}()
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	names := strings.Fields(line)
	require.Len(t, names, 2)
	var held []*cluster.Cluster
	for _, name := range names {
		c, err := cluster.Find(name)
		require.NoError(t, err)
		held = append(held, c)
	}
	require.NoError(t, holder.Process.Kill())
	for _, c := range held {
		require.Eventually(t, func() bool { return syscall.Kill(c.Keeper, 0) == syscall.ESRCH }, patience.Wait(), 10*time.Millisecond)
		assert.NoDirExists(t, filepath.Dir(c.Kubeconfig()), "the keeper has removed it")
	}
}

func TestUpSaysWhatIsWrongAndWhatWouldBeRight(t *testing.T) {
	for what, o := range map[string]cluster.Options{
		"cannot be the name of a cluster: use": {Name: "../x"},
		"ask for 0 to 16":                      {Nodes: 17},
		"ask for 0 to 64":                      {GPUs: -1},
	} {
		_, err := cluster.Up(t.Context(), o)
		require.ErrorContains(t, err, what)
	}
	_, err := cluster.Up(t.Context(), cluster.Options{Name: shared(t).Name})
	require.ErrorContains(t, err, "runs already: end it by make cluster-down")
	_, err = cluster.Up(t.Context(), cluster.Options{Name: ownName("spoiled"), AuditPolicy: "not-there.yaml"})
	require.ErrorContains(t, err, "kube-apiserver ended: exit status 1:")
	require.ErrorContains(t, err, "not-there.yaml")
	t.Setenv("PATH", "")
	_, err = cluster.Up(t.Context(), cluster.Options{Nodes: 1})
	for _, pkg := range []string{"containerd", "runc", "nftables", "iproute2"} {
		_, command, _ := strings.Cut(err.Error(), "apt-get install ")
		require.Contains(t, strings.Fields(command), pkg)
	}
}
