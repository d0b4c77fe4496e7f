//go:build cluster && vllm

package e2e

import (
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
	"k8s.io/apimachinery/pkg/util/intstr"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/harness"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// realLauncher is a launcher Pod whose engine is real vLLM. Its Python, its
// libraries and its models are the machine's: the image has the launcher alone.
func realLauncher(t *testing.T, ns, folder string) *corev1.Pod {
	t.Helper()
	python, err := filepath.EvalSymlinks(filepath.Join(folder, "venv", "bin", "python"))
	require.NoError(t, err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: ns, Name: "launcher-vllm",
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
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: cluster.NodeName(1)}
	pod.Spec.Containers = []corev1.Container{c}
	return pod
}

// realRequester asks for one of the tiny models.
func realRequester(ns, folder, model string) *corev1.Pod {
	args := []string{
		filepath.Join(folder, "models", "tiny-"+model), "--served-model-name", "org/model-" + model, "--dtype", "float32",
		"--enforce-eager", "--max-model-len", "256", "--max-num-seqs", "4",
	}
	patch := "spec: {containers: [{name: inference-server, command: [vllm, serve], args: [\"" + strings.Join(args, `", "`) + "\"]}]}"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: ns, Name: "model-" + model, Labels: map[string]string{"app": "model-" + model},
		Annotations: map[string]string{podmeta.AnnotationServerPatch: patch, podmeta.AnnotationLauncherConfig: "vllm-cpu"},
	}}
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: cluster.NodeName(1)}
	pod.Spec.Containers = []corev1.Container{{
		Name: podmeta.ServingContainer, Image: "hotseat.local/requester:dev", ImagePullPolicy: corev1.PullNever,
		ReadinessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(8080)}}, PeriodSeconds: 1,
		},
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{podmeta.ResourceGPU: quantity(1)}},
	}}
	return pod
}

func TestTwoRealModelsTakeTurns(t *testing.T) {
	real, err := harness.FindVLLM()
	require.NoError(t, err)
	folder := real.Folder
	s := newBareSite(t)
	s.onOneGPU()
	s.byHand(realLauncher(t, s.ns, folder))
	launcher := s.launcher("launcher-vllm")

	pids := map[string]int{}
	for _, model := range []string{"a", "b", "a", "b"} {
		pod := realRequester(s.ns, folder, model)
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
