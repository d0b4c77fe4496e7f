//go:build cluster && vllm

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/harness"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// realLauncher is a launcher Pod of a node whose engine is real vLLM. Its Python, its
// libraries and its models are the machine's: the image has the launcher alone.
func realLauncher(t *testing.T, ns, folder string, node int) *corev1.Pod {
	t.Helper()
	python, err := filepath.EvalSymlinks(filepath.Join(folder, "venv", "bin", "python"))
	require.NoError(t, err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: ns, Name: "launcher-vllm-" + cluster.NodeName(node),
		Labels: map[string]string{podmeta.LabelComponent: podmeta.ComponentLauncher, podmeta.LabelLauncherConfig: "vllm-cpu"},
	}}
	c := corev1.Container{
		Name: podmeta.ServingContainer, Image: "hotseat.local/launcher:dev", ImagePullPolicy: corev1.PullNever,
		Command: []string{"/launcher", "init", "--", "serve"},
		Args: []string{
			"--listen=0.0.0.0:8001", "--instance-host=0.0.0.0", "--token-file=/etc/hotseat/token",
			"--state-dir=/var/lib/hotseat/state/launcher", fmt.Sprintf("--gpus=simulated:%d", laneOf(t).cluster.GPUs), "--vllm=" + filepath.Join(folder, "bin", "vllm"),
		},
		Env: []corev1.EnvVar{
			{Name: "HOTSEAT_SIMGPU_DIR", Value: cluster.SimGPUDir}, {Name: "VLLM_CPU_KVCACHE_SPACE", Value: "1"},
			{Name: "HOTSEAT_RANK_ADDRESS", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
			{Name: "OMP_NUM_THREADS", Value: "1"}, {Name: "VLLM_CPU_OMP_THREADS_BIND", Value: "nobind"},
			{Name: "HF_HUB_OFFLINE", Value: "1"}, {Name: "HOME", Value: "/tmp"}, {Name: "PATH", Value: filepath.Join(folder, "venv", "bin") + ":/usr/bin:/bin"},
		},
		ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8001)}}, PeriodSeconds: 1},
	}
	mount := func(path string, source corev1.VolumeSource, readOnly bool) {
		name := strings.Trim(strings.NewReplacer("/", "-", ".", "-", "_", "-").Replace(path), "-")
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: readOnly})
	}
	directory := corev1.HostPathDirectory
	host := func(path string) corev1.VolumeSource {
		return corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &directory}}
	}
	paths := []string{folder, filepath.Dir(filepath.Dir(python)), "/usr", "/lib", "/lib64", "/bin"}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) { // a Python of the distribution is in /usr
		mount(path, host(path), true)
	}
	mount(cluster.SimGPUDir, host(cluster.SimGPUDir), false)
	for _, path := range []string{"/var/lib/hotseat/state", "/tmp"} {
		mount(path, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, false)
	}
	mount("/dev/shm", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}, false)
	mode := int32(0o400)
	mount("/etc/hotseat", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: tokenSecret, DefaultMode: &mode}}, true)
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: cluster.NodeName(node)}
	pod.Spec.Containers = []corev1.Container{c}
	return pod
}

// realRequester asks for one of the tiny models, on a node.
func realRequester(ns, folder, model string, node int, more ...string) *corev1.Pod {
	args := append([]string{
		filepath.Join(folder, "models", "tiny-"+model), "--served-model-name", "org/model-" + model, "--dtype", "float32",
		"--enforce-eager", "--max-model-len", "256", "--max-num-seqs", "4",
	}, more...)
	patch := "spec: {containers: [{name: inference-server, command: [vllm, serve], args: [\"" + strings.Join(args, `", "`) + "\"]}]}"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: ns, Name: "model-" + model, Labels: map[string]string{"app": "model-" + model},
		Annotations: map[string]string{podmeta.AnnotationServerPatch: patch, podmeta.AnnotationLauncherConfig: "vllm-cpu"},
	}}
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: cluster.NodeName(node)}
	pod.Spec.Containers = []corev1.Container{{
		Name: podmeta.ServingContainer, Image: "hotseat.local/requester:dev", ImagePullPolicy: corev1.PullNever,
		ReadinessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(8080)}}, PeriodSeconds: 1,
		},
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{podmeta.ResourceGPU: quantity(1)}},
	}}
	return pod
}

func TestRealModelsTakeTurns(t *testing.T) {
	real, err := harness.FindVLLM()
	require.NoError(t, err)
	folder := real.Folder
	s := newBareSite(t)
	s.onOneGPU()
	s.byHand(realLauncher(t, s.ns, folder, 1))
	launcher := s.launcher("launcher-vllm-" + cluster.NodeName(1))

	pids := map[string]int{}
	for _, model := range []string{"a", "b", "a", "b"} {
		pod := realRequester(s.ns, folder, model, 1)
		began := time.Now()
		require.NoError(t, s.api.Create(t.Context(), pod))
		s.within(patience.LongWait(), "the Pod of model "+model+" is ready", func() bool { return readyPod(s.pod(pod.Name)) })
		took := time.Since(began)
		got, err := s.ask(s.pod(pod.Name).Status.PodIP+":8000", "org/model-"+model)
		require.NoError(t, err)
		assert.Equal(t, "org/model-"+model, got)

		var here string
		list, err := launcher.List(t.Context())
		require.NoError(t, err)
		for _, i := range list.Instances {
			if i.ServedModelNames[0] == "org/model-"+model {
				here = i.State
				if pids[model] != 0 {
					assert.Equal(t, pids[model], i.PID, "it was started anew")
				}
				t.Logf("model %s: ready %s after its Pod was made; started by %s, timings %v", model, took.Round(time.Millisecond), i.StartedBy, i.Timings)
				pids[model] = i.PID
			} else {
				assert.Equal(t, "sleeping", i.State)
			}
		}
		assert.Equal(t, "awake", here)
		require.NoError(t, s.api.Delete(t.Context(), pod))
		s.gone("model-" + model)
	}
}

// TestRealModelIsServedByTwoRanksOnTwoNodes has real vLLM on a CPU split one model over the
// launchers of two nodes.
func TestRealModelIsServedByTwoRanksOnTwoNodes(t *testing.T) {
	real, err := harness.FindVLLM()
	require.NoError(t, err)
	s := newBareSite(t)
	s.onOneGPU() // else the kubelet may give the next Pods other GPUs, where no rank sleeps
	s.onOneGPUOf(2, "0")
	role := v1alpha1.ServingRole{Name: "server", WorkerReplicas: new(int32(1))}
	for n, into := range []**runtime.RawExtension{&role.EntryTemplate, &role.WorkerTemplate} {
		s.byHand(realLauncher(t, s.ns, real.Folder, n+1))
		pod := realRequester(s.ns, real.Folder, "a", n+1, "--tensor-parallel-size", "2")
		raw, err := json.Marshal(corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec})
		require.NoError(t, err)
		*into = &runtime.RawExtension{Raw: raw}
	}
	create := func() {
		t.Helper()
		serving := &v1alpha1.ModelServing{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "big"}}
		serving.Spec.Template.Roles = []v1alpha1.ServingRole{role}
		require.NoError(t, s.api.Create(t.Context(), serving))
	}
	serves := func() (entry, worker launcherapi.Instance) {
		t.Helper()
		began := time.Now()
		s.within(patience.LongWait(), "the server of two ranks serves", func() bool {
			status := s.modelServing("big").Status
			return status.ReadyReplicas == 1 && len(status.Groups) == 1
		})
		t.Logf("the server serves after %s", time.Since(began).Round(time.Millisecond))
		got, err := s.ask(s.pod(bigEntry).Status.PodIP+":8000", "org/model-a")
		require.NoError(t, err)
		assert.Equal(t, "org/model-a", got)
		_, entry = s.boundTo(bigEntry)
		_, worker = s.boundTo(bigWorker)
		return entry, worker
	}
	create()
	entry, worker := serves()
	require.NoError(t, s.api.Delete(t.Context(), s.modelServing("big")))
	s.gone("model-a")
	create()
	again, other := serves()
	assert.Equal(t, []int{entry.PID, worker.PID}, []int{again.PID, other.PID}, "the ranks were woken together")

	uids := []types.UID{s.pod(bigEntry).UID, s.pod(bigWorker).UID}
	s.killProcess(2, cluster.Process{CommandLine: "vllm", PID: other.PID})
	s.within(patience.LongWait(), "the server is not ready", func() bool { return s.modelServing("big").Status.ReadyReplicas == 0 })
	anew, _ := serves()
	assert.NotEqual(t, again.Rank.Group, anew.Rank.Group)
	assert.Equal(t, uids, []types.UID{s.pod(bigEntry).UID, s.pod(bigWorker).UID}, "both ranks start again for the same Pods")
}
