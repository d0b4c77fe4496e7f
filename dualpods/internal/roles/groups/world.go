package groups

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// World is the input of a decision about one ModelServing.
type World struct {
	Serving  *v1alpha1.ModelServing
	Revision string // of its template
	Problems []podmeta.Problem
	// Revisions are its ControllerRevisions.
	Revisions []*appsv1.ControllerRevision
	// Unheard means that this process has just created the ControllerRevision of the present
	// template and the cache does not show it.
	Unheard bool
	// Members are the entries that it should have, in the order of creation, and then those that
	// it should not have, in the order of deletion.
	Members []*Member

	templates []corev1.PodTemplateSpec // by role
}

// Member is an entry: its Pod, its Service and its EndpointSlice.
type Member struct {
	place
	Wanted  bool
	Pod     Held[*corev1.Pod]
	Service Held[*corev1.Service]
	Slice   Held[*discoveryv1.EndpointSlice]
	Target  *Target // where the entry's server is; nil: nowhere yet
}

// Held is an object that a ModelServing has, or the lack of it.
type Held[T any] struct {
	Is    T // nil: the ModelServing does not have it
	Other Other
	// Unheard means that this process has just created the object and the cache does not show it.
	Unheard bool
}

// Other says whose object has the name that an object of the ModelServing needs.
type Other string

// The values of Other; empty: nobody's.
const (
	Stranger Other = "stranger" // of somebody else
	Earlier  Other = "earlier"  // of an earlier ModelServing of the same name
)

// Target is where the server of an entry runs.
type Target struct {
	Pod     *corev1.Pod // the launcher Pod, or the entry itself if it is no requester
	Ports   []discoveryv1.EndpointPort
	Unknown bool // the launcher has not reported yet, so that Ports are not known
	Serves  bool // the entry is ready
}
