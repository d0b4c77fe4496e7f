//go:build cluster

package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"hotseat.dev/hotseat/dualpods/authoritytest"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/requesterapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
)

// server is an inference server as a requester asks for it: model org/<app>.
type server struct {
	app    string
	args   []string          // of the engine, besides model and port
	gpus   int               // 0: one
	node   int               // 0: any
	labels map[string]string // to be relayed to the requester
	env    []corev1.EnvVar   // of the engine
	gate   bool              // lists the readiness gate
	alone  bool              // has no probe
	config string            // name of an InferenceServerConfig that says what to run; empty: a server patch says it
	patch  string            // the server patch, instead of the one made from the fields above
	grace  int64             // seconds that the requester has to end
	delay  string            // the requester's shutdown delay; empty: none, since most tests have no clients to lose
	hook   int64             // seconds that its preStop hook sleeps; 0: it has none
	of     string            // name of the LauncherConfig; empty: simulated
	tag    string            // of the requester's image; empty: dev
	placed bool              // carries the scheduling gate
	from   string            // where the model comes from, as the annotation hotseat.dev/model-cache says it; empty: it is not there
	claims string            // GPUs that the requester program says it has, whatever it was given; empty: it tells the truth
}

// engineArgs are those of the engine.
func (v server) engineArgs() []string {
	return append([]string{"org/" + v.app, "--gpu-memory-utilization=0.4"}, v.args...)
}

func (v server) serverPatch(t *testing.T) string {
	if v.patch != "" {
		return v.patch
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": v.labels}, "spec": map[string]any{"containers": []any{map[string]any{
		"name": podmeta.ServingContainer, "command": []string{"vllm", "serve"}, "args": append(v.engineArgs(), "--port=8000"), "env": v.env,
	}}}})
	require.NoError(t, err)
	return string(text)
}

// template is the requester.
func (v server) template(t *testing.T) corev1.PodTemplateSpec {
	pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{"app": v.app}, Annotations: map[string]string{podmeta.AnnotationLauncherConfig: cmp.Or(v.of, "simulated")},
	}}
	if v.config != "" {
		pod.Annotations = map[string]string{podmeta.AnnotationInferenceServerConfig: v.config}
	} else {
		pod.Annotations[podmeta.AnnotationServerPatch] = v.serverPatch(t)
	}
	if v.from != "" {
		pod.Annotations[podmeta.AnnotationModelCache] = v.from
	}
	if v.node > 0 {
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: cluster.NodeName(v.node)}
	}
	if v.gate {
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: podmeta.ReadinessGate}}
	}
	if v.placed {
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: podmeta.SchedulingGate}}
	}
	if v.grace > 0 {
		pod.Spec.TerminationGracePeriodSeconds = &v.grace
	}
	pod.Spec.Containers = []corev1.Container{{
		Name: podmeta.ServingContainer, Image: "hotseat.local/requester:" + cmp.Or(v.tag, "dev"), ImagePullPolicy: corev1.PullIfNotPresent,
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8000}},
		ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 10, FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/ready?wait=5s", Port: intstr.FromInt32(8080)},
		}},
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{podmeta.ResourceGPU: *resource.NewQuantity(int64(max(1, v.gpus)), resource.DecimalSI)}},
	}}
	if v.alone {
		pod.Spec.Containers[0].ReadinessProbe = nil
	}
	if v.delay != usualDelay {
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "HOTSEAT_REQUESTER_SHUTDOWN_DELAY", Value: cmp.Or(v.delay, "0s")}}
	}
	if v.claims != "" { // what a Pod says of its environment counts more than what the device plugin says
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: "NVIDIA_VISIBLE_DEVICES", Value: v.claims})
	}
	pod.Spec.Containers[0].Lifecycle = preStop(v.hook)
	return pod
}

// usualDelay is the shutdown delay of requesters that say none.
const usualDelay = "usual"

// preStop is a hook that sleeps for so many seconds.
func preStop(seconds int64) *corev1.Lifecycle {
	if seconds == 0 {
		return nil
	}
	return &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: seconds}}}
}

// deploy makes a Deployment of n requesters, and a Service that leads to them.
func (s *site) deploy(v server, n int32) {
	s.t.Helper()
	s.service(v.app, map[string]string{"app": v.app})
	s.deployment(v, n)
}

// deployment makes a Deployment of n requesters.
func (s *site) deployment(v server, n int32) {
	s.t.Helper()
	require.NoError(s.t, s.api.Create(s.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: v.app},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": v.app}}, Template: v.template(s.t),
		},
	}))
}

// start makes one requester that nobody replaces, named as the app.
func (s *site) start(v server) *corev1.Pod {
	s.t.Helper()
	template := v.template(s.t)
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.Name = s.ns, v.app
	require.NoError(s.t, s.api.Create(s.t.Context(), pod))
	return pod
}

// service makes a Service of port 8000.
func (s *site) service(name string, selector map[string]string) {
	s.t.Helper()
	require.NoError(s.t, s.api.Create(s.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name},
		Spec:       corev1.ServiceSpec{Selector: selector, Ports: []corev1.ServicePort{{Port: 8000}}},
	}))
}

// byHand makes a launcher of the test's own. The controller serves it, because its
// LauncherConfig owns it, and never replaces it, because that LauncherConfig cannot be
// used: its template has a command.
func (s *site) byHand(pod *corev1.Pod) {
	s.t.Helper()
	name := pod.Labels[podmeta.LabelLauncherConfig]
	config := &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}}
	config.Spec.PodTemplate.Raw = []byte(`{"spec":{"containers":[{"name":"inference-server","image":"hotseat.local/launcher:dev","command":["by-hand"]}]}}`)
	config.Spec.AllocationCheck.Mode = v1alpha1.AllocationCheckNone // tests have requesters name GPUs that they were not given
	if err := s.api.Create(s.t.Context(), config); !apierrors.IsAlreadyExists(err) {
		require.NoError(s.t, err)
	}
	require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKeyFromObject(config), config))
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(config, v1alpha1.GroupVersion.WithKind("LauncherConfig"))}
	require.NoError(s.t, s.api.Create(s.t.Context(), pod))
	s.ready("pod/" + pod.Name)
}

// launcherPod reads the Pod of testdata/launcher.yaml, and names it.
func (s *site) launcherPod(name string) *corev1.Pod {
	s.t.Helper()
	text, err := os.ReadFile("testdata/launcher.yaml")
	require.NoError(s.t, err)
	var pod corev1.Pod
	require.NoError(s.t, yaml.UnmarshalStrict(text, &pod))
	pod.Namespace, pod.Name = s.ns, name
	return &pod
}

// addLauncher makes a launcher by hand, on a node and with flags besides those of
// testdata/launcher.yaml, and waits until it is ready.
func (s *site) addLauncher(node int, flags ...string) {
	s.t.Helper()
	pod := s.launcherPod("launcher-" + cluster.NodeName(node))
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: cluster.NodeName(node)}
	pod.Spec.Containers[0].Args = append(pod.Spec.Containers[0].Args, flags...)
	s.byHand(pod)
}

// delete deletes a Pod, as kubectl does that does not wait.
func (s *site) delete(pod string, flags ...string) {
	s.t.Helper()
	s.kubectl(append([]string{"delete", "pod", pod, "--wait=false"}, flags...)...)
}

// instance waits until the launcher's instance of that app is in that state.
func (s *site) instance(launcher, app, state string) launcherapi.Instance {
	s.t.Helper()
	c := s.launcher(launcher)
	var last launcherapi.Instance
	s.eventually(fmt.Sprintf("the instance of %s is %s", app, state), func() bool {
		list, err := c.List(s.t.Context())
		if err != nil {
			return false
		}
		for _, i := range list.Instances {
			if i.Model == "org/"+app {
				last = i
				return i.State == state
			}
		}
		return false
	})
	return last
}

// free waits until nothing is bound to a launcher, and it can be deleted freely.
func (s *site) free(launcher string) {
	s.t.Helper()
	s.eventually(launcher+" is bound to nobody", func() bool {
		pod := s.pod(launcher)
		return len(podmeta.BoundTo(pod)) == 0 && len(pod.Finalizers) == 0
	})
}

// status is the controller's word on a requester: its status, or, if it has none, its gate and its
// record.
func (s *site) status(pod string) podmeta.Status {
	s.t.Helper()
	var status podmeta.Status
	p := s.pod(pod)
	if text := p.Annotations[podmeta.AnnotationStatus]; text != "" {
		require.NoError(s.t, json.Unmarshal([]byte(text), &status))
	} else if podmeta.GateOpen(p) {
		said := conditionOf(p, podmeta.ReadinessGate)
		status.State = said.Reason
		_, err := fmt.Sscanf(strings.NewReplacer(",", " ").Replace(said.Message), "instance %s of launcher %s", &status.Instance, &status.Launcher)
		require.NoError(s.t, err, "%+v", said)
		records, _ := podmeta.ReadBindings(s.pod(status.Launcher))
		for _, r := range records {
			if r.RequesterUID == p.UID {
				status.Generation = r.Generation
			}
		}
	}
	return status
}

// events are the messages of those about an object.
func (s *site) events(object string) []string {
	s.t.Helper()
	var list corev1.EventList
	require.NoError(s.t, s.api.List(s.t.Context(), &list, client.InNamespace(s.ns)))
	var messages []string
	for _, e := range list.Items {
		if e.InvolvedObject.Name == object {
			messages = append(messages, e.Message)
		}
	}
	return messages
}

// kill ends the API server process of an engine on the first node by SIGKILL.
func (s *site) kill(i launcherapi.Instance) {
	s.t.Helper()
	s.killProcess(1, cluster.Process{CommandLine: "/enginesim .*" + i.Model, PID: i.PID})
}

// killProcess ends the one process of a node by SIGKILL that is so.
func (s *site) killProcess(node int, so cluster.Process) {
	s.t.Helper()
	_, err := s.cluster.Signal(s.t.Context(), node, "KILL", so)
	require.NoError(s.t, err)
}

// proxy is what a requester program says that it carries. The address of a Pod that
// has just gone answers nothing at all.
func (s *site) proxy(ip string) (proxy requesterapi.Proxy, err error) {
	resp, err := s.order(ip, http.MethodGet, requesterapi.PathProxyConfig, 5*time.Second)
	if err != nil {
		return proxy, err
	}
	defer resp.Body.Close()
	return proxy, json.NewDecoder(resp.Body).Decode(&proxy)
}

// order calls a requester program as the controller does. The program takes orders by TLS if
// the chart has added the mount to its Pod.
func (s *site) order(ip, method, path string, timeout time.Duration) (*http.Response, error) {
	s.t.Helper()
	scheme, transport := "http://", s.once(nil)
	defer transport.CloseIdleConnections()
	if s.hasPolicyForRequesters() {
		config, err := authoritytest.Requester(authoritySecret(s.t))
		require.NoError(s.t, err)
		scheme, transport.TLSClientConfig = "https://", config
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, scheme+ip+":8081"+path, nil)
	require.NoError(s.t, err)
	return (&http.Client{Transport: transport, Timeout: timeout}).Do(req)
}

// draining waits until a requester sees its clients off.
func (s *site) draining(ip string) {
	s.t.Helper()
	s.eventually("the requester sees its clients off", func() bool {
		proxy, err := s.proxy(ip)
		return err == nil && proxy.State == requesterapi.StateDraining
	})
}

// shown waits until the app's one requester is ready and its status says that it serves: from
// then on it is replaced if its instance ends. The program is ready a moment before.
func (s *site) shown(app string) corev1.Pod {
	s.t.Helper()
	pod := s.served(app, 1)[0]
	s.eventually("the status of "+pod.Name+" says that it serves", func() bool { return s.status(pod.Name).State == "Serving" })
	return pod
}

// replaced waits until the app has one ready requester that is another than was.
func (s *site) replaced(app string, was corev1.Pod) corev1.Pod {
	s.t.Helper()
	s.eventually("another requester than "+was.Name+" is there", func() bool {
		pods := s.pods(app)
		return len(pods) > 0 && pods[0].UID != was.UID
	})
	return s.served(app, 1)[0]
}

// stays checks for a moment that something stays so: what must not happen gives
// no event to wait for.
func (s *site) stays(what string, so func() bool) {
	s.t.Helper()
	for began := time.Now(); time.Since(began) < time.Second; <-time.After(50 * time.Millisecond) {
		require.True(s.t, so(), what)
	}
}

// pids are the instances of an app that are in that state, as launcher/process.
func (s *site) pids(app string, launchers []string, state string) (pids []string) {
	s.t.Helper()
	for _, name := range launchers {
		list, err := s.launcher(name).List(s.t.Context())
		require.NoError(s.t, err)
		for _, i := range list.Instances {
			if i.Model == "org/"+app && i.State == state {
				pids = append(pids, fmt.Sprintf("%s/%d", name, i.PID))
			}
		}
	}
	return pids
}
