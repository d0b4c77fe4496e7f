package modelvolume

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Place is a cache in a namespace. It has one volume and one claim.
type Place struct{ Cache, Namespace string }

// World is the input of a decision.
type World struct {
	Caches  map[string]*v1alpha1.ClusterModelCache   // by name
	Groups  map[string]*v1alpha1.ModelCacheNodeGroup // by name
	Pods    []corev1.Pod                             // Pods that name claims
	Volumes map[Place]*corev1.PersistentVolume       // created by the controller
	Claims  map[Place]*corev1.PersistentVolumeClaim  // created by the controller
}

// Plan is the result of a decision.
type Plan struct {
	Make   []Made
	Delete []client.Object
	Told   []Told
}

// Made is an object to create, and the Pods that need it.
type Made struct {
	client.Object
	For []*corev1.Pod
}

// Told is a report to a Pod that waits for a claim.
type Told struct {
	Pod             *corev1.Pod
	Reason, Message string
}

// Reasons of reports to Pods, besides those of the conditions of a cache.
const (
	ReasonNoSuchCache  = "NoSuchModelCache"
	ReasonDeleting     = "ModelCacheDeleted"
	ReasonNotMade      = "ClaimNotMade" // the API server refuses to create the volume or the claim
	ReasonGoing        = "ClaimGoing"   // Pods keep the claim, which is being deleted
	ReasonOneNamespace = "OneNamespace" // the controller watches one namespace, and creates no claims
)

// Decide decides by the table in spec/modelvolume.md. It does not change w.
func Decide(w *World) *Plan {
	plan := &Plan{}
	pods := map[Place]mounting{}
	places := map[Place]bool{}
	for i := range w.Pods {
		pod := &w.Pods[i]
		for _, cache := range naming(pod) {
			at := Place{cache, pod.Namespace}
			pods[at], places[at] = pods[at].and(pod), true
		}
	}
	for at := range w.Volumes {
		places[at] = true
	}
	for at := range w.Claims {
		places[at] = true
	}
	for _, at := range slices.SortedFunc(maps.Keys(places), func(a, b Place) int {
		return cmp.Or(strings.Compare(a.Cache, b.Cache), strings.Compare(a.Namespace, b.Namespace))
	}) {
		plan.place(w, at, pods[at])
	}
	return plan
}

// mounting has the Pods that name a claim.
type mounting struct {
	users []*corev1.Pod // Pods that have not finished
	// keepers are the names of Pods that were placed on a node, finished ones included.
	// Kubernetes keeps a deleted claim until the last of them is gone.
	keepers []string
}

func (m mounting) and(pod *corev1.Pod) mounting {
	if !podmeta.Finished(pod) {
		m.users = append(m.users, pod)
	}
	if pod.Spec.NodeName != "" {
		m.keepers = append(m.keepers, pod.Name)
	}
	return m
}

// place decides for a cache in a namespace.
func (p *Plan) place(w *World, at Place, pods mounting) {
	cache, volumeThere, claimThere := w.Caches[at.Cache], w.Volumes[at], w.Claims[at]
	users := pods.users
	if len(users) == 0 {
		if claimThere == nil || len(pods.keepers) == 0 { // else the claim would stay, and the next Pod could not mount it
			p.clear(volumeThere, claimThere)
		}
		return
	}
	if reason, message := why(cache, at.Cache, w.Groups); reason != "" {
		for _, pod := range users {
			p.Told = append(p.Told, Told{Pod: pod, Reason: reason, Message: message})
		}
		if cache == nil || reason == v1alpha1.ReasonPrivate {
			p.clear(volumeThere, claimThere)
		}
		return
	}
	if claimThere != nil && !claimThere.DeletionTimestamp.IsZero() {
		p.going(claimThere, pods)
	}
	store := w.Groups[cache.Spec.Groups()[0]].Spec.Path
	switch {
	case stale(cache, volumeThere, claimThere, store):
		p.clear(volumeThere, claimThere)
	case volumeThere == nil && claimThere == nil, volumeThere == nil && claimThere.Status.Phase == corev1.ClaimPending:
		p.Make = append(p.Make, Made{volume(cache, at, store), users})
		if claimThere == nil {
			p.Make = append(p.Make, Made{claim(cache, at), users})
		}
	case volumeThere != nil && claimThere == nil && volumeThere.DeletionTimestamp.IsZero():
		p.Make = append(p.Make, Made{claim(cache, at), users})
	}
}

// going reports to the waiting Pods which Pods keep a claim that is being deleted.
func (p *Plan) going(claim *corev1.PersistentVolumeClaim, pods mounting) {
	if len(pods.keepers) == 0 {
		return
	}
	const some = 5
	slices.Sort(pods.keepers)
	names := strings.Join(pods.keepers[:min(len(pods.keepers), some)], ", ")
	if more := len(pods.keepers) - some; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	for _, pod := range pods.users {
		if pod.Spec.NodeName == "" {
			p.Told = append(p.Told, Told{Pod: pod, Reason: ReasonGoing, Message: fmt.Sprintf(
				"the claim %s is being deleted, and is created again once no Pod mounts it; finished Pods count: delete %s", claim.Name, names)})
		}
	}
}

// stale reports whether the volume or the claim must be deleted before it can be created anew. It
// belongs to an earlier cache or version, or the volume or the claim has lost the other.
func stale(cache *v1alpha1.ClusterModelCache, volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim, store string) bool {
	if claim != nil && (!owned(cache, claim) || claim.Status.Phase == corev1.ClaimLost) {
		return true
	}
	return volume != nil && (!of(cache, volume, store) || claim == nil && volume.Status.Phase == corev1.VolumeReleased)
}

// clear deletes the claim, which stays while Pods exist that were on a node with it. A later
// pass then deletes the volume.
func (p *Plan) clear(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) {
	switch {
	case claim != nil:
		if claim.DeletionTimestamp.IsZero() {
			p.Delete = append(p.Delete, claim)
		}
	case volume != nil && volume.DeletionTimestamp.IsZero():
		p.Delete = append(p.Delete, volume)
	}
}

// why returns why the controller creates no claim for Pods that name it; empty: it creates it.
func why(cache *v1alpha1.ClusterModelCache, name string, groups map[string]*v1alpha1.ModelCacheNodeGroup) (reason, message string) {
	switch {
	case cache == nil:
		return ReasonNoSuchCache, fmt.Sprintf("there is no ClusterModelCache %s, whose model the claim %s would hold: create it, or correct the name of the claim", name, ClaimOf(name))
	case !cache.DeletionTimestamp.IsZero():
		return ReasonDeleting, fmt.Sprintf("ClusterModelCache %s is being deleted: no further Pod can mount its model", name)
	}
	if reason, message := Problem(cache, groups); reason != "" {
		return reason, message
	}
	switch is := meta.FindStatusCondition(cache.Status.Conditions, v1alpha1.ConditionMountable); {
	case cache.Status.ID != "":
		return "", ""
	case cache.Status.Ready > 0, is != nil && is.Reason == v1alpha1.ReasonSeveralVersions: // the condition exists only while Pods name the claim
		return v1alpha1.ReasonSeveralVersions, SeveralVersions(name)
	default:
		return v1alpha1.ReasonNotAsked, fmt.Sprintf("ClusterModelCache %s: the version of the model is not known yet; the claim %s is created once it is", name, ClaimOf(name))
	}
}

// SeveralVersions returns the message for a cache whose nodes have different versions of the
// model, so that no Pod can mount it.
func SeveralVersions(cache string) string {
	return "ClusterModelCache " + cache + ": its nodes have different versions of the model, but a volume has one version: no claim is created; with a source that tells versions by the times of files, such as file://, each node has a version of its own"
}

// Problem returns why no Pod can mount the model of a cache; empty: Pods can.
func Problem(cache *v1alpha1.ClusterModelCache, groups map[string]*v1alpha1.ModelCacheNodeGroup) (reason, message string) {
	if cache.Spec.Credentials != nil && !cache.Spec.Credentials.Shared {
		return v1alpha1.ReasonPrivate, fmt.Sprintf("ClusterModelCache %s has a private model, which every Pod that mounts it could read: no claim is created unless spec.credentials.shared is true", cache.Name)
	}
	path := ""
	for _, name := range cache.Spec.Groups() {
		group := groups[name]
		if group == nil {
			return v1alpha1.ReasonNodeGroupMissing, fmt.Sprintf("ClusterModelCache %s: there is no ModelCacheNodeGroup %s, so the folder of the model is unknown", cache.Name, name)
		}
		if path != "" && path != group.Spec.Path {
			return v1alpha1.ReasonSeveralFolders, fmt.Sprintf("ClusterModelCache %s: its node groups have the folders %s and %s, but a volume has one folder: no claim is created; create a ClusterModelCache of the same model for each folder", cache.Name, path, group.Spec.Path)
		}
		path = group.Spec.Path
	}
	return "", ""
}
