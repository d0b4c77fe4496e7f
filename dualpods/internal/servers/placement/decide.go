package placement

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/servers/nominal"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// World is what a decision rests on.
type World struct {
	Now       time.Time
	Began     time.Time // when this controller began to lead
	Waiting   []Requester
	Launchers []Launcher // oldest first
	Nodes     map[string]*corev1.Node
	// Taken are the GPUs of each node that a requester holds or an instance uses that
	// does not sleep.
	Taken map[string]map[string]bool
	// Promised are the sleepers for which a requester was let go that is not bound yet.
	Promised map[Sleeper]bool
	Caches   []Cache // oldest first
	Claims   []Claim
	// Called gives ids of the versions in the launchers' stores that a name may mean.
	Called func(modelref.Name) []string
}

// Cache is what a ClusterModelCache says of the placement of its model's requesters.
type Cache struct {
	Name       string
	Model      modelref.Version // its source
	Scheduling v1alpha1.ModelScheduling
}

// Claim is a PersistentVolumeClaim that has the model of a ModelCache whole.
type Claim struct {
	Namespace, Name string
	Model           modelref.Version
}

// Requester is one that carries the gate.
type Requester struct {
	UID       types.UID
	Namespace string
	Name      string
	Created   time.Time
	Spec      *corev1.PodSpec
	Form      nominal.Form
	Problems  []podmeta.Problem // why it cannot be read
	Lacks     string            // what it names that is not there; empty: nothing
}

// Launcher is one that may serve requesters of its namespace.
type Launcher struct {
	UID       types.UID
	Name      string
	Namespace string
	Node      string
	Created   time.Time
	Config    string // name of its LauncherConfig
	Image     string
	Spec      *corev1.PodSpec
	Runs      bool                            // it is ready
	Since     time.Time                       // when this controller began to listen to it, or the stream broke off that it is waited for
	Silent    bool                            // it does not say now what it has
	Store     bool                            // it has a model store; nil Models: it does not say now what is in there
	Instances map[string]launcherapi.Instance // nil: it has not been heard
	Models    map[string]nodeview.Model
	Claims    []string // whose models it reads
}

// Sleeper is an instance that sleeps.
type Sleeper struct {
	Launcher types.UID
	Instance string
}

// Decision is what is to become of a requester: it stays gated until Wait, or the gate
// comes off.
type Decision struct {
	UID      types.UID
	Wait     time.Time // not zero: look again then
	Prefer   []Preference
	Require  string  // label that the node has to have; empty: none
	Sleeper  Sleeper // that the requester is let go for; empty: for none
	Row, Why string
}

// Preference is a node, and its weight for the scheduler, 1 to 100.
type Preference struct {
	Node   string
	Weight int32
}

// Weights of nodes, which the scheduler adds to what else it thinks of a node.
const (
	weightSleeper = 100 // the sleeper that is promised
	weightOther   = 50  // another one
	weightMemory  = 35  // the model is in the node's store, and main memory holds it
	weightDisk    = 20  // the model is in the node's store
	weightClaim   = 15  // it is near nowhere, and the node's launcher reads a claim that has it
	weightAwake   = 10  // it is near nowhere, and nothing sleeps on the node that it would drive out
)

// maxPreferred is how many nodes of a kind a requester is told of: a Pod that names
// all nodes of a large cluster is slow to schedule.
const maxPreferred = 8

// longestWait is how long requesters stay gated at most for a launcher that has not
// been heard.
const longestWait = 5 * time.Second

// The rows.
const (
	rowInputWrong = "input wrong"
	rowNone       = "scheduling None"
	rowLacks      = "configuration not there"
	rowNotHeard   = "launchers not heard"
	rowAsleep     = "asleep on free GPUs"
	rowInMemory   = "in the page cache"
	rowOnDisk     = "on disk"
	rowOnClaim    = "on a claim"
	rowNowhere    = "nothing near"
)

// Decide says what is to become of each requester, by spec/placement.md. Of several
// that want one sleeper the oldest has it. It changes nothing of w.
func Decide(w *World) []Decision {
	waiting := slices.Clone(w.Waiting)
	slices.SortFunc(waiting, func(a, b Requester) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(string(a.UID), string(b.UID)))
	})
	d := &decision{
		World: w, promised: map[Sleeper]bool{}, gpus: map[string]map[string]bool{},
		servers: map[string][]*Launcher{}, near: map[string][]place{}, awake: map[string][]string{},
	}
	for i := range w.Launchers {
		l := &w.Launchers[i]
		for id := range l.Instances {
			if s := (Sleeper{l.UID, id}); w.Promised[s] {
				d.promised[s] = true
				d.promise(place{node: l.Node, gpus: l.Instances[id].GPUUUIDs})
			}
		}
	}
	all := make([]Decision, 0, len(waiting))
	for i := range waiting {
		all = append(all, d.decide(&waiting[i]))
	}
	return all
}

// decision is one under way.
type decision struct {
	*World
	promised map[Sleeper]bool
	gpus     map[string]map[string]bool // of sleepers that are promised, by node
	servers  map[string][]*Launcher     // by what is asked of launchers
	near     map[string][]place         // by what is wanted: many requesters want the same
	awake    map[string][]string        // nodes on which nothing sleeps, by what is asked of launchers
}

// place is where a model is near.
type place struct {
	node    string
	sleeper Sleeper // empty: it is in the node's store
	memory  bool    // which main memory holds
	gpus    []string
	used    time.Time
}

func (d *decision) decide(r *Requester) Decision {
	out := Decision{UID: r.UID}
	until := latest(r.Created, d.Began).Add(longestWait)
	if r.Lacks != "" && until.After(d.Now) {
		out.Row, out.Why, out.Wait = rowLacks, "there is no "+r.Lacks, until
		return out
	}
	if len(r.Problems) > 0 {
		out.Row, out.Why = rowInputWrong, podmeta.Join(r.Problems)
		return out
	}
	cache := d.cacheOf(r)
	if cache != nil && cache.Scheduling == v1alpha1.SchedulingNone {
		out.Row, out.Why = rowNone, "ClusterModelCache "+cache.Name+" says scheduling: None"
		return out
	}
	if cache != nil && cache.Scheduling == v1alpha1.SchedulingRequire {
		out.Require = podmeta.ModelLabel(cache.Name)
	}
	goes := d.goes(r, out.Require)
	if l := d.unheard(r, goes); l != nil && until.Add(longestWait).After(d.Now) {
		out.Row, out.Why, out.Wait = rowNotHeard, "launcher "+l.Name+" has not said what it has", l.Since.Add(longestWait)
		return out
	}
	d.prefer(&out, d.places(r), goes)
	if out.Row == rowNowhere {
		d.claimed(&out, r, goes)
		d.spare(&out, r, goes)
	}
	if out.Require != "" {
		out.Why += "; ClusterModelCache " + cache.Name + " says scheduling: Require"
	}
	return out
}

// goes says to which nodes the scheduler may send a requester, which beside what the
// requester asks for have to have a label, as far as labels and taints tell.
func (d *decision) goes(r *Requester, label string) func(node string) bool {
	affinity := nodeaffinity.NewRequiredNodeAffinity(r.Spec.NodeSelector, r.Spec.Affinity)
	hard := func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }
	return func(name string) bool {
		node := d.Nodes[name]
		if node == nil || node.Spec.Unschedulable || label != "" && node.Labels[label] != podmeta.ModelReady {
			return false
		}
		fits, err := affinity.Match(node)
		_, kept := scheduling.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, r.Spec.Tolerations, hard, false)
		return fits && err == nil && !kept
	}
}

// unheard is a launcher that has to be heard before a requester is placed; nil: none.
func (d *decision) unheard(r *Requester, goes func(node string) bool) *Launcher {
	for _, l := range d.serve(r) {
		if (l.Silent || l.Store && l.Models == nil) && l.Since.Add(longestWait).After(d.Now) && goes(l.Node) {
			return l
		}
	}
	return nil
}

// prefer chooses among the places where a requester's model is near.
func (d *decision) prefer(out *Decision, near []place, goes func(node string) bool) {
	stored := map[int32]int{} // nodes by weight
	barred := ""              // the first node on which it is, and to which the requester does not go
	for _, p := range near {
		switch {
		case p.sleeper == (Sleeper{}) && stored[p.weight()] == maxPreferred: // enough are named
		case !goes(p.node):
			barred = cmp.Or(barred, p.node)
		case p.sleeper == (Sleeper{}):
			if !prefers(out.Prefer, p.node) {
				stored[p.weight()]++
				out.Prefer = append(out.Prefer, Preference{p.node, p.weight()})
			}
		case d.promised[p.sleeper], !d.free(p.node, p.gpus):
		case out.Sleeper == (Sleeper{}):
			out.Sleeper, d.promised[p.sleeper] = p.sleeper, true
			d.promise(p)
			out.Prefer = append(out.Prefer, Preference{p.node, weightSleeper})
		case len(out.Prefer) < maxPreferred && !prefers(out.Prefer, p.node):
			out.Prefer = append(out.Prefer, Preference{p.node, weightOther})
		}
	}
	switch {
	case out.Sleeper != (Sleeper{}):
		out.Row, out.Why = rowAsleep, fmt.Sprintf("its model sleeps on node %s, as instance %s", out.Prefer[0].Node, out.Sleeper.Instance)
	case stored[weightMemory] > 0:
		out.Row, out.Why = rowInMemory, "its model is in the main memory of node "+out.Prefer[0].Node+others(stored[weightMemory])
	case stored[weightDisk] > 0:
		out.Row, out.Why = rowOnDisk, "its model is on the disk of node "+out.Prefer[0].Node+others(stored[weightDisk])
	case barred != "":
		out.Row, out.Why = rowNowhere, "its model is near on node "+barred+", to which it may not go"
	default:
		out.Row, out.Why = rowNowhere, "its model is near on no node"
	}
}

// others says of how many nodes the first one was named; empty: it is the only one.
func others(nodes int) string {
	if nodes == 1 {
		return ""
	}
	return fmt.Sprintf(" and %d more", nodes-1)
}

// cacheOf is the ClusterModelCache of a requester's model; nil: there is none, or the
// requester does not want it.
func (d *decision) cacheOf(r *Requester) *Cache {
	if r.Form.ModelCache == launcherapi.ModelCacheOff {
		return nil
	}
	name := modelref.FromArgs(r.Form.Args)
	for i := range d.Caches {
		if c := &d.Caches[i]; name.In(c.Model) {
			return c
		}
	}
	return nil
}

func prefers(all []Preference, node string) bool {
	return slices.ContainsFunc(all, func(p Preference) bool { return p.Node == node })
}

// may says that a launcher may serve a requester.
func (l *Launcher) may(r *Requester) bool {
	return l.Namespace == r.Namespace && (r.Form.LauncherConfig == l.Config || r.Form.LauncherConfig == "" && (r.Form.Image == "" || r.Form.Image == l.Image))
}

// asked is what a requester asks of launchers.
func asked(r *Requester) string {
	mounts, err := json.Marshal(r.Form.Mounts)
	if err != nil {
		panic(err) // it came as JSON
	}
	return fmt.Sprintf("%s %s %s %s", r.Namespace, r.Form.LauncherConfig, r.Form.Image, mounts)
}

// serve gives the launcher of each node that would serve a requester there: of several
// that may the oldest that is ready, unless that lacks what the requester needs.
func (d *decision) serve(r *Requester) []*Launcher {
	key := asked(r)
	if known, ok := d.servers[key]; ok {
		return known
	}
	has := map[string]bool{} // a launcher, by node
	var all []*Launcher
	for i := range d.Launchers {
		l := &d.Launchers[i]
		if !l.Runs || has[l.Node] || !l.may(r) {
			continue
		}
		has[l.Node] = true
		if _, problems := r.Form.On(l.Spec); len(problems) == 0 {
			all = append(all, l)
		}
	}
	d.servers[key] = all
	return all
}

// free says that nobody holds or uses any of those GPUs.
func (d *decision) free(node string, gpus []string) bool {
	return !slices.ContainsFunc(gpus, func(uuid string) bool { return d.Taken[node][uuid] || d.gpus[node][uuid] })
}

// promise keeps the GPUs of a sleeper for the requester that is let go for it.
func (d *decision) promise(p place) {
	if d.gpus[p.node] == nil {
		d.gpus[p.node] = map[string]bool{}
	}
	for _, uuid := range p.gpus {
		d.gpus[p.node][uuid] = true
	}
}
