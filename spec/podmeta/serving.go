package podmeta

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Labels of the Pods, Services and EndpointSlices of a ModelServing. Kthena's ModelServing has
// labels of the same names, with a prefix of its own.
const (
	PrefixServing = "modelserving." + PrefixOwn

	LabelServing          = PrefixServing + "name"               // name of the ModelServing
	LabelServingGroup     = PrefixServing + "group-name"         // name of the ServingGroup, such as llama-0
	LabelServingRole      = PrefixServing + "role"               // name of the role, such as prefill
	LabelServingRoleID    = PrefixServing + "role-id"            // which replica of the role, such as prefill-0
	LabelServingEntry     = PrefixServing + "entry"              // "true" on an entry
	LabelServingRevision  = PrefixServing + "revision"           // the revision of the template that a Pod was made from
	LabelRoleTemplateHash = PrefixServing + "role-template-hash" // likewise, of its role alone

	// AnnotationRank is on a requester whose engine is one rank of a server over several launchers,
	// as in "1/2": see [Rank]. AnnotationServer is on it while it may take part in a start of that
	// server: [Server] as JSON. AnnotationNextServer is on it likewise while its model is changed in
	// place: the start of the server that is to come.
	AnnotationRank       = PrefixServing + "rank"
	AnnotationServer     = PrefixServing + "server"
	AnnotationNextServer = PrefixServing + "next-server"

	// AnnotationReplicas is on the ControllerRevision of a template: how many replicas its roles
	// had while it was the present one, as JSON.
	AnnotationReplicas = PrefixServing + "replicas"

	// GateGang is the scheduling gate of the Pods of a group that get nodes together: the controller
	// takes it off once there is room for all. Only the controller gives it to Pods.
	GateGang = PrefixOwn + "gang"

	// ManagedByServing is the label endpointslice.kubernetes.io/managed-by of their EndpointSlices.
	ManagedByServing = "modelserving.hotseat.dev"
)

// The environment of the Pods of a ModelServing.
const (
	EnvGroupSize    = "GROUP_SIZE"    // how many Pods a replica of the role has: the entry and its workers
	EnvEntryAddress = "ENTRY_ADDRESS" // DNS name of the entry's Service
	EnvWorkerIndex  = "WORKER_INDEX"  // which of these Pods this is; 0: the entry
)

// IsServingEnv reports whether a variable is one that the controller adds to Pods of a
// ModelServing.
func IsServingEnv(name string) bool {
	return slices.Contains([]string{EnvGroupSize, EnvEntryAddress, EnvWorkerIndex}, name)
}

// KindServing is the kind of a ModelServing.
const KindServing = "ModelServing"

// ServingOf returns the ModelServing that controls an object; nil: none does.
func ServingOf(o metav1.Object) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(o)
	if owner == nil || owner.Kind != KindServing || !strings.HasPrefix(owner.APIVersion, PrefixOwn) {
		return nil
	}
	return owner
}

// DeletionCost returns the pod-deletion-cost of a Pod. The API server checks its form.
func DeletionCost(pod *corev1.Pod) int32 {
	cost, err := strconv.ParseInt(pod.Annotations[corev1.PodDeletionCost], 10, 32)
	if err != nil { // it has none
		return 0
	}
	return int32(cost)
}

// AwaitsGang reports whether a Pod carries GateGang.
func AwaitsGang(pod *corev1.Pod) bool { return hasGate(&pod.Spec, GateGang) }

func hasGate(spec *corev1.PodSpec, name string) bool {
	return slices.ContainsFunc(spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == name })
}

// ReservedGPUs returns how many GPUs the scheduler reserves for a Pod.
func ReservedGPUs(spec *corev1.PodSpec) int64 {
	of := func(c *corev1.Container) int64 {
		if n, ok := c.Resources.Requests[ResourceGPU]; ok {
			return n.Value()
		}
		n := c.Resources.Limits[ResourceGPU] // the API server takes it for the request
		return n.Value()
	}
	var most, sidecars, sum int64
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars += of(c)
			continue
		}
		most = max(most, sidecars+of(c))
	}
	for i := range spec.Containers {
		sum += of(&spec.Containers[i])
	}
	return max(most, sidecars+sum)
}

// HoldsGPUs reports whether a container of a Pod asks for GPUs.
func HoldsGPUs(spec *corev1.PodSpec) bool {
	asks := func(c corev1.Container) bool {
		requested := c.Resources.Requests[ResourceGPU]
		return hasGPUs(&c) || !requested.IsZero()
	}
	return slices.ContainsFunc(spec.InitContainers, asks) || slices.ContainsFunc(spec.Containers, asks)
}

// reservedPrefixes begin the keys that only the controller writes, but for usersAnnotations.
var reservedPrefixes = []string{Prefix, PrefixAlias, PrefixOwn, PrefixServing}

// usersAnnotations are the keys of annotations of a Pod that users write.
var usersAnnotations = []string{
	AnnotationServerPatch, AnnotationInferenceServerConfig, AnnotationAdminPort, AnnotationLauncherConfig, AnnotationModelCache, AnnotationOnExit,
	alias(AnnotationServerPatch), alias(AnnotationInferenceServerConfig), alias(AnnotationAdminPort),
}

// IsReservedAnnotation reports whether only the controller writes an annotation of Pods.
func IsReservedAnnotation(key string) bool {
	return isReserved(key) && !slices.Contains(usersAnnotations, key)
}

// IsReservedLabel reports whether only the controller gives a Pod a label: also those that make
// a Pod a launcher or an agent.
func IsReservedLabel(key, value string) bool {
	return isReserved(key) || key == LabelComponent && slices.Contains([]string{ComponentLauncher, ComponentAgent}, value)
}

func isReserved(key string) bool {
	return slices.ContainsFunc(reservedPrefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}
