package binding

import (
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/launcherpool"
	"hotseat.dev/hotseat/dualpods/internal/models/modelcache"
	"hotseat.dev/hotseat/dualpods/internal/servers/serverconfig"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// SetupWithManager indexes Pods by dualpods.IndexNode, and reconciles a node when
// something of it changes. Requests for what these watches do not report come from
// others. A controller that watches only one namespace does not watch cluster-scoped
// ClusterModelCaches, nor the annotations of namespaces; only is then that namespace.
func (c *Controller) SetupWithManager(ctx context.Context, mgr ctrl.Manager, others source.Source, only string, options controller.Options) error {
	index := func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, dualpods.IndexNode, index); err != nil {
		return fmt.Errorf("cannot index Pods: %w", err)
	}
	api := mgr.GetClient()
	nodes := ctrl.NewControllerManagedBy(mgr).Named("binding")
	if only == "" {
		nodes = nodes.Watches(&v1alpha1.ClusterModelCache{}, waitingFor(api))
		// The cache has the annotations of namespaces before the first pass.
		if _, err := mgr.GetCache().GetInformer(ctx, metadataOfNamespace(), cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("cannot watch namespaces: %w", err)
		}
	}
	return nodes.
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(c.nodeOfPod)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			return request(o.GetName())
		}), builder.WithPredicates(nodeChanged(ctx, api))).
		Watches(&v1alpha1.InferenceServerConfig{}, handler.EnqueueRequestsFromMapFunc(nodesOfConfig(api)), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.LauncherConfig{}, handler.EnqueueRequestsFromMapFunc(nodesOfLauncherConfig(api)), builder.WithPredicates(configChanged())).
		Watches(&appsv1.DaemonSet{}, handler.EnqueueRequestsFromMapFunc(nodesOfDaemonSet(api)), builder.WithPredicates(launcherpool.CreatedOrDeleted())).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(nodesOfSecret(api))).
		WatchesRawSource(others).
		WithOptions(options).
		Complete(c)
}

func request(node string) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: node}}}
}

// nodeChanged accepts what a pass reads of a Node: also taints, which may keep a launcher from it,
// and labels by which a LauncherConfig selects it. The kubelet writes the status of each Node, and
// the controller writes labels of its models there, again and again; and a pass asks every
// requester program of the node.
func nodeChanged(ctx context.Context, api client.Reader) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Node)
		after, too := e.ObjectNew.(*corev1.Node)
		return !ok || !too || before.UID != after.UID || before.Spec.Unschedulable != after.Spec.Unschedulable ||
			before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
			!equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) ||
			!maps.Equal(before.Labels, after.Labels) && selectedOtherwise(ctx, api, before, after)
	}}
}

// selectedOtherwise reports whether a LauncherConfig selects a node by its labels of now and not
// by those before, or the reverse. If that cannot be told, it may be so.
func selectedOtherwise(ctx context.Context, api client.Reader, before, after *corev1.Node) bool {
	var configs v1alpha1.LauncherConfigList
	if err := api.List(ctx, &configs, client.UnsafeDisableDeepCopy); err != nil {
		return true
	}
	return slices.ContainsFunc(configs.Items, func(config v1alpha1.LauncherConfig) bool {
		selection := dualpods.SelectionOf(&config)
		return selection.Has(before) != selection.Has(after)
	})
}

// nodeOfPod returns the node of a requester, launcher or agent.
func (c *Controller) nodeOfPod(_ context.Context, o client.Object) []reconcile.Request {
	pod, ok := o.(*corev1.Pod)
	if ok && c.isAgent(pod) {
		return request(pod.Spec.NodeName)
	}
	if !ok {
		return nil
	}
	switch dualpods.LooksLike(pod) {
	case dualpods.KindLauncher:
		return request(launcherpool.NodeOf(pod))
	case dualpods.KindRequester:
		return request(pod.Spec.NodeName)
	default:
		return nil
	}
}

// nodesOfConfig returns the nodes of the requesters that name an InferenceServerConfig.
func nodesOfConfig(api client.Client) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		var pods corev1.PodList
		of := client.MatchingFields{serverconfig.IndexConfig: o.GetName()}
		if err := api.List(ctx, &pods, client.InNamespace(o.GetNamespace()), of, client.UnsafeDisableDeepCopy); err != nil {
			return nil
		}
		var all []reconcile.Request
		seen := map[string]bool{}
		for i := range pods.Items {
			if node := pods.Items[i].Spec.NodeName; !seen[node] {
				seen[node] = true
				all = append(all, request(node)...)
			}
		}
		return all
	}
}

// configChanged accepts what changes which launchers a LauncherConfig provides.
func configChanged() predicate.Predicate {
	usable := func(o client.Object) string {
		config, ok := o.(*v1alpha1.LauncherConfig)
		if !ok {
			return ""
		}
		c := meta.FindStatusCondition(config.Status.Conditions, v1alpha1.ConditionAccepted)
		if c == nil {
			return ""
		}
		return string(c.Status) + c.Message
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || usable(e.ObjectOld) != usable(e.ObjectNew)
	}}
}

// nodesOfNamespace returns the nodes of the requesters in the namespace of an object.
func nodesOfNamespace(api client.Client) handler.MapFunc {
	return nodesOf(api, func(pod *corev1.Pod, _ client.Object) bool { return podmeta.IsRequester(pod) })
}

// nodesOfLauncherConfig returns the nodes of the requesters in the namespace of a
// LauncherConfig, and of the Pods that are launchers only if it exists.
func nodesOfLauncherConfig(api client.Client) handler.MapFunc {
	return nodesOf(api, func(pod *corev1.Pod, config client.Object) bool {
		return podmeta.IsRequester(pod) || dualpods.ConfigName(pod) == config.GetName()
	})
}

// nodesOfDaemonSet returns the nodes of the Pods that are launchers only if the DaemonSet
// exists.
func nodesOfDaemonSet(api client.Client) handler.MapFunc {
	return nodesOf(api, func(pod *corev1.Pod, set client.Object) bool {
		name := dualpods.ConfigName(pod)
		return name != "" && dualpods.LauncherSet(name) == set.GetName()
	})
}

// nodesOfSecret returns the nodes of the launchers that may have a token, and of the
// requesters that may wait for one.
func nodesOfSecret(api client.Client) handler.MapFunc {
	return nodesOf(api, func(pod *corev1.Pod, secret client.Object) bool {
		name := dualpods.ConfigName(pod)
		return podmeta.IsRequester(pod) || name != "" && name == secret.GetLabels()[podmeta.LabelLauncherConfig]
	})
}

// nodesOf returns the nodes of the Pods that an object of their namespace concerns.
func nodesOf(api client.Client, concerns func(*corev1.Pod, client.Object) bool) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		var pods corev1.PodList
		if err := api.List(ctx, &pods, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
			return nil
		}
		var all []reconcile.Request
		seen := map[string]bool{"": true}
		for i := range pods.Items {
			if node := pods.Items[i].Spec.NodeName; !seen[node] && concerns(&pods.Items[i], o) {
				seen[node] = true
				all = append(all, request(node)...)
			}
		}
		return all
	}
}

// waitingFor enqueues the nodes on which requesters may wait for the model of a
// ClusterModelCache that changed.
func waitingFor(api client.Client) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	all := nodesOfNamespace(api) // a ClusterModelCache is in none: of all of them
	add := func(requests []reconcile.Request, q queue) {
		for _, r := range requests {
			q.Add(r)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(all(ctx, e.Object), q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { add(all(ctx, e.Object), q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, ok := e.ObjectOld.(*v1alpha1.ClusterModelCache)
			after, too := e.ObjectNew.(*v1alpha1.ClusterModelCache)
			if !ok || !too {
				return
			}
			everywhere, nodes := modelcache.Changed(before, after)
			if everywhere {
				add(all(ctx, after), q)
			}
			for _, node := range nodes {
				add(request(node), q)
			}
		},
	}
}
