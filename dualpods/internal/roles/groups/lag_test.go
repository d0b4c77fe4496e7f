package groups

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/helpers/schedules"
)

// play is one run of the controller against an API server that lags.
type play struct {
	*lagging
	c     *Controller
	now   time.Time
	wrong []string       // what did not hold
	lows  map[string]int // the lowest number that each role was to have since all was at rest
	// loses: Pods get lost, or templates change. Then Pods may be fewer than that.
	loses bool
}

func (p *play) serving() *v1alpha1.ModelServing {
	return p.objects["*v1alpha1.ModelServing llama"].(*v1alpha1.ModelServing)
}

func (p *play) edit(how func(*v1alpha1.ModelServing)) {
	is := p.serving().DeepCopy()
	how(is)
	is.Generation++
	p.put(is)
	p.noteLows()
}

// number returns how many replicas a role is to have.
func (p *play) number(role *v1alpha1.ServingRole) int {
	if sc := p.scaler(role.Name); sc != nil && role.IsExternal() {
		return int(sc.Spec.Replicas)
	}
	return role.Count()
}

// scaler returns the RoleScaler of a role; nil: there is none.
func (p *play) scaler(role string) *v1alpha1.RoleScaler {
	sc, _ := p.objects["*v1alpha1.RoleScaler llama-"+role].(*v1alpha1.RoleScaler)
	return sc
}

func (p *play) noteLows() {
	roles := p.serving().Spec.Template.Roles
	for i := range roles {
		n := p.number(&roles[i])
		if sc := p.scaler(roles[i].Name); sc != nil { // the controller may go by it still
			n = min(n, int(sc.Spec.Replicas))
		}
		if low, has := p.lows[roles[i].Name]; !has || n < low {
			p.lows[roles[i].Name] = n
		}
	}
}

func (p *play) pods() (all []*corev1.Pod) {
	for _, key := range slices.Sorted(maps.Keys(p.objects)) {
		if pod, is := p.objects[key].(*corev1.Pod); is {
			all = append(all, pod)
		}
	}
	return all
}

func (p *play) staying(group, role string) (n int) {
	for _, pod := range p.pods() {
		if pod.DeletionTimestamp == nil && pod.Labels[podmeta.LabelServingGroup] == group && pod.Labels[podmeta.LabelServingRole] == role {
			n++
		}
	}
	return n
}

// check looks at a write of the controller.
func (p *play) check(do string, o client.Object) {
	if _, is := o.(*v1alpha1.RoleScaler); is { // it may have been created with the number of an older ModelServing
		p.noteLows()
	}
	scaled := 0
	for _, g := range p.serving().Status.Groups {
		if g.BeingScaled {
			scaled++
		}
	}
	p.must(scaled <= 1, "scaled together: %d groups are being scaled", scaled)
	if pod, is := o.(*corev1.Pod); is && do == "delete" && !p.loses {
		group, role := pod.Labels[podmeta.LabelServingGroup], pod.Labels[podmeta.LabelServingRole]
		p.must(p.staying(group, role) >= p.lows[role], "too few: %s is deleted, and the role was never to have so few", pod.Name)
	}
}

// must notes what did not hold.
func (p *play) must(hold bool, format string, args ...any) {
	if !hold && len(p.wrong) < 9 {
		p.wrong = append(p.wrong, fmt.Sprintf(format, args...))
	}
}

// newProcess starts another controller, whose cache shows all.
func (p *play) newProcess() {
	p.hear(true)
	p.c = New(Options{API: p.lagging, Image: "requester", Recorder: events.NewFakeRecorder(10000), Now: func() time.Time { return p.now }})
}

func (p *play) happen() {
	pods := p.pods()
	n := p.r.IntN(100)
	var pod *corev1.Pod
	if len(pods) > 0 {
		pod = pods[p.r.IntN(len(pods))].DeepCopy()
	}
	count := new(int32(p.r.IntN(4)))
	switch {
	case n < 55 && pod != nil: // the kubelet
		if pod.DeletionTimestamp != nil {
			p.drop(pod)
			return
		}
		ready := corev1.ConditionTrue
		if p.r.IntN(6) == 0 {
			ready = corev1.ConditionFalse
		}
		p.becomes(pod, ready)
	case n < 60 && pod != nil:
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, corev1.PodDeletionCost, strconv.Itoa(p.r.IntN(3)-1))
		p.put(pod)
	case n < 64:
		p.edit(func(m *v1alpha1.ModelServing) { m.Spec.Template.Roles[p.r.IntN(2)].Replicas = count })
	case n < 67:
		if sc := p.scaler("decode"); sc != nil {
			sc = sc.DeepCopy()
			sc.Spec.Replicas = *count
			p.put(sc)
			p.noteLows()
		}
	case n < 69:
		p.edit(func(m *v1alpha1.ModelServing) {
			m.Spec.Template.Roles[1].Scaling = &v1alpha1.RoleScaling{Mode: []string{"Static", v1alpha1.ScalingExternal}[p.r.IntN(2)]}
		})
	case n < 71 && p.loses:
		p.edit(func(m *v1alpha1.ModelServing) {
			m.Spec.Template.Roles[p.r.IntN(2)].EntryTemplate = router([]string{"a", "b", "c"}[p.r.IntN(3)])
			m.Spec.RolloutStrategy.Type = []string{"", v1alpha1.RoleRollingUpdate}[p.r.IntN(2)]
		})
	case n < 73 && p.loses && pod != nil:
		pod.DeletionTimestamp = &metav1.Time{Time: now}
		p.put(pod)
	case n < 74:
		p.newProcess()
	default:
		p.hear(false)
		p.pass()
	}
}

// settles has the kubelet and the controller work until nothing changes any more.
func (p *play) settles() {
	for range 100 {
		before := p.version
		for _, pod := range p.pods() {
			if pod.DeletionTimestamp != nil {
				p.drop(pod)
			} else if !podmeta.Ready(pod) {
				p.becomes(pod.DeepCopy(), corev1.ConditionTrue)
			}
		}
		p.hear(true)
		p.pass()
		if p.version == before {
			return
		}
	}
}

func (p *play) becomes(pod *corev1.Pod, ready corev1.ConditionStatus) {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	p.put(pod)
}

func (p *play) pass() {
	p.now = p.now.Add(100 * time.Millisecond)
	_, err := p.c.Reconcile(log.IntoContext(context.Background(), logr.Discard()), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "llama"}})
	p.must(err == nil || p.faulty, "a pass failed: %v", err)
}

// atRest checks that all is as it should be.
func (p *play) atRest() {
	m := p.serving()
	p.must(len(m.Status.Groups) == m.Spec.Count(), "another number of groups: %v", m.Status.Groups)
	for _, g := range m.Status.Groups {
		p.must(g.State == v1alpha1.GroupRunning, "does not run: %v", g)
		for i := range m.Spec.Template.Roles {
			role := &m.Spec.Template.Roles[i]
			p.must(p.number(role) == p.staying(g.Name, role.Name), "another number: %s of %s has %d replicas, and not %d", role.Name, g.Name, p.staying(g.Name, role.Name), p.number(role))
		}
	}
	for _, pod := range p.pods() {
		p.must(m.Status.Revision == pod.Labels[podmeta.LabelServingRevision], "another revision: %s", pod.Name)
	}
	p.must(m.Status.Revision == m.Status.CurrentRevision, "not rolled out: %s", m.Status.CurrentRevision)
}

// TestNoScheduleTakesMoreReplicasThanAskedFor plays changes of numbers and templates, with a cache that
// lags, writes that fail, Pods that get lost, and controllers that are killed. SEEDS says how many, FROM
// from which seed on.
func TestNoScheduleTakesMoreReplicasThanAskedFor(t *testing.T) {
	seeds := uint64(6)
	if os.Getenv("HOTSEAT_TEST_LONG") != "" {
		seeds = 500
	}
	schedules.Play(t, schedules.FromEnvironment(t, seeds), func(_ *testing.T, seed uint64) []string { return played(seed) }, func(_ *testing.T, seed uint64, wrong []string) string {
		return fmt.Sprintf("seed %d: %s", seed, strings.Join(wrong, "\n    "))
	})
}

// played plays a schedule. It returns what did not hold.
func played(seed uint64) []string {
	r := rand.New(rand.NewPCG(seed, 7))
	p := &play{now: now, lows: map[string]int{}, loses: seed%2 > 0}
	p.lagging = &lagging{r: r, objects: map[string]client.Object{}, caches: map[string]map[string]client.Object{}, news: map[string][]change{}}
	p.onWrite = p.check
	serving := llama()
	serving.Spec.Replicas = new(int32(3))
	serving.Spec.Template.Roles = []v1alpha1.ServingRole{{Name: "prefill", Replicas: new(int32(1)), EntryTemplate: router("a")}, {Name: "decode", Replicas: new(int32(2)), EntryTemplate: router("a")}}
	p.put(serving)
	p.noteLows()
	p.newProcess()
	for range 3 {
		p.faulty = true
		for range 150 {
			p.happen()
		}
		p.faulty = false
		p.now = p.now.Add(hearLimit)
		p.settles()
		p.atRest()
		clear(p.lows)
		p.noteLows()
	}
	return p.wrong
}
