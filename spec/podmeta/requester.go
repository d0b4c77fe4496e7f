package podmeta

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/mtls"
)

// Input is how a requester says which inference server it wants.
type Input string

// The inputs. InputNone is that of a seat without a model; it stands also where the input is not clear.
const (
	InputNone   Input = ""
	InputPatch  Input = "server-patch"
	InputConfig Input = "inference-server-config"
)

// Requester is what a server-requesting Pod says.
type Requester struct {
	UID       types.UID
	Namespace string
	Name      string
	Node      string // empty until it is scheduled

	Input      Input
	Patch      string // with InputPatch: the server patch
	ConfigName string // with InputConfig: name of the InferenceServerConfig

	LauncherConfig string   // name of the LauncherConfig that the requester asks for; empty where it does not
	ModelCache     string   // one of ModelCacheModes; empty where it does not say
	OnExit         OnExit   // what becomes of it when its instance ends while it serves; empty where it does not say
	AdminPort      int32    // where the requester program listens for the controller
	TLS            bool     // it takes orders by TLS, from the controller alone: it mounts the ConfigMap mtls.ConfigMap
	GPUs           int      // how many GPUs the container of the requester program holds
	Gated          bool     // the Pod lists ReadinessGate
	Rank           Rank     // of a server over several launchers
	RelayedLabels  []string // keys of its labels that the controller put there, sorted
}

// IsRequester tells whether a Pod asks for an inference server. One that the
// controller holds does, whatever its annotations say, and so does a seat without a
// model.
func IsRequester(pod *corev1.Pod) bool {
	if Held(pod) || IsSeat(pod) {
		return true
	}
	for _, key := range []string{AnnotationServerPatch, AnnotationInferenceServerConfig} {
		if _, ok := pod.Annotations[key]; ok {
			return true
		}
		if _, ok := pod.Annotations[alias(key)]; ok {
			return true
		}
	}
	return false
}

// Held tells whether the controller holds a Pod as a requester: it has
// FinalizerRequester.
func Held(pod *corev1.Pod) bool { return slices.Contains(pod.Finalizers, FinalizerRequester) }

// ReadRequester reads a server-requesting Pod. With problems the Requester
// holds what could be read all the same; nothing should be started from it.
func ReadRequester(pod *corev1.Pod) (Requester, []Problem) {
	r := reading{pod: pod}
	got := Requester{
		UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: pod.Spec.NodeName,
		LauncherConfig: r.objectName(r.value(AnnotationLauncherConfig)),
		RelayedLabels:  r.relayedLabels(),
	}
	if mode, says := pod.Annotations[AnnotationModelCache]; says {
		got.ModelCache = mode
		if wrong := CheckModelCache(mode); wrong != "" {
			r.add(annotationField(AnnotationModelCache), wrong)
		}
	}
	got.OnExit = r.onExit()
	got.Input, got.Patch, got.ConfigName = r.input()
	got.Rank = r.rank()
	got.Gated = slices.ContainsFunc(pod.Spec.ReadinessGates, func(g corev1.PodReadinessGate) bool { return g.ConditionType == ReadinessGate })
	program := ProgramOf(pod)
	got.GPUs = r.gpus(program)
	got.AdminPort = r.adminPort(program)
	if program.Container != nil {
		got.TLS = r.mountsCA(program.Container)
	}
	return got, r.problems
}

// NoTLS is the problem of a requester that does not take orders by TLS where it
// has to.
func NoTLS(pod *corev1.Pod) Problem {
	return invalid(ProgramOf(pod).Field+".volumeMounts", fmt.Sprintf(
		"do not have the ConfigMap %[1]s at %[2]s, and requesters have to take orders from the controller alone here: "+
			"add to the container volumeMounts: [{name: %[1]s, mountPath: %[2]s, readOnly: true}], "+
			"and to the Pod volumes: [{name: %[1]s, configMap: {name: %[1]s}}]", mtls.ConfigMap, mtls.Dir))
}

// mountsCA says that a container mounts the ConfigMap of the authorities, where
// the requester program looks for it.
func (r *reading) mountsCA(c *corev1.Container) bool {
	for _, m := range c.VolumeMounts {
		if strings.TrimRight(m.MountPath, "/") != mtls.Dir || m.SubPath != "" || m.SubPathExpr != "" {
			continue
		}
		for _, v := range r.pod.Spec.Volumes {
			if v.Name == m.Name && v.ConfigMap != nil && v.ConfigMap.Name == mtls.ConfigMap {
				r.checkCA(v)
				return true
			}
		}
	}
	return false
}

// checkCA finds what lets the requester program start without the authorities,
// which it looks for once.
func (r *reading) checkCA(v corev1.Volume) {
	field := "spec.volumes[" + v.Name + "].configMap."
	if v.ConfigMap.Optional != nil && *v.ConfigMap.Optional {
		r.add(field+"optional", fmt.Sprintf(
			"is true, so that the Pod may start before ConfigMap %s is there, and the requester program finds nobody to take orders from: leave optional out, and the Pod waits for it", mtls.ConfigMap))
	}
	has := func(item corev1.KeyToPath) bool { return item.Key == mtls.CAFile && item.Path == mtls.CAFile }
	if len(v.ConfigMap.Items) > 0 && !slices.ContainsFunc(v.ConfigMap.Items, has) {
		r.add(field+"items", fmt.Sprintf(
			"do not put %[1]s at the path %[1]s, where the requester program looks for it: leave items out, or have {key: %[1]s, path: %[1]s} among them", mtls.CAFile))
	}
}

// OwnLabels returns the labels of a requester but for those that the controller
// put there.
func (r Requester) OwnLabels(pod *corev1.Pod) map[string]string {
	own := maps.Clone(pod.Labels)
	for _, key := range r.RelayedLabels {
		delete(own, key)
	}
	return own
}

type reading struct {
	pod      *corev1.Pod
	problems []Problem
}

func (r *reading) add(field, message string) {
	r.problems = append(r.problems, invalid(field, message))
}

func alias(key string) string { return PrefixAlias + strings.TrimPrefix(key, Prefix) }

// value reads an annotation that may be spelled in two ways, and says under
// which key it was found.
func (r *reading) value(key string) (value, found string) {
	value, ok := r.pod.Annotations[key]
	if !strings.HasPrefix(key, Prefix) {
		return value, key
	}
	other, otherOK := r.pod.Annotations[alias(key)]
	switch {
	case ok && otherOK && value != other:
		r.add(annotationField(key), fmt.Sprintf("has another value than %s, which means the same: keep one of the two", alias(key)))
	case !ok && otherOK:
		return other, alias(key)
	}
	return value, key
}

func (r *reading) input() (input Input, patch, config string) {
	patch, patchKey := r.value(AnnotationServerPatch)
	config, configKey := r.value(AnnotationInferenceServerConfig)
	_, hasPatch := r.pod.Annotations[patchKey]
	_, hasConfig := r.pod.Annotations[configKey]
	switch {
	case IsSeat(r.pod) && SeatEdited(r.pod):
		r.add(annotationField(configKey), fmt.Sprintf("is not that of %s, which says which model the seat has: only the controller writes these annotations", AnnotationSeat))
		return InputNone, "", ""
	case hasPatch && hasConfig:
		r.add(annotationField(patchKey), fmt.Sprintf("stands beside %s: keep one of the two", configKey))
		return InputNone, "", ""
	case hasPatch && strings.TrimSpace(patch) == "":
		r.add(annotationField(patchKey), "is empty: it should be a patch that makes this Pod the one that serves")
		return InputNone, "", ""
	case hasPatch:
		return InputPatch, patch, ""
	case hasConfig:
		return InputConfig, "", r.objectName(config, configKey)
	}
	if IsSeat(r.pod) {
		return InputNone, "", ""
	}
	r.add("metadata.annotations", fmt.Sprintf("neither %s nor %s is there: one of them says which inference server is wanted", AnnotationServerPatch, AnnotationInferenceServerConfig))
	return InputNone, "", ""
}

// objectName reads the name of an object in the annotation found; absent is none.
func (r *reading) objectName(name, found string) string {
	if _, ok := r.pod.Annotations[found]; !ok {
		return ""
	}
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
		r.add(annotationField(found), fmt.Sprintf("%q cannot be the name of an object: %s", name, wrong[0]))
		return ""
	}
	return name
}

// ModelCacheModes say from where an engine has its model.
var ModelCacheModes = []string{launcherapi.ModelCacheAuto, launcherapi.ModelCacheRequire, launcherapi.ModelCacheOff}

// CheckModelCache says what is wrong with a value of AnnotationModelCache; empty: nothing.
func CheckModelCache(mode string) string {
	if slices.Contains(ModelCacheModes, mode) {
		return ""
	}
	return fmt.Sprintf("%q is none of auto (the launcher's copy of the model where it has one), require (nothing but that) and off (the engine finds its model by itself)", mode)
}

func (r *reading) adminPort(p Program) int32 {
	value, key := r.value(AnnotationAdminPort)
	if _, ok := r.pod.Annotations[key]; !ok {
		return DefaultAdminPort
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err == nil && n >= 1 && n <= math.MaxUint16 {
		return int32(n)
	}
	if err != nil && p.Container != nil {
		for _, port := range p.Container.Ports {
			if port.Name != "" && port.Name == value {
				return port.ContainerPort
			}
		}
	}
	r.add(annotationField(key), fmt.Sprintf("%q is no port: it should be a number from 1 to 65535, or the name of a port of container %s", value, p.Name))
	return DefaultAdminPort
}

// maxGPUs is what the launcher takes for one instance.
const maxGPUs = 64

// GPUs reads how many GPUs the limits ask for, and says what is wrong where
// that is no number from 1 to 64.
func GPUs(limits corev1.ResourceList) (n int, wrong string) {
	q, ok := limits[ResourceGPU]
	if !ok {
		return 0, "is not there: it says how many GPUs the inference server runs on, 1 or more"
	}
	if q.Cmp(*resource.NewQuantity(1, resource.DecimalSI)) < 0 || q.Cmp(*resource.NewQuantity(maxGPUs, resource.DecimalSI)) > 0 || q.MilliValue()%1000 != 0 {
		return 0, fmt.Sprintf("%s is no number of GPUs: it should be a whole number from 1 to %d", q.String(), maxGPUs)
	}
	return int(q.Value()), ""
}

func (r *reading) relayedLabels() []string {
	value, ok := r.pod.Annotations[AnnotationRelayedLabels]
	if !ok {
		return nil
	}
	var keys []string
	if err := json.Unmarshal([]byte(value), &keys); err != nil {
		r.add(annotationField(AnnotationRelayedLabels), fmt.Sprintf("is no JSON list of label keys (%v): the controller keeps this annotation, nobody else should write it", err))
		return nil
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
