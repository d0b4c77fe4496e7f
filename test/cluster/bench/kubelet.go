package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/authoritytest"
	launcherclient "hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/figures"
)

// Bounds of what dual pods add on a real node.
const (
	addedP50 = 10 * time.Millisecond
	addedP99 = 25 * time.Millisecond
	askedP50 = 25 * time.Millisecond
	readyP95 = 150 * time.Millisecond

	endToEndByGate  = 50 * time.Millisecond
	endToEndByProbe = 120 * time.Millisecond
)

// ways are the kinds of Pods that take turns on the real node.
var ways = []string{"gate", "probe", "plain"}

// kubelet times hot starts of one requester at a time on a real node, of one that
// lists our readiness gate and of one that has a probe, in turn with a plain Pod
// of the same container; then ends of what serves.
func (b *bench) kubelet() (rows []figures.Row, err error) {
	s, err := b.newSite("kubelet", cluster.Options{Nodes: 1, GPUs: 2})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Down()) }()
	launcher, err := s.setUpNode(b.ctx)
	if err != nil {
		return nil, err
	}
	defer launcher.close()
	if err := s.warmUp(b.ctx); err != nil {
		return nil, err
	}
	last, names := "", map[string][]string{}
	for range b.n(30) {
		for _, way := range ways {
			if last, err = s.oneStart(b.ctx, way); err != nil {
				return nil, err
			}
			names[way] = append(names[way], last)
		}
	}
	writes, err := readAudit(b.ctx, s.AuditLog(), last, func(w *write) bool { return w.says(corev1.PodReady) })
	if err != nil {
		return nil, err
	}
	if err := b.keep("starts", traces(writes, launcher.moments(), slices.Concat(names["gate"], names["probe"], names["plain"]), nil)); err != nil {
		return nil, err
	}
	all := map[string]*starts{}
	for _, way := range ways {
		all[way] = &starts{}
		for _, name := range names[way] {
			if err := all[way].add(writes, launcher.moments(), name, way == "plain"); err != nil {
				return nil, err
			}
		}
	}
	ends, err := s.ends(b.ctx, launcher.client, b.n(12))
	if err != nil {
		return nil, err
	}
	return append(rowsOfStarts(all["gate"], all["probe"], all["plain"]), ends...), nil
}

// keep keeps traces beside the profiles, if those are asked for.
func (b *bench) keep(name string, traces []byte) error {
	if b.profiles == "" {
		return nil
	}
	if err := os.WriteFile(filepath.Join(b.profiles, name+".txt"), traces, 0o600); err != nil {
		return fmt.Errorf("cannot write the traces: %w", err)
	}
	return nil
}

// setUpNode has the controller, with these values of the chart, and a launcher on the node, as examples have it.
func (s *site) setUpNode(ctx context.Context, values ...string) (*launcherWatch, error) {
	if err := s.LoadProduct(ctx, "bin", "dev"); err != nil {
		return nil, err
	}
	if err := s.install(ctx, values...); err != nil {
		return nil, err
	}
	if err := s.apply(ctx, "examples/dual-pods/launcherconfig.yaml"); err != nil {
		return nil, err
	}
	if err := s.wait(ctx, "--for=condition=Available", "lcfg/simulated"); err != nil {
		return nil, err
	}
	ours := client.MatchingLabels{podmeta.LabelLauncherConfig: "simulated"}
	var pods corev1.PodList
	var authorities corev1.Secret
	if err := errors.Join(s.api.List(ctx, &pods, client.InNamespace(namespace), ours), s.api.Get(ctx, client.ObjectKey{Namespace: system, Name: authoritytest.SecretName}, &authorities)); err != nil {
		return nil, fmt.Errorf("cannot find the launcher: %w", err)
	}
	if len(pods.Items) != 1 {
		return nil, fmt.Errorf("there are %d launchers, and not one", len(pods.Items))
	}
	secured, err := authoritytest.Launcher(&authorities, mtls.LauncherName(namespace, "simulated"))
	if err != nil {
		return nil, err
	}
	return s.watchLauncher(pods.Items[0].Status.PodIP, secured)
}

// warmUp leaves a sleeper on each GPU.
func (s *site) warmUp(ctx context.Context) error {
	names := []string{"warm-0", "warm-1"}
	for _, name := range names {
		if err := s.api.Create(ctx, requesterPod("gate", name)); err != nil {
			return fmt.Errorf("cannot make Pod %s: %w", name, err)
		}
	}
	for _, name := range names {
		if err := s.await(ctx, name, ready); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := s.remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// oneStart starts a Pod that the API server names, as those of a Deployment, and ends it.
func (s *site) oneStart(ctx context.Context, way string) (name string, err error) {
	pod := requesterPod(way, "")
	pod.GenerateName = way + "-"
	if err := s.api.Create(ctx, pod); err != nil {
		return "", fmt.Errorf("cannot make a Pod %s: %w", way, err)
	}
	if err := s.await(ctx, pod.Name, ready); err != nil {
		return "", err
	}
	return pod.Name, s.remove(ctx, pod.Name)
}

// serverPatch asks for the model that all requesters ask for that come up.
var serverPatch = patchFor("org/model-a")

// patchFor is a server patch that asks for a model.
func patchFor(model string) string {
	return `spec:
  containers:
  - name: inference-server
    command: [vllm, serve]
    args: [` + model + `, --port=8000, --gpu-memory-utilization=0.4]
`
}

// requesterPod is a Pod of one of the ways.
func requesterPod(way, name string) *corev1.Pod {
	gpu := corev1.ResourceList{podmeta.ResourceGPU: *resource.NewQuantity(1, resource.DecimalSI)}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "model-a"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: podmeta.ServingContainer, Image: "hotseat.local/requester:dev", ImagePullPolicy: corev1.PullIfNotPresent,
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8000}}, Resources: corev1.ResourceRequirements{Limits: gpu},
		}}},
	}
	if way == "plain" {
		return pod
	}
	pod.Annotations = map[string]string{podmeta.AnnotationLauncherConfig: "simulated", podmeta.AnnotationServerPatch: serverPatch}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "HOTSEAT_REQUESTER_SHUTDOWN_DELAY", Value: "0s"}} // no client is lost here
	if way == "gate" {
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: podmeta.ReadinessGate}}
	} else {
		pod.Spec.Containers[0].ReadinessProbe = probe("/ready?wait=5s")
	}
	return pod
}

// probe asks the requester program once a second.
func probe(path string) *corev1.Probe {
	return &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 10, FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(8080)},
	}}
}

// launcherWatch notes when instances of a launcher came to what states.
type launcherWatch struct {
	client *launcherclient.Client
	http   *http.Transport
	stop   context.CancelFunc
	over   sync.WaitGroup
	mu     sync.Mutex
	events []launcherapi.Instance
}

func (s *site) watchLauncher(ip string, secured *tls.Config) (*launcherWatch, error) {
	w := &launcherWatch{http: &http.Transport{DialContext: s.Dial, TLSClientConfig: secured}}
	c, err := launcherclient.New(launcherclient.Options{Server: "https://" + ip + ":8001", HTTPClient: &http.Client{Transport: w.http}})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	w.client, w.stop = c, stop
	w.over.Go(func() {
		for event, err := range c.Watch(ctx, nil) {
			if err != nil {
				return // the moments that lack tell
			}
			w.mu.Lock()
			w.events = append(w.events, event.Object)
			w.mu.Unlock()
		}
	})
	return w, nil
}

func (w *launcherWatch) moments() []launcherapi.Instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events
}

func (w *launcherWatch) close() {
	w.stop()
	w.over.Wait()
	w.client.Close()
	w.http.CloseIdleConnections()
}
