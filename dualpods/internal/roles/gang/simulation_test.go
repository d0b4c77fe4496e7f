package gang

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods/internal/roles/groups"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/helpers/schedules"
)

// simulation is a cluster with ModelServings. A turn takes seconds. A scheduler gives
// nodes to Pods without gates, in any order.
type simulation struct {
	schedules.Draws

	api     *apiServer
	c       *Controller
	now     time.Time
	next    time.Time // when the controller wants to look again
	uids    int
	calm    bool // nothing goes wrong any more
	mixed   bool // Pods have different numbers of GPUs
	losing  bool // Pods of groups are lost
	fickle  bool // gang policies are changed
	scaled  bool // roles get other numbers of replicas
	quiet   bool // only controllers are killed, and caches are stale
	zoned   bool // nodes are in zones, and groups may have to be in one
	story   []string
	wrong   []string
	partial map[string]time.Time // since when a group has a part of its nodes, by name
	misses  map[string]int32     // of groups, when it had been calm for a while

	missed, running int // how often groups missed their deadlines, and how many run at the end
}

const (
	roughTurns = 150
	calmTurns  = 200
)

// TestNoScheduleBreaksGangs plays clusters in which groups, Pods of others, a slow scheduler, a
// stale cache and controllers that are killed meet; SEEDS says how many.
func TestNoScheduleBreaksGangs(t *testing.T) {
	var missed, run atomic.Int64
	t.Cleanup(func() {
		t.Logf("deadlines were missed %d times, and %d groups ran at the ends of the schedules", missed.Load(), run.Load())
	})
	play := func(_ *testing.T, seed uint64) []string {
		s := newSimulation(seed)
		wrong := s.play()
		missed.Add(int64(s.missed))
		run.Add(int64(s.running))
		return wrong
	}
	schedules.Play(t, schedules.FromEnvironment(t, standardSeeds), play, func(_ *testing.T, seed uint64, wrong []string) string {
		s := newSimulation(seed)
		s.play()
		return fmt.Sprintf("seed %d: %s\n%s", seed, strings.Join(wrong, "; "), strings.Join(s.story[max(0, len(s.story)-150):], "\n"))
	})
}

func newSimulation(seed uint64) *simulation {
	s := &simulation{Draws: schedules.Draws{Seed: seed}, now: now, partial: map[string]time.Time{}, misses: map[string]int32{}}
	s.api = newAPIServer(func() metav1.Time { return metav1.NewTime(s.now) }, func(format string, args ...any) {
		s.story = append(s.story, s.now.Format("15:04:05 ")+fmt.Sprintf(format, args...))
	})
	s.api.missed = func() { s.missed++ }
	s.api.fails = func(what string) (bool, bool) {
		return !s.calm && !s.quiet && s.Chance("fails/"+what, 3), s.Chance("made/"+what, 50)
	}
	s.quiet = s.Chance("quiet", 25)
	s.mixed, s.losing = !s.quiet && s.Chance("mixed", 40), !s.quiet && s.Chance("losing", 30)
	s.zoned = !s.quiet && s.Chance("zoned", 40)
	s.fickle, s.scaled = !s.quiet && s.Chance("fickle", 20), !s.quiet && s.Chance("scaled", 20)
	for n := range 1 + s.Draw("nodes", 3) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", n)}, Status: corev1.NodeStatus{Allocatable: gpuList(int64(1 + s.Draw("gpus", 4)))}}
		if s.zoned && !s.Chance("no zone", 10) {
			node.Labels = map[string]string{zone: fmt.Sprintf("%c", 'a'+s.Draw("zone", 2)), rack: fmt.Sprintf("%c", 'a'+s.Draw("rack", 2))}
		}
		s.api.nodes[node.Name] = node
		s.api.changed(node)
		s.api.log("%s has %d GPUs", node.Name, s.free(node.Name))
	}
	for n := range 2 + s.Draw("servings", 2) {
		s.newServing(fmt.Sprintf("%c", 'a'+n))
	}
	s.restart()
	return s
}

// newServing makes a ModelServing of one or two groups with one or two roles.
func (s *simulation) newServing(name string) {
	serving := &v1alpha1.ModelServing{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(s.now.Add(s.Between("created", 0, time.Hour)))}}
	serving.Spec.Replicas = new(1 + int32(s.Draw("groups", 2)))
	policy := &v1alpha1.GangPolicy{MinRoleReplicas: map[string]int32{}}
	for n := range 1 + s.Draw("roles", 2) {
		role := v1alpha1.ServingRole{Name: fmt.Sprintf("role%d", n), Replicas: new(1 + int32(s.Draw("replicas", 2))), WorkerReplicas: new(int32(s.Draw("workers", 2))), GPUs: new(int32(1))}
		if s.mixed {
			role.GPUs = new(int32(s.Draw("pod GPUs", 3)))
		}
		if s.Chance("least", 50) {
			policy.MinRoleReplicas[role.Name] = int32(s.Draw("least", uint64(role.Count()+1)))
		}
		serving.Spec.Template.Roles = append(serving.Spec.Template.Roles, role)
	}
	serving.Spec.Template.GangPolicy = policy
	if s.zoned && s.Chance("together", 60) {
		serving.Spec.Template.NetworkTopology = together("")
	}
	if s.zoned && s.Chance("apart", 50) {
		serving.Spec.Template.NetworkTopology = apart("", serving.Spec.Template.NetworkTopology != nil)
	}
	s.api.log("%s: %d groups, roles %+v, at least %v", name, *serving.Spec.Replicas, len(serving.Spec.Template.Roles), policy.MinRoleReplicas)
	s.api.servings[name] = serving
	s.api.changed(serving)
}

// restart kills the controller, and starts another one with a new cache.
func (s *simulation) restart() {
	s.api.log("another controller")
	s.api.refresh()
	s.c = New(Options{API: s.api, Recorder: &events.FakeRecorder{}, Now: func() time.Time { return s.now }})
	s.next = s.now
}

func (s *simulation) play() []string {
	for range roughTurns {
		s.turn()
	}
	s.api.log("calm")
	s.calm = true
	for name, pod := range s.api.pods { // the Pods of others go
		if podmeta.ServingOf(pod) == nil {
			delete(s.api.pods, name)
		}
	}
	for _, node := range s.api.nodes {
		node.Spec.Unschedulable = false
		s.api.changed(node)
	}
	for turn := range calmTurns {
		s.turn()
		if turn == calmTurns/4 {
			s.noteMisses()
		}
		if len(s.wrong) > 0 {
			break
		}
	}
	s.checkEnd()
	return s.wrong
}

func (s *simulation) breaks(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// turn lets each part of the cluster do something.
func (s *simulation) turn() {
	if s.calm {
		s.now = s.now.Add(s.Between("turn", 2*time.Second, 4*time.Second))
	} else {
		s.now = s.now.Add(s.Between("turn", time.Second, 2*time.Second))
		s.disturb()
	}
	s.keepGroups()
	s.end()
	for range 3 {
		if s.Chance("schedules", 80) {
			s.schedule()
		}
		s.cache()
		s.pass()
	}
	s.checkParts()
}

// disturb has Pods of others come and go, nodes be closed, Pods be lost and the controller be killed.
func (s *simulation) disturb() {
	if s.Chance("killed", 3) {
		s.restart()
	}
	if s.quiet {
		return
	}
	if s.Chance("stranger", 12) {
		s.uids++
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("other-%d", s.uids), UID: types.UID(fmt.Sprint(s.uids))}}
		pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: gpuList(int64(1 + s.Draw("stranger", 2)))}}}
		s.api.pods[pod.Name] = pod
		s.api.changed(pod)
		s.api.log("%s comes", pod.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(s.api.pods)) {
		pod := s.api.pods[name]
		switch {
		case podmeta.ServingOf(pod) == nil && s.Chance("goes", 3):
			s.api.log("%s goes", name)
			delete(s.api.pods, name)
		case s.losing && podmeta.ServingOf(pod) != nil && pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil && s.Chance("lost", 1):
			s.api.log("%s is lost", name)
			pod.DeletionTimestamp = new(metav1.NewTime(s.now))
			s.api.changed(pod)
		}
	}
	s.edit()
	for _, name := range slices.Sorted(maps.Keys(s.api.nodes)) {
		if node := s.api.nodes[name]; s.Chance("closed", 4) {
			node.Spec.Unschedulable = !node.Spec.Unschedulable
			s.api.changed(node)
		}
	}
}

// edit changes gang policies, and the numbers of replicas.
func (s *simulation) edit() {
	for _, name := range slices.Sorted(maps.Keys(s.api.servings)) {
		serving := s.api.servings[name]
		policy, roles := serving.Spec.Template.GangPolicy.MinRoleReplicas, serving.Spec.Template.Roles
		role := &roles[s.Draw("edited", uint64(len(roles)))]
		switch {
		case s.fickle && s.Chance("policy", 4):
			policy[role.Name] = int32(s.Draw("policy least", uint64(role.Count()+1)))
		case s.scaled && s.Chance("scales", 4):
			role.Replicas = new(1 + int32(s.Draw("scaled replicas", 3)))
		default:
			continue
		}
		s.api.changed(serving)
		s.api.log("%s: %s has %d replicas, at least %v", name, role.Name, role.Count(), policy)
	}
}

// keepGroups does what package groups does: it creates Pods, deletes those that are not wanted, and writes
// the status.
func (s *simulation) keepGroups() {
	for _, name := range slices.Sorted(maps.Keys(s.api.servings)) {
		serving, wanted := s.api.servings[name], map[string]bool{}
		for _, g := range groups.WantedGroups(serving, nil, s.podsOf(serving)) {
			for _, r := range g.Replicas {
				s.create(serving, r)
				for _, pod := range r.Pods {
					wanted[pod] = true
				}
			}
		}
		for _, pod := range s.podsOf(serving) {
			if is := s.api.pods[pod.Name]; len(serving.Status.Groups) > 0 && !wanted[pod.Name] && is.DeletionTimestamp == nil {
				s.api.log("%s is not wanted", pod.Name)
				is.DeletionTimestamp = new(metav1.NewTime(s.now))
				s.api.changed(is)
			}
		}
		if len(serving.Status.Groups) == 0 {
			for n := range *serving.Spec.Replicas {
				serving.Status.Groups = append(serving.Status.Groups, v1alpha1.ServingGroupStatus{Name: fmt.Sprintf("%s-%d", name, n)})
			}
			s.api.changed(serving)
		}
	}
}

func (s *simulation) podsOf(serving *v1alpha1.ModelServing) (all []corev1.Pod) {
	for _, name := range slices.Sorted(maps.Keys(s.api.pods)) {
		if pod := s.api.pods[name]; metav1.IsControlledBy(pod, serving) {
			all = append(all, *pod)
		}
	}
	return all
}

// create creates Pods of a replica that are not there, sooner or later.
func (s *simulation) create(serving *v1alpha1.ModelServing, r groups.WantedReplica) {
	for _, name := range r.Pods {
		if s.api.pods[name] == nil && s.Chance("creates", 70) {
			s.uids++
			pod := gatedPod(serving, name, int64(*r.Role.GPUs))
			pod.UID, pod.CreationTimestamp = types.UID(fmt.Sprint(s.uids)), metav1.NewTime(s.now)
			s.api.pods[name] = pod
			s.api.changed(pod)
		}
	}
}

// end has Pods be gone that were deleted.
func (s *simulation) end() {
	for _, name := range slices.Sorted(maps.Keys(s.api.pods)) {
		if s.api.pods[name].DeletionTimestamp != nil && s.Chance("gone", 50) {
			delete(s.api.pods, name)
		}
	}
}

// free returns how many GPUs of a node are free.
func (s *simulation) free(node string) int64 {
	has := s.api.nodes[node].Status.Allocatable[podmeta.ResourceGPU]
	free := has.Value()
	for _, pod := range s.api.pods {
		if pod.Spec.NodeName == node {
			free -= podmeta.ReservedGPUs(&pod.Spec)
		}
	}
	return free
}

// schedule gives a node to one of the Pods that may get one, if there is one with room.
func (s *simulation) schedule() {
	var pods, nodes []string
	for _, name := range slices.Sorted(maps.Keys(s.api.pods)) {
		if pod := s.api.pods[name]; pod.Spec.NodeName == "" && len(pod.Spec.SchedulingGates) == 0 {
			pods = append(pods, name)
		}
	}
	if len(pods) == 0 {
		return
	}
	pod := s.api.pods[pods[s.Draw("pod", uint64(len(pods)))]]
	for _, name := range slices.Sorted(maps.Keys(s.api.nodes)) {
		if node := s.api.nodes[name]; s.free(name) >= podmeta.ReservedGPUs(&pod.Spec) && !node.Spec.Unschedulable && labels.SelectorFromSet(pod.Spec.NodeSelector).Matches(labels.Set(node.Labels)) {
			nodes = append(nodes, name)
		}
	}
	if len(nodes) == 0 {
		return
	}
	pod.Spec.NodeName = nodes[s.Draw("node", uint64(len(nodes)))]
	s.api.changed(pod)
	s.api.log("%s is on %s", pod.Name, pod.Spec.NodeName)
}

// cache has the cache show some kinds of objects as they are now.
func (s *simulation) cache() {
	for kind, refresh := range map[string]func(){"pods": s.api.refreshPods, "nodes": s.api.refreshNodes, "servings": s.api.refreshServings} {
		if s.Chance("refresh "+kind, 70) {
			refresh()
		}
	}
}

// pass runs the controller, as an event or its own wish makes it run.
func (s *simulation) pass() {
	if s.now.Before(s.next) && !s.Chance("event", 60) {
		return
	}
	result, err := s.c.Reconcile(context.Background(), reconcile.Request{})
	switch {
	case err != nil && !errors.Is(err, errLost):
		s.breaks("the controller fails: %v", err)
	case err != nil:
		s.next = s.now
	case result.RequeueAfter > 0:
		s.next = s.now.Add(result.RequeueAfter)
	default:
		s.next = s.now.Add(time.Hour)
	}
}
