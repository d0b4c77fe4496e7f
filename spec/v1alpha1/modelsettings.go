package v1alpha1

import inference "sigs.k8s.io/gateway-api-inference-extension/api/v1"

// ServerSettings say how to run a model, and how many replicas there may be.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",message="minReplicas should be at most maxReplicas"
type ServerSettings struct {
	// Where the model comes from: hf://REPOSITORY of the Hugging Face Hub. An engine in a Pod of its own
	// takes pvc://CLAIM/PATH too, a file or folder on a PersistentVolumeClaim.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^(hf|pvc|ollama)://[^ ]+$')",message="should begin with hf://, pvc:// or ollama://, such as hf://Qwen/Qwen3-0.6B"
	URL string `json:"url,omitempty"`

	// The program that runs the model. Default: VLLM.
	// +optional
	Engine ModelEngine `json:"engine,omitempty"`

	// Arguments of the engine, after the model and its name. A list of an entry replaces that of spec.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Args []string `json:"args,omitempty"`

	// Environment variables of the engine.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	// +kubebuilder:validation:XValidation:rule="self.all(name, name.matches('^[A-Za-z_][A-Za-z0-9_]{0,255}$'))",message="each key should be the name of an environment variable: letters, digits and '_', not beginning with a digit"
	Env map[string]EnvValue `json:"env,omitempty"`

	// Image of the engine, for an entry whose Pods run it themselves. Launchers have the image of their
	// LauncherConfig. Default: the one of the ResourceProfile.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// Name of a ResourceProfile and how many of its units a replica has, such as nvidia-gpu-l4:2. Without
	// a number it is 1.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?(:[1-9][0-9]{0,3})?$')",message="should be the name of a ResourceProfile and the number of its units, such as nvidia-gpu-l4:2"
	ResourceProfile string `json:"resourceProfile,omitempty"`

	// Name of the LauncherConfig, in the same namespace, whose launchers run the model. Default: the one
	// of the ResourceProfile.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="should be the name of a LauncherConfig: lower-case letters, digits and '-', beginning and ending with a letter or a digit"
	LauncherConfigName string `json:"launcherConfigName,omitempty"`

	// Where the engine finds the model. require: only in the store of its launcher, which a model cache
	// fills. auto: there, if it has the model. off: the engine finds the model by itself. Default: auto.
	// +optional
	// +kubebuilder:validation:Enum=auto;require;off
	ModelCache string `json:"modelCache,omitempty"`

	// The smallest number of replicas. Default: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MinReplicas *int32 `json:"minReplicas,omitempty"`
	// The largest number of replicas. Absent: no bound of its own.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`

	// How many requests a replica is to have at a time. The load of an entry's replicas is balanced by it. 0:
	// the entry is a standby, which answers only while no other entry can. Default: 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	TargetRequests *int32 `json:"targetRequests,omitempty"`

	// For how long demand must have been lower before replicas are taken away. Default: 300.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	ScaleDownDelaySeconds *int32 `json:"scaleDownDelaySeconds,omitempty"`
	// After how long a replica that is not ready counts as failed. Default: 600.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	ScaleUpTimeoutSeconds *int32 `json:"scaleUpTimeoutSeconds,omitempty"`
	// After how long a replica without a node counts as failed. Default: 30.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	UnschedulableSeconds *int32 `json:"unschedulableSeconds,omitempty"`

	// PriorityClass of the Pods.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`
}

// EnvValue is the value of an environment variable, in plain text.
//
// +kubebuilder:validation:MaxLength=32768
type EnvValue string

// ModelEngine is a program that runs models.
//
// +kubebuilder:validation:Enum=VLLM;LlamaCpp;SGLang;OLlama
type ModelEngine string

// The engines. EngineOLlama means a model of Ollama's registry, which llama-server runs.
const (
	EngineVLLM     ModelEngine = "VLLM"
	EngineLlamaCpp ModelEngine = "LlamaCpp"
	EngineSGLang   ModelEngine = "SGLang"
	EngineOLlama   ModelEngine = "OLlama"
)

// ModelSettings belong to a whole model.
type ModelSettings struct {
	// Abilities of the model. The front door refuses a request for anything else. Default: TextGeneration.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	Features []ModelFeature `json:"features,omitempty"`

	// How requests are spread over replicas.
	// +optional
	LoadBalancing *LoadBalancing `json:"loadBalancing,omitempty"`

	// LoRA adapters of the model, which clients ask for as MODEL_ADAPTER.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Adapters []ModelAdapter `json:"adapters,omitempty"`

	// More names of the model.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	Aliases []string `json:"aliases,omitempty"`

	// Maker of the model, for the list of models.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Owner string `json:"owner,omitempty"`

	// Who decides how many replicas there are.
	// +optional
	Autoscaling *ModelAutoscaling `json:"autoscaling,omitempty"`

	// How many replicas there are in all, with autoscaling.mode External. Standbys do not count. In the other modes
	// the number means nothing, and the API server refuses to change it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Replicas *int32 `json:"replicas,omitempty"`
	// The smallest number of replicas of all entries together. Standbys do not count. Default: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	TotalMinReplicas *int32 `json:"totalMinReplicas,omitempty"`
	// The largest number of replicas of all entries together. Standbys do not count. Absent: no bound.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	TotalMaxReplicas *int32 `json:"totalMaxReplicas,omitempty"`

	// How requests wait while nothing runs.
	// +optional
	Hold *ModelHold `json:"hold,omitempty"`

	// What gateways other than the front door need.
	// +optional
	Gateway *ModelGateway `json:"gateway,omitempty"`
}

// ModelFeature is what a model can do.
//
// +kubebuilder:validation:Enum=TextGeneration;TextEmbedding;Reranking;SpeechToText
type ModelFeature string

// The features.
const (
	FeatureTextGeneration ModelFeature = "TextGeneration"
	FeatureTextEmbedding  ModelFeature = "TextEmbedding"
	FeatureReranking      ModelFeature = "Reranking"
	FeatureSpeechToText   ModelFeature = "SpeechToText"
)

// LoadBalancing says how requests are spread over replicas.
type LoadBalancing struct {
	// LeastLoad: to the replica with the fewest requests for its targetRequests. PrefixHash: requests
	// with the same beginning go to the same replica, unless it has too many. Default: LeastLoad.
	// +optional
	// +kubebuilder:validation:Enum=LeastLoad;PrefixHash
	Strategy string `json:"strategy,omitempty"`
	// Details of PrefixHash.
	// +optional
	PrefixHash *PrefixHash `json:"prefixHash,omitempty"`
}

// Values of LoadBalancing.Strategy.
const (
	LeastLoad          = "LeastLoad"
	StrategyPrefixHash = "PrefixHash"
)

// PrefixHash are the details of the strategy PrefixHash.
//
// +kubebuilder:validation:XValidation:rule="!has(self.prefixCharLength) || !has(self.prefixChatLength)",message="prefixChatLength means prefixCharLength: keep prefixCharLength"
type PrefixHash struct {
	// The bound of a replica's load, as a percentage of the mean. Default: 125.
	// +optional
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=10000
	MeanLoadPercentage *int32 `json:"meanLoadPercentage,omitempty"`
	// How many points a replica has on the ring. Default: 256.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	Replication *int32 `json:"replication,omitempty"`
	// How many characters of the beginning count. Default: 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65536
	PrefixCharLength *int32 `json:"prefixCharLength,omitempty"`
	// Another spelling of prefixCharLength.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65536
	PrefixChatLength *int32 `json:"prefixChatLength,omitempty"`
}

// ModelAdapter is a LoRA adapter.
type ModelAdapter struct {
	// Name of the adapter.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?$')",message="should be letters, digits, '-' and '.', beginning and ending with a letter or a digit"
	Name string `json:"name"`
	// Where the adapter comes from, as hf://REPOSITORY.
	// +required
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^hf://[^ ]+$')",message="should begin with hf://"
	URL string `json:"url"`
}

// ModelAutoscaling says who decides how many replicas there are.
type ModelAutoscaling struct {
	// Requests: the controller does, by the requests that are in flight or held. External: the field
	// spec.replicas does, which kubectl scale and autoscalers write. Off: the Deployments are left as
	// they are. Default: Requests.
	// +optional
	// +kubebuilder:validation:Enum=Requests;External;Off
	Mode string `json:"mode,omitempty"`
}

// Values of ModelAutoscaling.Mode.
const (
	ScaleByRequests = "Requests"
	ScaleExternally = "External"
	ScaleOff        = "Off"
)

// ModelHold says how requests wait while nothing runs.
type ModelHold struct {
	// For how long. Then the answer is 503. Default: 300.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
	// How many. One more gets 429. Default: 1000.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	Max *int32 `json:"max,omitempty"`
}

// ModelGateway is what gateways other than the front door need of a Model.
type ModelGateway struct {
	// The controller keeps an InferencePool with the name of the Model, which selects the Pods that serve it.
	// An HTTPRoute may lead there. The cluster needs the CRD of InferencePools, version v1.
	// +optional
	InferencePool *ModelInferencePool `json:"inferencePool,omitempty"`
}

// ModelInferencePool says what the InferencePool of a Model has
// (https://gateway-api-inference-extension.sigs.k8s.io/api-types/inferencepool).
type ModelInferencePool struct {
	// The endpoint picker, which chooses a Pod for each request.
	// +required
	EndpointPickerRef inference.EndpointPickerRef `json:"endpointPickerRef,omitzero"`
}
