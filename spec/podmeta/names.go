// Package podmeta holds what is written on Pods: the names of annotations,
// labels, finalizers and conditions, and typed views of them.
//
// A server-requesting Pod (requester) is what a user creates; it holds the
// allocation of GPUs. A server-providing Pod (provider) is where the inference
// server runs: a launcher Pod. The names that begin with dual-pod.llm-d.ai/ are
// those of the llm-d community, which spells them dual-pods.llm-d.ai/ too; what
// a user writes is read in both spellings, what the controller writes it writes
// in the first.
package podmeta

import corev1 "k8s.io/api/core/v1"

// The prefixes of what hotseat reads and writes.
const (
	Prefix      = "dual-pod.llm-d.ai/"
	PrefixAlias = "dual-pods.llm-d.ai/" // for what users write
	PrefixOwn   = "hotseat.dev/"
)

// Annotations that a user writes on a requester. The first three may be spelled with PrefixAlias.
const (
	AnnotationServerPatch           = Prefix + "server-patch"            // strategic merge patch, in YAML or JSON
	AnnotationInferenceServerConfig = Prefix + "inference-server-config" // name of an InferenceServerConfig
	AnnotationAdminPort             = Prefix + "admin-port"              // number, or name of a port of the container that runs the requester program
	AnnotationLauncherConfig        = PrefixOwn + "launcher-config"      // name of a LauncherConfig
	AnnotationOnExit                = PrefixOwn + "on-exit"              // what becomes of the requester when its instance ends while it serves: one of OnExits
	AnnotationModelCache            = PrefixOwn + "model-cache"          // on a requester or its namespace: auto, require or off, as launcherapi.InstanceSpec.ModelCache
)

// Annotations that the controller writes.
const (
	AnnotationStatus        = Prefix + "status"            // on a requester: [Status] as JSON
	AnnotationBindingPrefix = Prefix + "binding."          // on a provider, the instance's id behind it: [Binding] as JSON
	AnnotationRelayedLabels = PrefixOwn + "relayed-labels" // on a requester: JSON list of the keys of labels that the controller put there
	AnnotationTemplateHash  = PrefixOwn + "template-hash"  // on a launcher Pod, and on the objects of a Model: what it was made from
	AnnotationUnboundSince  = PrefixOwn + "unbound-since"  // on a launcher Pod: when the last requester was unbound, in RFC 3339; absent while one is bound
)

// AnnotationPlacement stands on a requester from which the controller took
// SchedulingGate: [Placement] as JSON.
const AnnotationPlacement = PrefixOwn + "placement"

// AnnotationEndpoints stands on a Service without a selector that is to lead to requesters: a
// label selector. The controller keeps its EndpointSlices. Their label
// endpointslice.kubernetes.io/managed-by is ManagedByEndpoints. A condition ConditionEndpoints
// of the Service says what is wrong with the annotation, where something is.
const (
	AnnotationEndpoints = PrefixOwn + "endpoints"
	ManagedByEndpoints  = "endpoints.hotseat.dev"
	ConditionEndpoints  = PrefixOwn + "endpoints"
)

// SchedulingGate is the scheduling gate of a requester that is to be placed where its
// model is near: the controller adds preferences for nodes, and takes the gate off.
const SchedulingGate = PrefixOwn + "placement"

// AnnotationMadeFor stands on an instance of a launcher that the controller had
// made: the requester that it was made for, as namespace/name. An instance
// without it was made by somebody by hand, and is left alone.
const AnnotationMadeFor = PrefixOwn + "made-for"

// VolumeModels is the volume of a launcher Pod that has the models of its node.
const VolumeModels = "hotseat-models"

// ClaimDir is where a launcher Pod has a PersistentVolumeClaim that its LauncherConfig
// names for models.
func ClaimDir(claim string) string { return claimsDir + claim }

const claimsDir = "/var/lib/hotseat/claims/"

// Labels.
const (
	LabelLauncherConfig = PrefixOwn + "launcher-config"  // on a launcher Pod: name of its LauncherConfig
	LabelComponent      = "app.kubernetes.io/component"  // on a launcher Pod: ComponentLauncher; on an agent Pod: ComponentAgent
	LabelModelNodeGroup = PrefixOwn + "model-node-group" // on a launcher Pod: ModelCacheNodeGroup whose folder it has; absent: it has no model store
	LabelModelCache     = PrefixOwn + "model-cache"      // on a Job and its Pods: the ModelCache that they fetch for
	LabelModelCacheUID  = PrefixOwn + "model-cache-uid"  // likewise, and on the claim that was made for it: its UID
	LabelManagedBy      = "app.kubernetes.io/managed-by" // on whatever the controller makes: ManagedBy

	ComponentLauncher = "launcher"
	ComponentAgent    = "agent"
	ManagedBy         = "hotseat"
)

// ModelLabel is the label of nodes that have the model of a ClusterModelCache whole,
// with the value ModelReady.
func ModelLabel(cache string) string { return ModelLabelPrefix + cache }

// What ModelLabel is made of.
const (
	ModelLabelPrefix = "model." + PrefixOwn
	ModelReady       = "ready"
)

// ModelClaimPrefix and the name of a ClusterModelCache are the name of the
// PersistentVolumeClaim by which Pods mount its model.
const ModelClaimPrefix = "hotseat-model-"

// LabelModelVolume is on the PersistentVolumes and PersistentVolumeClaims of models: the
// name of the ClusterModelCache.
const LabelModelVolume = PrefixOwn + "cluster-model-cache"

// Finalizers.
const (
	FinalizerRequester  = Prefix + "requester"      // until its server is asleep or gone
	FinalizerProvider   = Prefix + "provider"       // while an instance of it is bound
	FinalizerModel      = PrefixOwn + "model"       // on a Model, until its objects are gone, and what of it slept
	FinalizerModelCache = PrefixOwn + "model-cache" // on a ClusterModelCache, until no node has anything of it; on a ModelCache, until its claim is gone or let go
)

// ReadinessGate is the condition of a requester that is true while its
// inference server answers; the controller sets it where the Pod lists it as a
// readiness gate.
const ReadinessGate corev1.PodConditionType = PrefixOwn + "inference-server"

// ServingContainer is the name of the container that a server patch describes, and that runs
// the launcher in the Pod template of a LauncherConfig. In a requester it runs the requester
// program, unless SidecarContainer does; see [Program].
const ServingContainer = "inference-server"

// FetchContainer is the name of the init container that fetches the model of a Pod that runs
// the engine itself.
const FetchContainer = "modelfetch"

// AgentSet is the name of the DaemonSet of the agents, in the controller's namespace. The agent
// of a node tells which devices the kubelet has given to whom; see package podresourcesapi.
// AgentContainer is the name of its container, and AgentSecret that of the Secret with the
// agents' certificate.
const (
	AgentSet       = "hotseat-agent"
	AgentContainer = "agent"
	AgentSecret    = "hotseat-agent-tls"
)

// SidecarContainer is the name of the init container of a requester that runs the requester
// program as a sidecar.
const SidecarContainer = "requester"

// DefaultAdminPort is where the requester program listens for the controller.
const DefaultAdminPort int32 = 8081

// ResourceGPU is what a container asks for, under limits, to have GPUs.
const ResourceGPU corev1.ResourceName = "nvidia.com/gpu"

// Container returns the container of that name, or nil.
func Container(spec *corev1.PodSpec, name string) *corev1.Container {
	for i := range spec.Containers {
		if spec.Containers[i].Name == name {
			return &spec.Containers[i]
		}
	}
	return nil
}

// LabelFrontDoorToken is "true" on the Secrets in the front door's namespace that hold tokens of its clients.
const LabelFrontDoorToken = PrefixOwn + "front-door-token"

// ComponentFrontDoor is the value of LabelComponent on the Pods of the front door, in the controller's namespace,
// and PortDemand is where they tell their requests: by TLS, with the certificate of
// FrontDoorSecret.
const (
	ComponentFrontDoor       = "frontdoor"
	PortDemand         int32 = 8002
	FrontDoorSecret          = "hotseat-frontdoor-tls"
)
