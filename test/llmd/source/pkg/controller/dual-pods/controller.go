/*
Copyright 2025 The llm-d Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

	http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package dualpods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1preinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	kubemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	fmav1alpha1 "github.com/llm-d-incubation/llm-d-fast-model-actuation/api/fma/v1alpha1"
	"github.com/llm-d-incubation/llm-d-fast-model-actuation/pkg/api"
	ctlrcommon "github.com/llm-d-incubation/llm-d-fast-model-actuation/pkg/controller/common"
	genctlr "github.com/llm-d-incubation/llm-d-fast-model-actuation/pkg/controller/generic"
	"github.com/llm-d-incubation/llm-d-fast-model-actuation/pkg/controller/utils"
	fmainformers "github.com/llm-d-incubation/llm-d-fast-model-actuation/pkg/generated/informers/externalversions"
	fmalisters "github.com/llm-d-incubation/llm-d-fast-model-actuation/pkg/generated/listers/fma/v1alpha1"
)

// This package implements the dual-pods controller.

// The controller works in the context of one Kubernetes API namespace.

// A Pod is a server-requesting Pod if it has the server patch annotation.
// A Pod is a bound server-providing Pod if it has an annotation
// with the name "dual-pods.llm-d.ai/requester"; the annotation's value should
// be `requestingPod.UID + " " + requestingPod.Name`.
// A Pod is an unbound server-providing Pod if it (1) is not bound and
// (2) has an annotation
// with name "dual-pods.llm-d.ai/nominal", whose value should be the base64 encoding
// of the SHA-256 hash of bytes that are characteristic of the nominal server-providing Pod
// (including node, GPUs; excluding its name, this annotation, and the identity of the server-requesting Pod).
// This API object metadata is the hard state about binding.

// A bound server-providing Pod normally has an awake inference server,
// with possible exceptions during startup, shutdown, binding, and unbinding.
// An unbound server-providing Pod has an inference server that is sleeping.

// The controller includes its finalizer when creating a bound server-providing Pod,
// and removes it when unbinding or recognizing the exogenous deletion of a server-providing Pod.

// At this interim stage of development, the controller does not request
// deletion of any server-providing Pod. Nor does the controller ever try to bind
// one that is unbound; they are only created in the bound state.

// There are three types of item in the controller's work queue.
// One is a reference to the gpu-map ConfigMap.

// The second type of queue item is a reference to a Node.
// The are two types for an item on a Node:
// 1) A reference to an inference server.
// This reference carries the inference server's UID and the name
// of the server-requesting Pod.
// An inference server's UID is the UID of the server-requesting Pod.
// 2) A reference to an unbound launcher-based server-providing Pod.

// The third type of queue item is a reference to an InferenceServerConfig.
// It is enqueued when an ISC's spec changes, to trigger cleanup of any
// sleeping launcher instances whose configuration is now obsolete.

const requesterAnnotationKey = "dual-pods.llm-d.ai/requester"
const nominalHashAnnotationKey = "dual-pods.llm-d.ai/nominal"
const launcherInstanceIDAnnotationKey = "dual-pods.llm-d.ai/instance-id"
const launcherServerPortAnnotationKey = "dual-pods.llm-d.ai/server-port"
const launcherVllmConfigAnnotationKey = "dual-pods.llm-d.ai/vllm-config"

// launcherISCRoutingMetadataAnnotationKey holds, as the JSON encoding of an
// iscRoutingMetadata, the ISC-provided routing labels and annotations the bound
// instance was created with, so they can be applied once it is serving.
// Externalizing it onto the Pod conveys it reliably from the binding
// transaction to the later moment when the controller reacts to the instance
// reaching readiness.
const launcherISCRoutingMetadataAnnotationKey = "dual-pods.llm-d.ai/isc-routing-metadata"

const providerFinalizer = "dual-pods.llm-d.ai/provider"
const requesterFinalizer = "dual-pods.llm-d.ai/requester"

const ControllerName = "dual-pods-controller"

// GPUMapName is the name of the ConfigMap(s) parsed to discover the mapping from GPU UUID to location.
// Namespace is the focus namespace.
// Every data item in the ConfigMap is expected to have a name that is the name of a Node
// and a value that is JSON for a map from UUID to index.
const GPUMapName = "gpu-map"

const GPUIndexName = "gpu"
const controllerQueuePerItemRetryMaxDelay = 20 * time.Second

func GPUIndexFunc(obj any) ([]string, error) {
	pod := obj.(*corev1.Pod)
	if len(pod.Annotations[nominalHashAnnotationKey]) == 0 || pod.Spec.NodeName == "" {
		return []string{}, nil
	}
	isIdx, err := utils.GetInferenceServerContainerIndex(pod)
	if err != nil {
		return []string{}, nil
	}
	isCtr := &pod.Spec.Containers[isIdx]
	ev := utils.SliceGetByFeature(isCtr.Env, utils.EnvVarName, "CUDA_VISIBLE_DEVICES")
	if ev == nil || len(ev.Value) == 0 {
		return []string{}, nil
	}
	visibleParts := strings.Split(ev.Value, ",")
	keys, _ := utils.SliceMap(visibleParts, func(gpu string) (string, error) {
		return pod.Spec.NodeName + " " + strings.Trim(gpu, " "), nil
	})
	return keys, nil
}

const nominalHashIndexName = "nominal"

func nominalHashIndexFunc(obj any) ([]string, error) {
	pod := obj.(*corev1.Pod)
	nominalHash := pod.Annotations[nominalHashAnnotationKey]
	if len(nominalHash) == 0 {
		return []string{}, nil
	}
	return []string{nominalHash}, nil
}

type ControllerConfig struct {
	SleeperLimit                      int
	NumWorkers                        int
	AcceleratorSleepingMemoryLimitMiB int64
}

type Controller interface {
	Start(context.Context) error
}

const sentinelNS = "Senti Nel"

const nodeNameLabel = "node"

var (
	onceler            sync.Once
	addsCounters       *kubemetrics.CounterVec
	queueDepthGauges   *kubemetrics.GaugeVec
	queueDurationHists *kubemetrics.HistogramVec
	retriesCounters    *kubemetrics.CounterVec
	workDurationHists  *kubemetrics.HistogramVec

	dualityGauges *kubemetrics.GaugeVec

	requestersPerISCGauges       *kubemetrics.GaugeVec
	iscCountGauges               *kubemetrics.GaugeVec
	actuationSecsHistograms      *kubemetrics.HistogramVec
	launcherCreateSecsHistograms *kubemetrics.HistogramVec

	// HistogramVec of HTTP call latencies.
	// Labels are purpose, method, exported_namespace, isc_name, status_code
	httpLatencySecsHistograms *kubemetrics.HistogramVec
)

// NewController makes a new dual pods controller.
// The given namespace is the one to focus on.
func (config ControllerConfig) NewController(
	logger klog.Logger,
	coreClient coreclient.CoreV1Interface,
	namespace string,
	corev1PreInformers corev1preinformers.Interface,
	fmaInformerFactory fmainformers.SharedInformerFactory,
) (*controller, error) {
	onceler.Do(func() {
		addsCounters = kubemetrics.NewCounterVec(&kubemetrics.CounterOpts{
			Namespace:      "fma",
			Subsystem:      "dpc_innerqueue",
			Name:           "adds_total",
			Help:           "Number of unique adds to the queue",
			StabilityLevel: kubemetrics.ALPHA,
		}, []string{nodeNameLabel})
		queueDepthGauges = kubemetrics.NewGaugeVec(&kubemetrics.GaugeOpts{
			Namespace:      "fma",
			Subsystem:      "dpc_innerqueue",
			Name:           "depth",
			Help:           "Number of items in the queue",
			StabilityLevel: kubemetrics.ALPHA,
		}, []string{nodeNameLabel})
		queueDurationHists = kubemetrics.NewHistogramVec(&kubemetrics.HistogramOpts{
			Namespace:      "fma",
			Subsystem:      "dpc_innerqueue",
			Name:           "queue_duration_seconds",
			Help:           "Time from unique enqueue to the dequeue",
			Buckets:        kubemetrics.ExponentialBuckets(1.0/64, 4, 7),
			StabilityLevel: kubemetrics.ALPHA,
		}, []string{nodeNameLabel})
		retriesCounters = kubemetrics.NewCounterVec(&kubemetrics.CounterOpts{
			Namespace:      "fma",
			Subsystem:      "dpc_innerqueue",
			Name:           "retries_total",
			Help:           "Total number of retries handled by queue",
			StabilityLevel: kubemetrics.ALPHA,
		}, []string{nodeNameLabel})
		workDurationHists = kubemetrics.NewHistogramVec(&kubemetrics.HistogramOpts{
			Namespace:      "fma",
			Subsystem:      "dpc_innerqueue",
			Name:           "work_duration_seconds",
			Help:           "Time spent syncing",
			Buckets:        kubemetrics.ExponentialBuckets(1.0/64, 4, 7),
			StabilityLevel: kubemetrics.ALPHA,
		}, []string{nodeNameLabel})

		dualityGauges = kubemetrics.NewGaugeVec(&kubemetrics.GaugeOpts{
			Namespace:      "fma",
			Name:           "duality",
			Help:           "Indicator of requester-provider binding, 1.0 while it exists",
			StabilityLevel: kubemetrics.ALPHA,
		}, []string{"exported_namespace", "requester_name", "exported_pod", "exported_container",
			"instance_id", "UUID", nodeNameLabel})

		requestersPerISCGauges = kubemetrics.NewGaugeVec(&kubemetrics.GaugeOpts{
			Namespace:      "fma",
			Name:           "requester_count",
			Help:           "Number of server-requesting Pods",
			StabilityLevel: kubemetrics.ALPHA,
		}, []string{"isc_name"})
		iscCountGauges = kubemetrics.NewGaugeVec(&kubemetrics.GaugeOpts{
			Namespace:      "fma",
			Name:           "isc_count",
			Help:           "Number of InferenceServerConfig objects",
			StabilityLevel: kubemetrics.ALPHA,
		}, []string{"launcher_config_name"})

		actuationSecsHistograms = kubemetrics.NewHistogramVec(&kubemetrics.HistogramOpts{
			Namespace:      "fma",
			Name:           "actuation_seconds",
			Help:           "Time from requester container start to completion of readiness relay",
			Buckets:        []float64{0, 1, 3, 5, 7.5, 10, 15, 30, 60, 120, 240, 480, 960, 1920},
			StabilityLevel: kubemetrics.ALPHA,
		}, []string{"exported_namespace", "path", "instancesDeleted", "isc_name"})
		launcherCreateSecsHistograms = kubemetrics.NewHistogramVec(&kubemetrics.HistogramOpts{
			Namespace:      "fma",
			Name:           "launcher_create_seconds",
			Help:           "Latency of kube API call to create launcher",
			Buckets:        []float64{0.001, 0.01, 0.1, 1, 2, 3, 4, 5},
			StabilityLevel: kubemetrics.ALPHA,
		}, []string{"exported_namespace", "lcfg_name", "success"})

		httpLatencySecsHistograms = kubemetrics.NewHistogramVec(&kubemetrics.HistogramOpts{
			Namespace:      "fma",
			Subsystem:      "http",
			Name:           "latency_seconds",
			Help:           "Latency of HTTP call from DPC",
			Buckets:        []float64{0.001, 0.01, 0.1, 1, 2, 3, 5, 10, 30, 90, 270, 810},
			StabilityLevel: kubemetrics.ALPHA,
		}, []string{"purpose", "method", "exported_namespace", "isc_name", "status_code"})

		legacyregistry.MustRegister(addsCounters, queueDepthGauges, queueDurationHists,
			retriesCounters, workDurationHists,
			dualityGauges,
			requestersPerISCGauges, iscCountGauges, actuationSecsHistograms,
			launcherCreateSecsHistograms, httpLatencySecsHistograms,
		)
	})

	ctl := &controller{
		enqueueLogger:             logger.WithName(ControllerName),
		coreclient:                coreClient,
		namespace:                 namespace,
		podInformer:               corev1PreInformers.Pods().Informer(),
		podLister:                 corev1PreInformers.Pods().Lister(),
		cmInformer:                corev1PreInformers.ConfigMaps().Informer(),
		cmLister:                  corev1PreInformers.ConfigMaps().Lister(),
		nodeInformer:              corev1PreInformers.Nodes().Informer(),
		nodeLister:                corev1PreInformers.Nodes().Lister(),
		iscInformer:               fmaInformerFactory.Fma().V1alpha1().InferenceServerConfigs().Informer(),
		iscLister:                 fmaInformerFactory.Fma().V1alpha1().InferenceServerConfigs().Lister(),
		lcInformer:                fmaInformerFactory.Fma().V1alpha1().LauncherConfigs().Informer(),
		lcLister:                  fmaInformerFactory.Fma().V1alpha1().LauncherConfigs().Lister(),
		httpLatencySecsHistograms: httpLatencySecsHistograms.MustCurryWith(prometheus.Labels{"exported_namespace": namespace}),
		sleeperLimit:              config.SleeperLimit,
		debugAccelMemory:          config.AcceleratorSleepingMemoryLimitMiB < math.MaxInt32,
		accelMemoryLimitMiB:       config.AcceleratorSleepingMemoryLimitMiB,
		nodeNameToData:            map[string]*nodeData{},
	}
	ctl.eventBroadcaster = record.NewBroadcaster()
	ctl.recorder = ctl.eventBroadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: ControllerName})
	err := ctl.podInformer.AddIndexers(cache.Indexers{
		inferenceServerConfigIndexName: inferenceServerConfigIndexFunc,
		launcherConfigHashIndexName:    launcherConfigHashIndexFunc,
		requesterIndexName:             requesterIndexFunc,
		nodeNameIndexName:              nodeNameIndexFunc,
		nominalHashIndexName:           nominalHashIndexFunc,
		GPUIndexName:                   GPUIndexFunc})
	if err != nil { //impossible
		return nil, err
	}
	ctl.KnowsProcessedSync = genctlr.NewKnowsProcessedSync(ControllerName, config.NumWorkers, ctl.process,
		func(distinguisher int) queueItem {
			return cmItem{ObjectName: cache.ObjectName{Name: strconv.FormatInt(int64(distinguisher), 10), Namespace: sentinelNS}}
		},
		func(qi queueItem) bool {
			if cm, ok := qi.(cmItem); ok {
				return cm.Namespace == sentinelNS
			}
			return false
		},
		func(ctx context.Context) {
			logger := klog.FromContext(ctx)
			logger.V(1).Info("All initial items processed")
		})

	_, err = ctl.podInformer.AddEventHandler(ctl)
	if err != nil {
		panic(err)
	}
	_, err = ctl.cmInformer.AddEventHandler(ctl)
	if err != nil {
		panic(err)
	}
	_, err = ctl.iscInformer.AddEventHandler(ctl)
	if err != nil {
		panic(err)
	}
	_, err = ctl.lcInformer.AddEventHandler(ctl)
	if err != nil {
		panic(err)
	}
	return ctl, nil
}

type controller struct {
	enqueueLogger klog.Logger
	coreclient    coreclient.CoreV1Interface
	namespace     string

	eventBroadcaster record.EventBroadcaster
	recorder         record.EventRecorder

	podInformer  cache.SharedIndexInformer
	podLister    corev1listers.PodLister
	cmInformer   cache.SharedIndexInformer
	cmLister     corev1listers.ConfigMapLister
	nodeInformer cache.SharedIndexInformer
	nodeLister   corev1listers.NodeLister
	iscInformer  cache.SharedIndexInformer
	iscLister    fmalisters.InferenceServerConfigLister
	lcInformer   cache.SharedIndexInformer
	lcLister     fmalisters.LauncherConfigLister
	genctlr.KnowsProcessedSync[queueItem]

	// Histogram vector, labels needing values are: purpose, method, isc_name, status_code
	httpLatencySecsHistograms prometheus.ObserverVec

	sleeperLimit        int
	debugAccelMemory    bool
	accelMemoryLimitMiB int64

	// gpuMaps maps GPU UUID to GpuLocation
	gpuMap atomic.Pointer[map[string]GpuLocation]

	mutex sync.Mutex

	nodeNameToData map[string]*nodeData
}

var _ Controller = &controller{}

type GpuLocation struct {
	Node  string
	Index uint
}

type nodeData struct {
	NodeName string

	// InferenceServers maps UID of serve-requesting Pod to data.
	// Access only while holding controller mutex.
	InferenceServers map[apitypes.UID]*serverData

	// Launchers maps name of launcher-based server-providing Pod to launcherData.
	// Access only inside the calling hierarchy that `nodeItem.process()` is the root caller.
	Launchers map[string]*launcherData

	// ItemsMutex may be acquired while holding controller mutex, not vice-versa.
	ItemsMutex sync.Mutex

	// LocalQueue holds the set of object references of this node that need to be synced,
	// and for each the time at which it was first injected into this set.
	// Hold ItemsMutex while accessing this.
	LocalQueue map[itemOnNode]*scheduledItem

	rateLimiter workqueue.TypedRateLimiter[itemOnNode]
}

type itemOnNode interface {
	// process returns (err error, retry bool).
	// There will be a retry iff `retry`.
	process(ctx context.Context, ctl *controller, nodeDat *nodeData) processResult
}

type scheduledItem struct {
	addTime      time.Time // when first enqueued (for queue duration metrics)
	processAfter time.Time // earliest time to process this item
}

// scheduledEntry pairs an item with its scheduling data.
type scheduledEntry struct {
	item      itemOnNode
	scheduled *scheduledItem
}

// processResult is returned by itemOnNode.process to signal outcome and retry intent.
//   - err may be set with or without retry; a non-nil err with retry=false is a permanent failure.
//   - retry requests that the item be re-queued for later processing.
//   - retryAfter, if not zero, specifies the delay until the later processing,
//     with zero meaning to use exponential backoff.
type processResult struct {
	err        error
	retry      bool
	retryAfter time.Duration
}

// Internal state about an inference server
type serverData struct {
	RequestingPodName       string
	NominalProvidingPod     *corev1.Pod
	NominalProvidingPodHash string

	// ServerPort is where the inference server listens.
	// For direct (non-launcher-based) providers it is derived from
	// NominalProvidingPod. For launcher-based providers it is written by
	// commitInstanceState (on fresh bind) or recoverInstanceStateFromLauncherPod
	// (on controller-restart recovery).
	ServerPort int32

	// UUIDs of the server's GPUs
	GPUIDs []string

	// Comma-separated list of GPU UUIDs
	GPUIDsStr *string

	GPUIndices    []string
	GPUIndicesStr *string

	// True if at any time a launcher was sought but not found
	NeededNewLauncher bool

	// True if at any time a vllm instance was sought but not found
	NeededNewInstance bool

	ProvidingPodName string

	// Snapshot of the bound launcher-based instance's ISC-derived state.
	// A field may be reassigned, but whichever value is stored is deeply
	// immutable while stored. InstanceISCLabels/InstanceISCAnnotations are the
	// routing metadata the instance was bound with (applied once it is serving,
	// see LabelsApplied), reflecting the binding-time commitment rather than the
	// current InferenceServerConfig.
	InstanceID             string
	InstanceConfig         *VllmConfig
	InstanceISCLabels      map[string]string
	InstanceISCAnnotations map[string]string

	InstanceKnownToExist bool // meaningful only for launcher-based providers

	// LabelsApplied is true iff the ISC-provided labels and annotations have
	// been written to the bound launcher Pod. Launcher-based providers only.
	LabelsApplied bool

	DualityMetricAsserted bool

	// Set of InstanceID deleted to make room for this instance
	InstancesDeleted sets.Set[string]

	ReadinessRelayed *bool

	Sleeping *bool

	// FirstReadyRelayed becomes true the first time that
	// positive readiness is relayed to the requester.
	FirstReadyRelayed bool

	// RequesterDeleteRequested carries this bit forward without waiting for notification
	// from apiserver. Remember there is no sync between the notification streams for
	// different objects.
	RequesterDeleteRequested bool
}

type launcherData struct {
	// Instances is a map,
	// where key is an instance's ID which is the instance' nominal hash,
	// and value is the last used time of the instance.
	Instances map[string]time.Time

	// Accurate indicates whether the set of nominal hash in Instances is accurate.
	Accurate bool
}
type queueItem interface {
	// process returns (err error, retry bool).
	// There will be a retry iff `retry`, error logged if `err != nil`.
	process(ctx context.Context, ctl *controller) (error, bool)
}

type cmItem struct {
	cache.ObjectName
}

type infSvrItem struct {
	UID apitypes.UID
	// RequesterName is the name of the server-requesting Pod that had this UID.
	RequesterName string
}

type unboundLauncherPodItem struct {
	LauncherPodName string
	NodeName        string
}

type instanceGCItem struct {
	ISCName string
}

type infSvrItemType string

const (
	// infSvrItemRequester means the corresponding infSvrItem identifies the
	// server-requesting Pod.
	infSvrItemRequester infSvrItemType = "requester"
	// infSvrItemBoundProvider means the corresponding infSvrItem identifies the
	// server-requesting Pod to which the server-providing Pod is bound.
	infSvrItemBoundProvider infSvrItemType = "bound_provider"
	// infSvrItemUnboundLauncherBasedProvider is for a launcher-based
	// server-providing Pod that is not bound to any server-requesting Pod.
	// There is no corresponding infSvrItem because the Pod is not part of any
	// inference server yet.
	infSvrItemUnboundLauncherBasedProvider infSvrItemType = "unbound_launcher_based_provider"
	// infSvrItemDontCare means the Pod is not relevant to the controller and
	// there is no corresponding infSvrItem.
	infSvrItemDontCare infSvrItemType = "dont_care"
)

// careAbout returns an infSvrItem and an infSvrItemType. The infSvrItem is
// meaningful only when the type is infSvrItemRequester or infSvrItemBoundProvider.
// The controller cares about
// - server-requesting Pods,
// - bound server-providing Pods,
// - unbound launcher-based server-providing Pods.
// The controller doesn't care about unbound direct providers and other Pods.
func careAbout(pod *corev1.Pod) (item infSvrItem, it infSvrItemType) {
	if len(pod.Annotations[api.ServerPatchAnnotationName]) > 0 || len(pod.Annotations[api.InferenceServerConfigAnnotationName]) > 0 {
		return infSvrItem{pod.UID, pod.Name}, infSvrItemRequester
	}
	requesterStr := pod.Annotations[requesterAnnotationKey]
	requesterParts := strings.Split(requesterStr, " ")
	if len(requesterParts) == 2 {
		return infSvrItem{apitypes.UID(requesterParts[0]), requesterParts[1]}, infSvrItemBoundProvider
	}
	if _, hasLauncherLabel := pod.Labels[ctlrcommon.LauncherConfigNameLabelKey]; hasLauncherLabel {
		return infSvrItem{}, infSvrItemUnboundLauncherBasedProvider
	}
	return infSvrItem{}, infSvrItemDontCare
}

const inferenceServerConfigIndexName = "inferenceserverconfig"

func inferenceServerConfigIndexFunc(obj any) ([]string, error) {
	pod := obj.(*corev1.Pod)
	inferenceServerConfigName := pod.Annotations[api.InferenceServerConfigAnnotationName]
	if len(inferenceServerConfigName) == 0 {
		return []string{}, nil
	}
	return []string{inferenceServerConfigName}, nil
}

const launcherConfigHashIndexName = "launcherconfighash"

func launcherConfigHashIndexFunc(obj any) ([]string, error) {
	pod := obj.(*corev1.Pod)
	launcherConfigHash := pod.Annotations[ctlrcommon.LauncherConfigHashAnnotationKey]
	if len(launcherConfigHash) == 0 {
		return []string{}, nil
	}
	return []string{launcherConfigHash}, nil
}

const requesterIndexName = "requester"

func requesterIndexFunc(obj any) ([]string, error) {
	pod := obj.(*corev1.Pod)
	item, it := careAbout(pod)
	if it == infSvrItemBoundProvider {
		return []string{string(item.UID)}, nil
	}
	return []string{}, nil
}

const nodeNameIndexName = "nodeName"

func nodeNameIndexFunc(obj any) ([]string, error) {
	pod := obj.(*corev1.Pod)
	if pod.Spec.NodeName == "" {
		return []string{}, nil
	}
	return []string{pod.Spec.NodeName}, nil
}

func (ctl *controller) OnAdd(obj any, isInInitialList bool) {
	switch typed := obj.(type) {
	case *corev1.Pod:
		if item, it := careAbout(typed); it == infSvrItemDontCare {
			ctl.enqueueLogger.V(5).Info("Ignoring add of irrelevant Pod", "name", typed.Name)
			return
		} else if it == infSvrItemUnboundLauncherBasedProvider {
			nodeName, err := getProviderNodeName(typed)
			if err != nil {
				ctl.enqueueLogger.Error(err, "Failed to determine node of launcher")
				return
			}
			nd := ctl.getNodeData(nodeName)
			unboundLauncher := unboundLauncherPodItem{LauncherPodName: typed.Name, NodeName: nodeName}
			ctl.enqueueLogger.V(5).Info("Enqueuing launcher reference due to notification of add",
				"nodeName", nodeName, "launcherPod", typed.Name, "isInInitialList", isInInitialList, "resourceVersion", typed.ResourceVersion)
			nd.add(unboundLauncher)
			ctl.Queue.Add(nodeItem{nodeName})
		} else {
			nodeName := typed.Spec.NodeName
			switch it {
			case infSvrItemBoundProvider:
				var err error
				nodeName, err = getProviderNodeName(typed)
				if err != nil {
					ctl.enqueueLogger.Error(err, "Failed to determine node of provider")
					return
				}
			case infSvrItemRequester:
				iscName := typed.Annotations[api.InferenceServerConfigAnnotationName]
				if iscName != "" {
					requestersPerISCGauges.WithLabelValues(iscName).Inc()
				}
				if nodeName == "" {
					ctl.enqueueLogger.V(5).Info("Ignoring add of non-scheduled server-requesting Pod", "name", typed.Name)
					return
				}
			}
			nd := ctl.getNodeData(nodeName)
			ctl.enqueueLogger.V(5).Info("Enqueuing inference server reference due to notification of add", "nodeName", nodeName, "item", item, "infSvrItemType", it, "isInInitialList", isInInitialList, "resourceVersion", typed.ResourceVersion)
			nd.add(item)
			ctl.Queue.Add(nodeItem{nodeName})
		}
	case *fmav1alpha1.InferenceServerConfig:
		lcfgName := typed.Spec.LauncherConfigName
		if lcfgName != "" {
			iscCountGauges.WithLabelValues(lcfgName).Inc()
		}
		ctl.enqueueInfSvrItemsByISC(typed, isInInitialList)
	case *corev1.ConfigMap:
		if typed.Name != GPUMapName {
			ctl.enqueueLogger.V(5).Info("Ignoring ConfigMap that is not the GPU map", "ref", cache.MetaObjectToName(typed))
			return
		} else {
			item := cmItem{cache.MetaObjectToName(typed)}
			ctl.enqueueLogger.V(5).Info("Enqueuing ConfigMap reference due to notification of add", "item", item, "isInInitialList", isInInitialList, "resourceVersion", typed.ResourceVersion)
			ctl.Queue.Add(item)
		}
	default:
		ctl.enqueueLogger.Error(nil, "Notified of add of unexpected type of object", "type", fmt.Sprintf("%T", obj))
		return
	}
}

func (ctl *controller) OnUpdate(prev, obj any) {
	switch typed := obj.(type) {
	case *corev1.Pod:
		if item, it := careAbout(typed); it == infSvrItemDontCare {
			ctl.enqueueLogger.V(5).Info("Ignoring update of irrelevant Pod", "name", typed.Name)
			return
		} else if it == infSvrItemUnboundLauncherBasedProvider {
			nodeName, err := getProviderNodeName(typed)
			if err != nil {
				ctl.enqueueLogger.Error(err, "Failed to determine node of launcher")
				return
			}
			nd := ctl.getNodeData(nodeName)
			unboundLauncher := unboundLauncherPodItem{LauncherPodName: typed.Name, NodeName: nodeName}
			ctl.enqueueLogger.V(5).Info("Enqueuing launcher reference due to notification of update",
				"nodeName", nodeName, "launcherPod", typed.Name, "resourceVersion", typed.ResourceVersion,
				"lastWrite", getLastWrite(&typed.ObjectMeta))
			nd.add(unboundLauncher)
			ctl.Queue.Add(nodeItem{nodeName})
		} else {
			nodeName := typed.Spec.NodeName
			if it == infSvrItemBoundProvider {
				var err error
				nodeName, err = getProviderNodeName(typed)
				if err != nil {
					ctl.enqueueLogger.Error(err, "Failed to determine node of provider")
					return
				}
			} else if it == infSvrItemRequester && nodeName == "" {
				ctl.enqueueLogger.V(5).Info("Ignoring update of non-scheduled server-requesting Pod", "name", typed.Name)
				return
			}
			nd := ctl.getNodeData(nodeName)
			ctl.enqueueLogger.V(5).Info("Enqueuing inference server reference due to notification of update",
				"nodeName", nodeName, "item", item, "infSvrItemType", it, "resourceVersion", typed.ResourceVersion,
				"lastWrite", getLastWrite(&typed.ObjectMeta))
			nd.add(item)
			ctl.Queue.Add(nodeItem{nodeName})
		}
	case *fmav1alpha1.InferenceServerConfig:
		prevTyped, ok := prev.(*fmav1alpha1.InferenceServerConfig)
		lcfgName := typed.Spec.LauncherConfigName
		if lcfgName != "" && ok && prevTyped.Spec.LauncherConfigName != lcfgName {
			iscCountGauges.WithLabelValues(prevTyped.Spec.LauncherConfigName).Dec()
			iscCountGauges.WithLabelValues(lcfgName).Inc()
		}
		if ok && !reflect.DeepEqual(prevTyped.Spec, typed.Spec) {
			ctl.enqueueInstanceGCItemsForISC(typed.Name)
		}
		ctl.enqueueInfSvrItemsByISC(typed, false)
	case *corev1.ConfigMap:
		if typed.Name != GPUMapName {
			ctl.enqueueLogger.V(5).Info("Ignoring ConfigMap that is not the GPU map", "ref", cache.MetaObjectToName(typed))
			return
		} else {
			item := cmItem{cache.MetaObjectToName(typed)}
			ctl.enqueueLogger.V(5).Info("Enqueuing ConfigMap reference due to notification of update", "item", item, "resourceVersion", typed.ResourceVersion)
			ctl.Queue.Add(item)
		}
	default:
		ctl.enqueueLogger.Error(nil, "Notified of update of unexpected type of object", "type", fmt.Sprintf("%T", obj))
		return
	}
}

type lastWrite struct {
	Manager string
	Time    *metav1.Time
}

func getLastWrite(om *metav1.ObjectMeta) lastWrite {
	lastIndex := -1
	lastTime := om.CreationTimestamp
	for index, entry := range om.ManagedFields {
		if lastIndex < 0 || entry.Time != nil && entry.Time.After(lastTime.Time) {
			lastIndex = index
			if entry.Time != nil {
				lastTime = *entry.Time
			}
		}
	}
	if lastIndex < 0 {
		return lastWrite{
			Manager: "<creator>",
			Time:    &om.CreationTimestamp,
		}
	}
	entry := om.ManagedFields[lastIndex]
	lw := lastWrite{
		Manager: entry.Manager,
		Time:    entry.Time,
	}
	return lw
}

func (ctl *controller) OnDelete(obj any) {
	if dfsu, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = dfsu.Obj
	}
	switch typed := obj.(type) {
	case *corev1.Pod:
		if item, it := careAbout(typed); it == infSvrItemDontCare {
			ctl.enqueueLogger.V(5).Info("Ignoring delete of irrelevant Pod", "name", typed.Name)
			return
		} else if it == infSvrItemUnboundLauncherBasedProvider {
			nodeName, err := getProviderNodeName(typed)
			if err != nil {
				ctl.enqueueLogger.Error(err, "Failed to determine node of launcher")
				return
			}
			nd := ctl.getNodeData(nodeName)
			unboundLauncher := unboundLauncherPodItem{LauncherPodName: typed.Name, NodeName: nodeName}
			ctl.enqueueLogger.V(5).Info("Enqueuing launcher reference due to notification of delete",
				"nodeName", nodeName, "launcherPod", typed.Name, "resourceVersion", typed.ResourceVersion)
			nd.add(unboundLauncher)
			ctl.Queue.Add(nodeItem{nodeName})
		} else {
			nodeName := typed.Spec.NodeName
			switch it {
			case infSvrItemBoundProvider:
				var err error
				nodeName, err = getProviderNodeName(typed)
				if err != nil {
					ctl.enqueueLogger.Error(err, "Failed to determine node of provider")
					return
				}
			case infSvrItemRequester:
				iscName := typed.Annotations[api.InferenceServerConfigAnnotationName]
				if iscName != "" {
					requestersPerISCGauges.WithLabelValues(iscName).Dec()
				}
				if nodeName == "" {
					ctl.enqueueLogger.V(5).Info("Ignoring delete of non-scheduled server-requesting Pod", "name", typed.Name)
					return
				}
			}
			nd := ctl.getNodeData(nodeName)
			ctl.enqueueLogger.V(5).Info("Enqueuing inference server reference due to notification of delete", "nodeName", nodeName, "item", item, "infSvrItemType", it, "resourceVersion", typed.ResourceVersion)
			nd.add(item)
			ctl.Queue.Add(nodeItem{nodeName})
		}
	case *fmav1alpha1.InferenceServerConfig:
		lcfgName := typed.Spec.LauncherConfigName
		if lcfgName != "" {
			iscCountGauges.WithLabelValues(lcfgName).Dec()
		}
		ctl.enqueueInfSvrItemsByISC(typed, false)
	case *corev1.ConfigMap:
		if typed.Name != GPUMapName {
			ctl.enqueueLogger.V(5).Info("Ignoring ConfigMap that is not the GPU map", "ref", cache.MetaObjectToName(typed))
			return
		} else {
			item := cmItem{cache.MetaObjectToName(typed)}
			ctl.enqueueLogger.V(5).Info("Enqueuing ConfigMap reference due to notification of delete", "item", item, "resourceVersion", typed.ResourceVersion)
			ctl.Queue.Add(item)
		}
	default:
		ctl.enqueueLogger.Error(nil, "Notified of delete of unexpected type of object", "type", fmt.Sprintf("%T", obj))
		return
	}
}

func getProviderNodeName(pod *corev1.Pod) (string, error) {
	nn := pod.Spec.NodeSelector["kubernetes.io/hostname"]
	if nn != "" {
		return nn, nil
	}
	return "", errors.New("no kubernetes.io/hostname test in nodeSelector")
}

func (ctl *controller) Start(ctx context.Context) error {
	ctl.eventBroadcaster.StartRecordingToSink(&coreclient.EventSinkImpl{Interface: ctl.coreclient.Events("")})
	context.AfterFunc(ctx, ctl.eventBroadcaster.Shutdown)
	if !cache.WaitForNamedCacheSync(ControllerName, ctx.Done(), ctl.cmInformer.HasSynced, ctl.podInformer.HasSynced, ctl.nodeInformer.HasSynced, ctl.iscInformer.HasSynced, ctl.lcInformer.HasSynced) {
		return fmt.Errorf("caches not synced before end of Start context")
	}
	err := ctl.StartWorkers(ctx)
	if err != nil {
		return fmt.Errorf("failed to start workers: %w", err)
	}
	return nil
}

// process returns (err error, retry bool).
// There will be a retry iff `retry`, error logged if `err != nil`.
func (ctl *controller) process(ctx context.Context, item queueItem) (error, bool) {
	return item.process(ctx, ctl)
}

func (item cmItem) process(ctx context.Context, ctl *controller) (error, bool) {
	logger := klog.FromContext(ctx)
	cm, err := ctl.coreclient.ConfigMaps(item.Namespace).Get(ctx, item.Name, metav1.GetOptions{})
	if err != nil {
		if apierrors.IsNotFound(err) {
			ctl.gpuMap.Store(nil)
			return err, false
		}
		return err, true
	}
	oldMap := ctl.gpuMap.Load()
	newMap := map[string]GpuLocation{}
	nodeCount := 0
	additions := 0
	for nodeName, mapStr := range cm.Data {
		var newNodesMap map[string]uint
		err = json.Unmarshal([]byte(mapStr), &newNodesMap)
		if err != nil {
			logger.Error(err, "A GPU map entry failed to parse as JSON", "nodeName", nodeName)
			continue
		}
		for uuid, index := range newNodesMap {
			newLoc := GpuLocation{Node: nodeName, Index: index}
			if oldMap == nil || (*oldMap)[uuid] != newLoc {
				additions++
			}
			newMap[uuid] = newLoc
		}
		nodeCount += 1
	}
	logger.V(1).Info("Parsed GPU map", "numNodes", nodeCount, "numGPUs", len(newMap), "additions", additions)
	ctl.gpuMap.Store(&newMap)
	if additions > 0 {
		ctl.enqueueRequesters(ctx)
	}
	return nil, false
}

func (ctl *controller) enqueueInstanceGCItemsForISC(iscName string) {
	ctl.mutex.Lock()
	defer ctl.mutex.Unlock()
	for nodeName, nodeDat := range ctl.nodeNameToData {
		nodeDat.add(instanceGCItem{ISCName: iscName})
		ctl.Queue.Add(nodeItem{nodeName})
	}
}

func (ctl *controller) enqueueRequesters(ctx context.Context) {
	ctl.mutex.Lock()
	defer ctl.mutex.Unlock()
	logger := klog.FromContext(ctx)
	for nodeName, nodeDat := range ctl.nodeNameToData {
		var some bool
		for infSvrUID, serverDat := range nodeDat.InferenceServers {
			item := infSvrItem{infSvrUID, serverDat.RequestingPodName}
			logger.V(5).Info("Enqueuing inference server because of change to GPU map", "node", nodeName, "item", item)
			nodeDat.add(item)
			some = true
		}
		if some {
			ctl.Queue.Add(nodeItem{nodeName})
		}
	}
}

func (ctl *controller) enqueueInfSvrItemsByISC(isc *fmav1alpha1.InferenceServerConfig, isInInitialList bool) {
	inferenceServerConfigName := isc.Name
	requesters, err := ctl.podInformer.GetIndexer().ByIndex(inferenceServerConfigIndexName, inferenceServerConfigName)
	if err != nil {
		ctl.enqueueLogger.Error(err, "Failed to get server requesting pods that use InferenceServerConfig", "ref", cache.MetaObjectToName(isc))
		return
	}
	nodeNames := sets.New[string]()
	for _, podObj := range requesters {
		pod := podObj.(*corev1.Pod)
		item, it := careAbout(pod)
		if it != infSvrItemRequester {
			ctl.enqueueLogger.Error(fmt.Errorf("unexpected inference server item type"), "Ignoring Pod that is not a server-requesting Pod", "pod", pod.Name, "infSvrItemType", it)
			continue
		}
		nodeName := pod.Spec.NodeName
		if nodeName == "" {
			ctl.enqueueLogger.V(5).Info("Ignoring non-scheduled server-requesting Pod that uses InferenceServerConfig", "pod", pod.Name, "inferenceServerConfigName", inferenceServerConfigName)
			continue
		}
		nd := ctl.getNodeData(nodeName)
		ctl.enqueueLogger.V(5).Info("Enqueuing inference server reference due to notification of InferenceServerConfig", "nodeName", nodeName, "item", item, "infSvrItemType", it, "inferenceServerConfigName", inferenceServerConfigName, "isInInitialList", isInInitialList, "resourceVersion", isc.ResourceVersion)
		nd.add(item)
		nodeNames.Insert(nodeName)
	}
	for nodeName := range nodeNames {
		ctl.Queue.Add(nodeItem{nodeName})
	}
}

func (ctl *controller) enqueueUnboundInfSvrItemsOnNode(ctx context.Context, nodeName string, whyEnqueue string) {
	logger := klog.FromContext(ctx)
	nd := ctl.getNodeData(nodeName)
	itemCount := 0
	podObjs, err := ctl.podInformer.GetIndexer().ByIndex(nodeNameIndexName, nodeName)
	if err != nil {
		logger.Error(err, "Failed to list Pods by nodeName index", "nodeName", nodeName, "whyEnqueue", whyEnqueue)
		return
	}
	for _, podObj := range podObjs {
		pod := podObj.(*corev1.Pod)
		item, it := careAbout(pod)
		if it != infSvrItemRequester {
			continue
		}
		// skip bound Inference Servers
		// a podObj could be either a server-requesting Pod or a server-providing Pod
		// but after the `it != infSvrItemRequester` check above, it must be a server-requesting Pod here, and we want to skip it if it's bound to a server-providing Pod
		// we can use the controller's data to check whether it's bound or not
		serverDat := ctl.getServerData(nd, pod.Name, pod.UID)
		if serverDat.ProvidingPodName != "" {
			continue
		}
		nd.add(item)
		itemCount++
	}
	if itemCount == 0 {
		logger.V(5).Info("No unbound infSvrItems to enqueue on node", "node", nodeName, "whyEnqueue", whyEnqueue)
		return
	}
	logger.V(5).Info("Enqueuing unbound infSvrItems on node", "node", nodeName, "whyEnqueue", whyEnqueue, "itemCount", itemCount)
	ctl.Queue.Add(nodeItem{nodeName})
}

func (ctl *controller) getNodeData(nodeName string) *nodeData {
	ctl.mutex.Lock()
	defer ctl.mutex.Unlock()
	ans := ctl.nodeNameToData[nodeName]
	if ans == nil {
		ans = &nodeData{
			NodeName:         nodeName,
			LocalQueue:       make(map[itemOnNode]*scheduledItem),
			InferenceServers: make(map[apitypes.UID]*serverData),
			Launchers:        make(map[string]*launcherData),
			rateLimiter: workqueue.NewTypedWithMaxWaitRateLimiter(
				workqueue.DefaultTypedControllerRateLimiter[itemOnNode](),
				controllerQueuePerItemRetryMaxDelay, // 20s, from queue-work.go
			),
		}
		ctl.nodeNameToData[nodeName] = ans
	}
	return ans
}

// add enqueues item for immediate processing.
// For an already-queued item whose processAfter is set to a future time
// (e.g., due to a prior rate-limited retry via addAfter), a fresh notification
// means the item should be reconciled now, not at that previously scheduled time.
func (nodeDat *nodeData) add(item itemOnNode) {
	nodeDat.addAfter(item, time.Now())
}

func (nodeDat *nodeData) addAfter(item itemOnNode, after time.Time) {
	nodeDat.ItemsMutex.Lock()
	defer nodeDat.ItemsMutex.Unlock()
	if cur, exist := nodeDat.LocalQueue[item]; exist {
		if after.Before(cur.processAfter) {
			cur.processAfter = after
		}
		return
	}
	nodeDat.LocalQueue[item] = &scheduledItem{
		addTime: time.Now(), processAfter: after,
	}
	addsCounters.WithLabelValues(nodeDat.NodeName).Inc()
	queueDepthGauges.WithLabelValues(nodeDat.NodeName).Set(float64(len(nodeDat.LocalQueue)))
}

// takeReadyItems removes and returns items whose processAfter <= now,
// ordered oldest-first by enqueue time (addTime).
// Items not yet ready remain in the queue.
func (nodeDat *nodeData) takeReadyItems(now time.Time) []scheduledEntry {
	nodeDat.ItemsMutex.Lock()
	var ready []scheduledEntry
	for item, si := range nodeDat.LocalQueue {
		if !si.processAfter.After(now) {
			ready = append(ready, scheduledEntry{item: item, scheduled: si})
			delete(nodeDat.LocalQueue, item)
		}
	}
	queueDepthGauges.WithLabelValues(nodeDat.NodeName).Set(float64(len(nodeDat.LocalQueue)))
	nodeDat.ItemsMutex.Unlock()

	sort.Slice(ready, func(i, j int) bool {
		return ready[i].scheduled.addTime.Before(ready[j].scheduled.addTime)
	})
	return ready
}

// earliestPending returns the earliest processAfter among remaining items,
// or zero time if the queue is empty.
func (nodeDat *nodeData) earliestPending() time.Time {
	nodeDat.ItemsMutex.Lock()
	defer nodeDat.ItemsMutex.Unlock()
	var earliest time.Time
	for _, si := range nodeDat.LocalQueue {
		if earliest.IsZero() || si.processAfter.Before(earliest) {
			earliest = si.processAfter
		}
	}
	return earliest
}

func (ctl *controller) getServerData(nodeDat *nodeData, reqName string, reqUID apitypes.UID) *serverData {
	ctl.mutex.Lock()
	defer ctl.mutex.Unlock()
	ans := nodeDat.InferenceServers[reqUID]
	if ans == nil {
		ans = &serverData{RequestingPodName: reqName, InstancesDeleted: sets.New[string]()}
		nodeDat.InferenceServers[reqUID] = ans
	}
	return ans
}

func (ctl *controller) getLauncherData(nodeDat *nodeData, launcherPodName string) *launcherData {
	ans := nodeDat.Launchers[launcherPodName]
	if ans == nil {
		ans = &launcherData{
			Instances: make(map[string]time.Time),
		}
		nodeDat.Launchers[launcherPodName] = ans
	}
	return ans
}

func (ctl *controller) clearLauncherData(nodeDat *nodeData, launcherPodName string) {
	delete(nodeDat.Launchers, launcherPodName)
}

func (ctl *controller) clearServerData(nodeDat *nodeData, uid apitypes.UID) {
	ctl.mutex.Lock()
	defer ctl.mutex.Unlock()
	delete(nodeDat.InferenceServers, uid)
}
