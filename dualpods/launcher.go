package dualpods

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// IndexNode is the field that the cache indexes Pods by: the name of their node.
const IndexNode = "spec.nodeName"

// ConfigName returns the name of the LauncherConfig that the labels of a launcher tell; empty:
// the Pod does not have the labels of a launcher. Anybody who may create Pods can set them, so
// they only select Pods for an index or an event: [Launchers] decides. A requester that the
// controller holds is no launcher, whatever its labels say.
func ConfigName(pod *corev1.Pod) string {
	if podmeta.Held(pod) || pod.Labels[podmeta.LabelComponent] != podmeta.ComponentLauncher {
		return ""
	}
	return pod.Labels[podmeta.LabelLauncherConfig]
}

// LauncherLabels selects the Pods that may be launchers, and others.
var LauncherLabels = client.MatchingLabels{podmeta.LabelComponent: podmeta.ComponentLauncher}

// LauncherSet returns the name of the DaemonSet of a LauncherConfig. The names of its Pods
// and Secrets begin with it.
func LauncherSet(config string) string { return config + "-launcher" }

// Launchers tells what Pods are: above all, the launchers that the pool made from strangers,
// which are Pods that only look like them. It reads each LauncherConfig once, so it lives as
// long as one pass.
type Launchers struct {
	api        client.Reader
	owners     map[client.ObjectKey]launcherOwners
	selections map[types.UID]Selection // by LauncherConfig
}

// launcherOwners are the objects that may own the launchers of a LauncherConfig.
type launcherOwners struct {
	config *v1alpha1.LauncherConfig // nil: there is none
	set    types.UID                // its DaemonSet; empty: there is none
}

// NewLaunchers makes a Launchers that reads from api.
func NewLaunchers(api client.Reader) *Launchers {
	return &Launchers{api: api, owners: map[client.ObjectKey]launcherOwners{}, selections: map[types.UID]Selection{}}
}

// owner returns the LauncherConfig of a Pod that may be a launcher: the Pod's controller is the
// LauncherConfig that its labels name, or the DaemonSet of that LauncherConfig, by UID; nil:
// there is none.
func (l *Launchers) owner(ctx context.Context, pod *corev1.Pod) (*v1alpha1.LauncherConfig, error) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return nil, nil
	}
	of, err := l.ownersOf(ctx, configKey(pod))
	if err != nil || of.config == nil || owner.UID != of.config.UID && owner.UID != of.set {
		return nil, err
	}
	return of.config, nil
}

// configKey returns the LauncherConfig that the labels of a Pod name.
func configKey(pod *corev1.Pod) client.ObjectKey {
	return client.ObjectKey{Namespace: pod.Namespace, Name: ConfigName(pod)}
}

// Among returns the launchers among these Pods.
func (l *Launchers) Among(ctx context.Context, pods []corev1.Pod) (launchers []*corev1.Pod, err error) {
	for n := range pods {
		kind, _, err := l.KindOf(ctx, &pods[n])
		if err != nil {
			return nil, err
		}
		if kind.IsLauncher() {
			launchers = append(launchers, &pods[n])
		}
	}
	return launchers, nil
}

// ConfigExists reports whether the LauncherConfig exists that the labels of a Pod name, and a
// DaemonSet of its name controls the Pod.
func (l *Launchers) ConfigExists(ctx context.Context, pod *corev1.Pod) (bool, error) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "DaemonSet" || owner.Name != LauncherSet(ConfigName(pod)) {
		return false, nil
	}
	of, err := l.ownersOf(ctx, configKey(pod))
	return of.config != nil, err
}

func (l *Launchers) ownersOf(ctx context.Context, key client.ObjectKey) (of launcherOwners, err error) {
	if of, known := l.owners[key]; known {
		return of, nil
	}
	var config v1alpha1.LauncherConfig
	if err := l.api.Get(ctx, key, &config); apierrors.IsNotFound(err) {
		l.owners[key] = of
		return of, nil
	} else if err != nil {
		return of, fmt.Errorf("cannot read LauncherConfig %s: %w", key, err)
	}
	of.config = &config
	var set appsv1.DaemonSet
	err = l.api.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: LauncherSet(key.Name)}, &set)
	if client.IgnoreNotFound(err) != nil {
		return of, fmt.Errorf("cannot read DaemonSet %s/%s: %w", key.Namespace, LauncherSet(key.Name), err)
	}
	if err == nil && metav1.IsControlledBy(&set, &config) {
		of.set = set.UID
	}
	l.owners[key] = of
	return of, nil
}

// RecordOf returns the launcher that has the record of a requester, and the record; nil: no
// launcher of the requester's node has one. The api must index Pods by IndexNode.
func (l *Launchers) RecordOf(ctx context.Context, requester *corev1.Pod) (*corev1.Pod, *podmeta.Binding, error) {
	if requester.Spec.NodeName == "" {
		return nil, nil, nil
	}
	var pods corev1.PodList
	on := client.MatchingFields{IndexNode: requester.Spec.NodeName}
	if err := l.api.List(ctx, &pods, client.InNamespace(requester.Namespace), on, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("cannot list the Pods of node %s: %w", requester.Spec.NodeName, err)
	}
	launchers, err := l.Among(ctx, pods.Items)
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(launchers, func(a, b *corev1.Pod) int { // as binding chooses
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	for _, launcher := range launchers {
		records, _ := podmeta.ReadBindings(launcher)
		for n := range records {
			if IdentityIn(&records[n]) == IdentityOf(requester) {
				return launcher, &records[n], nil
			}
		}
	}
	return nil, nil, nil
}

// LauncherWait is what a requester waits for while it has no launcher that runs.
type LauncherWait struct {
	Why     string
	Missing bool // no launcher is there, and none is being made
	Stuck   bool // somebody has to do something before it ends
}

// WaitForLauncher returns what a launcher Pod waits for while its program does not run.
func WaitForLauncher(pod *corev1.Pod) *LauncherWait {
	w := &LauncherWait{Why: "launcher " + pod.Name + " is starting"}
	if why, stuck := podmeta.Waits(pod); why != "" {
		w.Why, w.Stuck = "launcher "+pod.Name+" "+why, stuck
	}
	return w
}
