package groups

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/roles/restarts"
	"hotseat.dev/hotseat/dualpods/internal/roles/rollout"
	"hotseat.dev/hotseat/dualpods/internal/roles/scaling"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// World is the input of a decision about one ModelServing.
type World struct {
	Now      time.Time
	Began    time.Time // when this process began to decide
	Serving  *v1alpha1.ModelServing
	Revision string // of its template
	Problems []podmeta.Problem
	// Revisions are its ControllerRevisions.
	Revisions []*appsv1.ControllerRevision
	// Unheard means that this process has just created the ControllerRevision of the present
	// template and the cache does not show it.
	Unheard bool
	// Earlier means that an earlier ModelServing of the same name has the name of that ControllerRevision.
	Earlier bool
	// Members are the Pods that it should have, in the order of creation, and then those that
	// it should not have, in the order of deletion.
	Members []*Member

	// Domains has the values of the node label of exclusive topology, by the names of entries.
	Domains map[string]string

	// Scalers are the RoleScalers that it should have, and then those that it should not have.
	// Numbers says how many replicas each role of the present template is to have, and Limited why
	// one of them does not have the number that was asked for; empty: all have.
	Scalers []*Scaler
	Numbers map[string]int
	Limited string

	// Kubernetes means that PodGroups of Kubernetes give the Pods of groups nodes together.
	Kubernetes bool
	// Gangs returns what the Pods of a group with a gang policy wait for; empty: it is not known.
	// nil: it is known of no group.
	Gangs func(group string) string

	plans  map[string]*plan // by revision
	groups []*plan          // of the groups that it should have, by ordinal
	scaled []scaling.Target // likewise
	// updated has the revision that each of these groups is to have, by ordinal.
	updated []rollout.Target

	standing standing                                // its Pods that stay
	listed   map[string]*v1alpha1.ServingGroupStatus // what its status says of groups, by their names

	restarts []*restarts.Decision // about these groups; Decide makes them

	changes map[int]*groupChange // by ordinal: changes in place that are under way, or may begin
	// notInPlace says why groups are not changed in place, by ordinal.
	notInPlace map[int]string
}

// gang returns what the Pods of a member's group wait for that get nodes together; empty: it is
// not known.
func (w *World) gang(m *Member) string {
	if w.Gangs == nil {
		return ""
	}
	return w.Gangs(m.groupName())
}

// Member is a Pod, and if it is an entry its Service and its EndpointSlice.
type Member struct {
	place
	Wanted  bool
	Pod     Held[*corev1.Pod]
	Removed bool // this process has deleted the Pod, and the cache may not show it yet
	Service Held[*corev1.Service]
	Slice   Held[*discoveryv1.EndpointSlice]
	Target  *Target // where the entry's server is; nil: nowhere yet
	Bound   *Bound  // of a requester; nil: it is not bound
	// Server is the start that a rank was told of for its record's attempt, and NextServer likewise for the
	// change of its record. IsReady means that nothing else than the other ranks is in its way: its status
	// says that it waits for them alone.
	Server, NextServer podmeta.Server
	IsReady            bool
	SwapTo             podmeta.SwapTo // the change in place that a requester was told of
}

// Bound is a requester's record, and what its launcher says.
type Bound struct {
	Launcher *corev1.Pod
	Record   *podmeta.Binding
	Known    bool                  // the launcher answers
	Instance *launcherapi.Instance // nil: there is none, as far as is known
	Swap     dualpods.RankSwap

	// Next and NextInstance are the swap and the instance of the record's change.
	Next         dualpods.RankSwap
	NextInstance *launcherapi.Instance
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
