package modelclaim

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods/internal/models/sourcesecret"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// World is the input of a decision about one ModelCache.
type World struct {
	Now   time.Time
	Image string // contains modelfetch
	Cache *v1alpha1.ModelCache
	Claim *corev1.PersistentVolumeClaim // nil: no claim has the name
	// Unheard means that this process has just created the claim and the cache does not show it.
	Unheard bool
	// NoClass means that the claim is not bound and its StorageClass does not exist.
	NoClass bool
	// Refused is why the API server refused the change of the claim; empty: it did not.
	Refused string
	// NoSource means that the source is a folder of a claim that does not exist.
	NoSource bool
	Found    sourcesecret.Found // credentials that the cache names
	unread   error              // why credentials could not be read; the pass is repeated
	Job      *batchv1.Job       // nil: the cache has none
	Workers  []*corev1.Pod      // Pods of the Job, oldest first
	Users    []*corev1.Pod      // other unfinished Pods that mount the claim, by name
	// Done describes the other Pods that have finished on a node. Kubernetes keeps a deleted
	// claim until all Pods are gone that were on a node with it.
	Done []string
	// Instances describes the inference servers that read from the claim.
	Instances []string
}

func (w *World) claimName() string { return ClaimName(w.Cache) }

// ClaimName returns the name of the claim of a ModelCache.
func ClaimName(c *v1alpha1.ModelCache) string {
	if c.Spec.Claim != nil {
		return c.Spec.Claim.Name
	}
	return c.Name
}

// JobName returns the name of the Job of a ModelCache.
func JobName(cache string) string { return cache + "-fetch" }

// Holder returns the name by which a ModelCache wants its model from the store of the claim.
func Holder(c *v1alpha1.ModelCache) string {
	return "ModelCache/" + c.Namespace + "/" + c.Name + "/" + string(c.UID)
}

// made reports whether the controller created the claim for this cache.
func (w *World) made() bool {
	return w.Claim != nil && w.Claim.Labels[podmeta.LabelModelCacheUID] == string(w.Cache.UID)
}

// whole reports whether the claim has the model, by the status.
func (w *World) whole() bool {
	s := &w.Cache.Status
	return w.Claim != nil && s.ModelID != "" && s.ClaimUID == w.Claim.UID
}

// capacity returns the size of a claim in bytes.
func capacity(claim *corev1.PersistentVolumeClaim) int64 {
	if q, ok := claim.Status.Capacity[corev1.ResourceStorage]; ok {
		return q.Value()
	}
	return claim.Spec.Resources.Requests.Storage().Value()
}

// finished reports whether a Job has ended, how, since when, and why it failed.
func finished(job *batchv1.Job) (done, failed bool, since metav1.Time, why string) {
	for _, c := range job.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case batchv1.JobComplete:
			return true, false, c.LastTransitionTime, ""
		case batchv1.JobFailed:
			return false, true, c.LastTransitionTime, c.Message
		case batchv1.JobSuspended, batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet:
		}
	}
	return false, false, metav1.Time{}, ""
}

// elsewhere reports whether the Job's last Pod waits on a node for a claim that other Pods use
// on another node.
func (w *World) elsewhere() bool {
	if len(w.Workers) == 0 || !w.oneNode() {
		return false
	}
	last := w.Workers[len(w.Workers)-1]
	nodes := w.nodesOfUsers()
	return last.Status.Phase == corev1.PodPending && last.Spec.NodeName != "" && len(nodes) > 0 && !slices.Contains(nodes, last.Spec.NodeName)
}

// oneNode reports whether the claim can be on only one node at a time.
func (w *World) oneNode() bool {
	return !slices.Contains(w.Claim.Spec.AccessModes, corev1.ReadWriteMany)
}

// nodesOfUsers returns the nodes on which other Pods run with the claim.
func (w *World) nodesOfUsers() (nodes []string) {
	for _, p := range w.Users {
		if p.Spec.NodeName != "" && p.Status.Phase == corev1.PodRunning && !slices.Contains(nodes, p.Spec.NodeName) {
			nodes = append(nodes, p.Spec.NodeName)
		}
	}
	return nodes
}
