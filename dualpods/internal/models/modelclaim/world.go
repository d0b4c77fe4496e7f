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

// World is what a decision about one ModelCache rests on.
type World struct {
	Now   time.Time
	Image string // that has modelfetch
	Cache *v1alpha1.ModelCache
	Claim *corev1.PersistentVolumeClaim // nil: there is none of that name
	// Unheard: it was made a moment ago, and the cache has not heard of it.
	Unheard bool
	// NoClass: the claim waits, and the StorageClass that it names is not there.
	NoClass bool
	// Refused is why the claim could not be changed as it should; empty: it was not tried.
	Refused string
	// NoSource: the claim that the source is a folder of is not there.
	NoSource bool
	Found    sourcesecret.Found // of what it names for credentials
	unread   error              // why some of that could not be read; it is tried again
	Job      *batchv1.Job       // of the cache; nil: there is none
	Workers  []*corev1.Pod      // of the Job, the oldest first
	Users    []*corev1.Pod      // others that mount the claim and have not finished, by name
	// Done are others that have, in words: Kubernetes keeps a claim that is deleted until
	// the last Pod is gone that has been on a node with it.
	Done []string
	// Instances are the inference servers that read the model, in words.
	Instances []string
}

func (w *World) claimName() string { return ClaimName(w.Cache) }

// ClaimName is the name of the claim of a ModelCache.
func ClaimName(c *v1alpha1.ModelCache) string {
	if c.Spec.Claim != nil {
		return c.Spec.Claim.Name
	}
	return c.Name
}

// JobName is the name of the Job of a ModelCache.
func JobName(cache string) string { return cache + "-fetch" }

// Holder is the name by which a ModelCache wants its model of the claim's store.
func Holder(c *v1alpha1.ModelCache) string {
	return "ModelCache/" + c.Namespace + "/" + c.Name + "/" + string(c.UID)
}

// made says that the claim was made for the cache.
func (w *World) made() bool {
	return w.Claim != nil && w.Claim.Labels[podmeta.LabelModelCacheUID] == string(w.Cache.UID)
}

// whole says that the claim has the model.
func (w *World) whole() bool {
	s := &w.Cache.Status
	return w.Claim != nil && s.ModelID != "" && s.ClaimUID == w.Claim.UID
}

// capacity is how many bytes a claim has room for.
func capacity(claim *corev1.PersistentVolumeClaim) int64 {
	if q, ok := claim.Status.Capacity[corev1.ResourceStorage]; ok {
		return q.Value()
	}
	return claim.Spec.Resources.Requests.Storage().Value()
}

// finished says whether a Job has come to its end, and when.
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

// elsewhere says that the Job's Pod waits on a node for a claim that other Pods have on
// another one.
func (w *World) elsewhere() bool {
	if len(w.Workers) == 0 || !w.oneNode() {
		return false
	}
	last := w.Workers[len(w.Workers)-1]
	nodes := w.nodesOfUsers()
	return last.Status.Phase == corev1.PodPending && last.Spec.NodeName != "" && len(nodes) > 0 && !slices.Contains(nodes, last.Spec.NodeName)
}

// oneNode says that the claim is on one node at a time.
func (w *World) oneNode() bool {
	return !slices.Contains(w.Claim.Spec.AccessModes, corev1.ReadWriteMany)
}

// nodesOfUsers are the nodes on which others have the claim.
func (w *World) nodesOfUsers() (nodes []string) {
	for _, p := range w.Users {
		if p.Spec.NodeName != "" && p.Status.Phase == corev1.PodRunning && !slices.Contains(nodes, p.Spec.NodeName) {
			nodes = append(nodes, p.Spec.NodeName)
		}
	}
	return nodes
}
