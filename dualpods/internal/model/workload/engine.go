package workload

import (
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"hotseat.dev/hotseat/dualpods/internal/model/merge"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// modelVolume is the volume with the model of an address pvc://CLAIM/PATH, and modelFolder where
// the engine finds it.
const (
	modelVolume = "model"
	modelFolder = "/model"
)

// A model of Ollama's registry is fetched into the store at storeFolder before the engine starts, and
// fetchedFolder leads to its files.
const (
	storeFolder   = modelFolder + "/store"
	fetchedFolder = modelFolder + "/fetched"
)

// vllmArgs returns the arguments of `vllm serve`.
func vllmArgs(e *merge.Entry) []string {
	args := append([]string{modelOf(e)}, e.Settings.Args...)
	args = append(append(args, "--served-model-name"), e.Names...)
	if len(e.Adapters) > 0 {
		args = append(args, "--enable-lora", "--lora-modules")
		for _, a := range e.Adapters {
			args = append(args, fmt.Sprintf("%s=%s", merge.AdapterName(e.Names[0], a.Name), strings.TrimPrefix(a.URL, "hf://")))
		}
	}
	return args
}

// modelOf returns the model as an engine is told: the repository, or a path in the Pod.
func modelOf(e *merge.Entry) string {
	scheme, rest, _ := strings.Cut(e.Settings.URL, "://")
	if scheme == "pvc" {
		_, in, _ := strings.Cut(rest, "/")
		return path.Join(modelFolder, in)
	}
	return rest
}

// command returns the command of an engine in a Pod of its own.
func command(e *merge.Entry) []string {
	port := fmt.Sprint(podmeta.PortModel)
	switch e.Settings.Engine {
	case v1alpha1.EngineLlamaCpp, v1alpha1.EngineOLlama:
		model := []string{"--hf-repo", modelOf(e)}
		switch {
		case strings.HasPrefix(e.Settings.URL, fetchapi.ClaimScheme):
			model = []string{"--model", modelOf(e)}
		case isFetched(e):
			model = []string{"--model", path.Join(fetchedFolder, "model.gguf")} // as modelfetch names it
		}
		return append(append([]string{"llama-server", "--host", "0.0.0.0", "--port", port, "--alias", strings.Join(e.Names, ",")}, model...), e.Settings.Args...)
	case v1alpha1.EngineSGLang:
		return append([]string{"python3", "-m", "sglang.launch_server", "--host", "0.0.0.0", "--port", port, "--served-model-name", e.Names[0], "--model-path", modelOf(e)}, e.Settings.Args...)
	default:
		return append(append([]string{"vllm", "serve"}, vllmArgs(e)...), "--host=0.0.0.0", "--port="+port) // the model has to come first
	}
}

// isFetched reports whether the model is fetched before the engine starts.
func isFetched(e *merge.Entry) bool {
	return strings.HasPrefix(e.Settings.URL, modelref.OllamaScheme)
}

// fetcher returns the container that fetches the model of an entry. image has modelfetch, which does not fetch a
// model again that is there. The container has the engine's resources, which it uses before the engine does, and
// the engine's environment, which may name a proxy.
func fetcher(e *merge.Entry, image string) corev1.Container {
	return corev1.Container{
		Name: podmeta.FetchContainer, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
		Command:                  []string{"/modelfetch", "pull", "--store=" + storeFolder, "--link=" + fetchedFolder, e.Settings.URL},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts:             []corev1.VolumeMount{{Name: modelVolume, MountPath: modelFolder}},
		Env:                      podEnv(e),
		Resources:                corev1.ResourceRequirements{Limits: e.Limits(), Requests: e.Requests()},
	}
}

func podEnv(e *merge.Entry) (all []corev1.EnvVar) {
	for _, v := range configEnv(e.Settings.Env) {
		all = append(all, corev1.EnvVar{Name: v.Name, Value: v.Value})
	}
	return all
}

// enginePod returns the template of a Pod that runs the engine itself. fetchImage has modelfetch.
func enginePod(e *merge.Entry, fetchImage string) corev1.PodTemplateSpec {
	container := corev1.Container{
		Name: podmeta.ServingContainer, Image: e.Settings.Image, ImagePullPolicy: corev1.PullIfNotPresent,
		Command: command(e),
		// The status has the end of the log, when the engine fails.
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		Ports:                    []corev1.ContainerPort{{Name: "http", ContainerPort: podmeta.PortModel}},
		Resources:                corev1.ResourceRequirements{Limits: e.Limits(), Requests: e.Requests(), Claims: e.Claims()},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/health", Port: intstr.FromInt32(podmeta.PortModel)}},
			PeriodSeconds: 1, FailureThreshold: 3, TimeoutSeconds: 5,
		},
	}
	container.Env = podEnv(e)
	spec := corev1.PodSpec{ResourceClaims: e.Profile.ResourceClaims}
	if isFetched(e) {
		container.VolumeMounts = []corev1.VolumeMount{{Name: modelVolume, MountPath: modelFolder, ReadOnly: true}}
		spec.Volumes = []corev1.Volume{{Name: modelVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		spec.InitContainers = []corev1.Container{fetcher(e, fetchImage)}
	}
	if claim, isClaim := strings.CutPrefix(e.Settings.URL, fetchapi.ClaimScheme); isClaim {
		claim, _, _ = strings.Cut(claim, "/")
		container.VolumeMounts = []corev1.VolumeMount{{Name: modelVolume, MountPath: modelFolder, ReadOnly: true}}
		spec.Volumes = []corev1.Volume{{Name: modelVolume, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: true}}}}
	}
	spec.Containers = []corev1.Container{container}
	return corev1.PodTemplateSpec{Spec: spec}
}
