package form

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"hotseat.dev/hotseat/spec/podmeta"
)

const (
	patchField     = "metadata.annotations[" + podmeta.AnnotationServerPatch + "]"
	containerField = "spec.containers[" + podmeta.ServingContainer + "]"
)

// FromPatch reduces a server patch, for the requester that it stands on. The
// requester's own problems are those that podmeta.ReadRequester tells.
//
// The patch is applied as a strategic merge patch to the requester without its
// annotations and without the labels that the controller put there. What the
// nominal Pod has just as the requester has it is the requester's own and is
// asked of nobody; plain variables of the environment alone are taken over.
// {{ .NodeName }} in a patch stands for the requester's node, as in the llm-d
// community's patches; other braces are left as they are.
func FromPatch(requester *corev1.Pod, patch string) (Form, []podmeta.Problem) {
	who, _ := podmeta.ReadRequester(requester)
	w := work{form: Form{Env: map[string]string{}, GPUs: who.GPUs, ModelCache: who.ModelCache}}
	base := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: requester.Namespace, Labels: who.OwnLabels(requester)},
		Spec:       *requester.Spec.DeepCopy(),
	}
	if podmeta.ServingOf(requester) != nil {
		removeServingEnv(&base.Spec)
	}
	if c := podmeta.Container(&base.Spec, podmeta.ServingContainer); c != nil {
		followSubgroup(requester, c)
	}
	pod := w.apply(base, patch)
	if pod == nil {
		return w.done()
	}
	theirs := podmeta.Container(&pod.Spec, podmeta.ServingContainer)
	if theirs == nil {
		w.invalid("spec.containers", fmt.Sprintf("neither the requester nor the patch has one named %s: the patch should say of it what to run", podmeta.ServingContainer))
		return w.done()
	}
	own := podmeta.Container(&base.Spec, podmeta.ServingContainer)
	if own == nil {
		own = &corev1.Container{}
	}
	w.launcherConfig(pod, who)
	w.image(theirs, own)
	vars := w.environment(theirs, own)
	port := w.command(theirs, own, vars)
	w.port(port, theirs, own, podmeta.ProgramOf(requester).Container)
	w.resources(theirs, who.GPUs)
	w.mounts(pod, theirs, own)
	w.others(pod, base, theirs, own)
	w.relay(pod.Labels, who.OwnLabels(requester), "metadata.labels")
	w.annotate(pod.Annotations, "metadata.annotations")
	w.checkPort(requester, who.AdminPort, containerField+".ports")
	return w.done()
}

// removeServingEnv removes the variables that the controller adds to the Pods of a ModelServing.
// They differ between Pods that run the same server, so they are no part of what runs. A
// $(ENTRY_ADDRESS) in the arguments stays as it is.
func removeServingEnv(spec *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			containers[i].Env = slices.DeleteFunc(containers[i].Env, func(e corev1.EnvVar) bool { return podmeta.IsServingEnv(e.Name) })
		}
	}
}

// In the llm-d community's patches, templates of Go, these two values are given.
var (
	nodeName    = regexp.MustCompile(`\{\{-?\s*\.NodeName\s*-?\}\}`)
	localVolume = regexp.MustCompile(`\{\{-?\s*\.LocalVolume\s*-?\}\}`)
)

// apply returns the nominal server-providing Pod, or nil and a problem.
func (w *work) apply(base *corev1.Pod, patch string) *corev1.Pod {
	if localVolume.MatchString(patch) {
		w.cannotGive(patchField, "{{ .LocalVolume }} stands for a volume claim of the node: let the podTemplate of the LauncherConfig mount it")
		return nil
	}
	patch = nodeName.ReplaceAllLiteralString(patch, base.Spec.NodeName)
	patchJSON, err := toJSON(patch)
	if err != nil {
		w.invalid(patchField, fmt.Sprintf("is no YAML: %v", err))
		return nil
	}
	if !bytes.HasPrefix(patchJSON, []byte("{")) {
		w.invalid(patchField, "is no patch: it should have the shape of a Pod, such as spec: {containers: [{name: inference-server, args: […]}]}")
		return nil
	}
	baseJSON, err := json.Marshal(base)
	if err != nil {
		w.invalid("metadata", fmt.Sprintf("cannot be written as JSON: %v", err))
		return nil
	}
	merged, err := merge(baseJSON, patchJSON)
	if err != nil {
		w.invalid(patchField, fmt.Sprintf("cannot be applied to this Pod as a strategic merge patch: %v", err))
		return nil
	}
	pod := &corev1.Pod{}
	strict, err := kjson.UnmarshalStrict(merged, pod)
	if err != nil {
		w.invalid(patchField, fmt.Sprintf("makes no Pod: %v", err))
		return nil
	}
	for _, err := range strict {
		w.invalid(patchField, fmt.Sprintf("makes no Pod: %v", err))
	}
	if len(strict) > 0 {
		return nil
	}
	return pod
}

// toJSON returns a patch as JSON. A patch that is JSON is taken as it stands: YAML knows no pairs of
// escaped surrogates, as most writers of JSON make of an emoji.
func toJSON(patch string) ([]byte, error) {
	text := bytes.TrimSpace([]byte(patch))
	if !bytes.HasPrefix(text, []byte("{")) || !json.Valid(text) {
		return yaml.YAMLToJSONStrict([]byte(patch))
	}
	var read map[string]any
	twice, err := kjson.UnmarshalStrict(text, &read)
	return text, errors.Join(append(twice, err)...)
}

// merge applies a strategic merge patch to a Pod. Kubernetes' library panics on
// merge keys that are maps or lists, such as {name: {a: b}}.
func merge(pod, patch []byte) (merged []byte, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("a list holds something whose key is no text or number: %v", reason)
		}
	}()
	return strategicpatch.StrategicMergePatch(pod, patch, corev1.Pod{})
}

func (w *work) launcherConfig(pod *corev1.Pod, who podmeta.Requester) {
	const field = "metadata.annotations[" + podmeta.AnnotationLauncherConfig + "]"
	named, ok := pod.Annotations[podmeta.AnnotationLauncherConfig]
	w.form.LauncherConfig = who.LauncherConfig
	if !ok {
		return
	}
	if wrong := validation.IsDNS1123Subdomain(named); len(wrong) > 0 {
		w.invalid(field, fmt.Sprintf("%q in the patch cannot be the name of an object: %s", named, wrong[0]))
		return
	}
	if who.LauncherConfig != "" && who.LauncherConfig != named {
		w.invalid(field, fmt.Sprintf("is %s in the patch and %s on the requester: keep one of the two", named, who.LauncherConfig))
	}
	w.form.LauncherConfig = named
}

func (w *work) image(theirs, own *corev1.Container) {
	switch {
	case theirs.Image != own.Image:
		w.form.Image = theirs.Image
	case w.form.LauncherConfig == "":
		w.invalid(containerField+".image", fmt.Sprintf("is the requester's own: the patch should name the image with vLLM, or annotation %s the LauncherConfig", podmeta.AnnotationLauncherConfig))
	}
}

// port settles where the requester answers: what the arguments say, or the port
// that the patch adds to the container, or the one that its readiness probe
// asks, or the port named http of the requester program or of the container as the
// requester has it, or vLLM's 8000.
func (w *work) port(said int32, theirs, own, program *corev1.Container) {
	w.form.Port = 8000
	if said != 0 {
		w.form.Port = said
		return
	}
	added := slices.DeleteFunc(slices.Clone(theirs.Ports), func(p corev1.ContainerPort) bool {
		return p.Protocol != "" && p.Protocol != corev1.ProtocolTCP ||
			slices.ContainsFunc(own.Ports, func(o corev1.ContainerPort) bool { return o.ContainerPort == p.ContainerPort })
	})
	http := func(p corev1.ContainerPort) bool { return p.Name == "http" }
	if len(added) > 1 && slices.ContainsFunc(added, http) {
		added = slices.DeleteFunc(added, func(p corev1.ContainerPort) bool { return !http(p) })
	}
	switch probe := probePort(theirs.ReadinessProbe, theirs); {
	case len(added) > 1:
		numbers := make([]string, len(added))
		for i, p := range added {
			numbers[i] = fmt.Sprint(p.ContainerPort)
		}
		w.invalid(containerField+".ports", fmt.Sprintf("%s could each be where the server answers: name one of them http, or say --port in its arguments", strings.Join(numbers, ", ")))
	case len(added) == 1:
		w.form.Port = added[0].ContainerPort
	case probe != 0 && probe != probePort(own.ReadinessProbe, own):
		w.form.Port = probe
	default:
		ports := own.Ports
		if program != nil {
			ports = slices.Concat(program.Ports, own.Ports)
		}
		if i := slices.IndexFunc(ports, http); i >= 0 {
			w.form.Port = ports[i].ContainerPort
		}
	}
	if w.form.Port < 1 || w.form.Port > 65535 {
		w.invalid(containerField+".ports", fmt.Sprintf("%d is no port: it should be a number from 1 to 65535", w.form.Port))
	}
}

// resources sees to the GPUs: the requester holds them, so that a patch can
// neither add nor remove any. What else it asks for the launcher Pod has.
func (w *work) resources(theirs *corev1.Container, gpus int) {
	q, ok := theirs.Resources.Limits[podmeta.ResourceGPU]
	if n, wrong := podmeta.GPUs(theirs.Resources.Limits); ok && gpus > 0 && !q.IsZero() && (wrong != "" || n != gpus) {
		w.invalid(containerField+".resources.limits["+string(podmeta.ResourceGPU)+"]", fmt.Sprintf("%s in the patch, and %d on the requester, which holds them: leave it out of the patch", q.String(), gpus))
	}
}
