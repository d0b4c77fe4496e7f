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
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// World is the input of a decision.
type World struct {
	Now          time.Time
	LeadingSince time.Time // when this controller became the leader
	Waiting      []Requester
	Launchers    []Launcher // oldest first
	Nodes        map[string]*corev1.Node
	// Taken are the GPUs that a requester or an instance that is not asleep holds, by
	// node.
	Taken map[string]map[string]bool
	// Promised are the sleepers that are reserved for a requester whose gate was removed
	// and that is not bound yet.
	Promised map[Sleeper]bool
	Caches   []Cache // oldest first
	Claims   []Claim
	// CandidateIDs returns ids of the stored versions that a name may mean.
	CandidateIDs func(modelref.Name) []string
}

// Cache is a ClusterModelCache, as far as it affects the placement of requesters.
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

// Requester is a Pod that carries the gate.
type Requester struct {
	UID       types.UID
	Namespace string
	Name      string
	Created   time.Time
	Spec      *corev1.PodSpec
	Form      form.Form
	Problems  []podmeta.Problem // its input is invalid
}

// Instance is what a decision needs of a launcher's instance. It is small: a pass copies
// those of all launchers.
type Instance struct {
	State      string
	GPUUUIDs   []string
	LastUsedAt *time.Time
}

// Launcher is a launcher Pod.
type Launcher struct {
	dualpods.Provider // as binding sees it
	Name              string
	Node              string
	Since             time.Time           // when this controller began to listen to it, or when its stream broke
	Silent            bool                // its instances are unknown now
	Store             bool                // it has a model store; its models are unknown while Models is nil
	Instances         map[string]Instance // nil: it was never heard
	Models            map[string]nodeview.Model
	Claims            []string // PersistentVolumeClaims whose models it reads
}

// Sleeper is a sleeping instance.
type Sleeper struct {
	Launcher types.UID
	Instance string
}

// Decision is the decision for one requester: to keep the gate until Wait, or to remove
// it with preferences.
type Decision struct {
	UID      types.UID
	Wait     time.Time // when to decide again; zero: remove the gate
	Prefer   []Preference
	Require  string  // label that the node must have; empty: none
	Sleeper  Sleeper // reserved for the requester; empty: none
	Row, Why string
}

// Preference is a node and its weight for the scheduler, from 1 to 100.
type Preference struct {
	Node   string
	Weight int32
}

// Weights of nodes. The scheduler adds them to its own scores.
const (
	weightSleeper   = 100 // the node of the reserved sleeper
	weightOther     = 50  // a node with another sleeper of the model
	weightMemory    = 35  // the node's store has the model, and main memory holds it
	weightDisk      = 20  // the node's store has the model
	weightClaim     = 15  // the node's launcher reads a claim that has the model
	weightNoSleeper = 10  // nothing sleeps on the node that the requester would evict
)

// maxPreferred is the number of nodes of each kind that a requester prefers. A Pod that
// names all nodes of a large cluster is slow to schedule.
const maxPreferred = 8

// maxUnheardWait bounds the time for which a requester stays gated because of a launcher
// that was not heard yet.
const maxUnheardWait = 5 * time.Second

// The rows of the decision table.
const (
	rowInputInvalid  = "invalid input"
	rowNone          = "scheduling None"
	rowConfigMissing = "configuration missing"
	rowUnheard       = "launchers not heard"
	rowAsleep        = "asleep on free GPUs"
	rowInMemory      = "in the page cache"
	rowOnDisk        = "on disk"
	rowOnClaim       = "on a claim"
	rowNowhere       = "nothing near"
)

// Decide decides for each requester by the table in spec/placement.md. When several want
// one sleeper, the oldest gets it. It does not change w.
func Decide(w *World) []Decision {
	waiting := slices.Clone(w.Waiting)
	slices.SortFunc(waiting, func(a, b Requester) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(string(a.UID), string(b.UID)))
	})
	d := newDecision(w)
	all := make([]Decision, 0, len(waiting))
	for i := range waiting {
		all = append(all, d.decide(&waiting[i]))
	}
	return all
}

// newDecision begins a decision. The sleepers that are promised have their GPUs reserved.
func newDecision(w *World) *decision {
	d := &decision{
		World: w, promised: map[Sleeper]bool{}, gpus: map[string]map[string]bool{},
		servers: map[string][]*Launcher{}, near: map[string][]place{}, withoutSleepers: map[string][]string{},
	}
	for i := range w.Launchers {
		l := &w.Launchers[i]
		for id := range l.Instances {
			if s := (Sleeper{l.UID, id}); w.Promised[s] {
				d.promised[s] = true
				d.promiseGPUs(place{node: l.Node, gpus: l.Instances[id].GPUUUIDs})
			}
		}
	}
	return d
}

// decision is the state of one call of Decide.
type decision struct {
	*World
	promised        map[Sleeper]bool
	gpus            map[string]map[string]bool // GPUs of promised sleepers, by node
	nodeLaunchers   [][]*Launcher              // result of byNode
	servers         map[string][]*Launcher     // results of serving
	near            map[string][]place         // results of nearbyPlaces: many requesters want the same model
	withoutSleepers map[string][]string        // results of nodesWithoutSleepers, rotated
}

// place is a node where a model is near.
type place struct {
	node    string
	sleeper Sleeper // empty: the model is in the node's store
	memory  bool    // main memory holds the stored model
	gpus    []string
	used    time.Time
}

func (d *decision) decide(r *Requester) Decision {
	out := Decision{UID: r.UID}
	until := latest(r.Created, d.LeadingSince).Add(maxUnheardWait)
	missing := slices.ContainsFunc(r.Problems, func(p podmeta.Problem) bool { return p.Kind == podmeta.Missing })
	if missing && until.After(d.Now) {
		out.Row, out.Why, out.Wait = rowConfigMissing, podmeta.Join(r.Problems), until
		return out
	}
	if len(r.Problems) > 0 {
		out.Row, out.Why = rowInputInvalid, podmeta.Join(r.Problems)
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
	reachable := d.reachable(r, out.Require)
	if l := d.firstUnheard(r, reachable); l != nil && until.Add(maxUnheardWait).After(d.Now) {
		out.Row, out.Why, out.Wait = rowUnheard, "launcher "+l.Name+" has not reported its instances and models yet", l.Since.Add(maxUnheardWait)
		return out
	}
	d.choosePreferences(&out, d.nearbyPlaces(r), reachable)
	if out.Row == rowNowhere {
		d.preferClaimReaders(&out, r, reachable)
		d.preferNodesWithoutSleepers(&out, r, reachable)
	}
	if out.Require != "" {
		out.Why += "; ClusterModelCache " + cache.Name + " says scheduling: Require"
	}
	return out
}

// reachable returns a function that reports whether the scheduler may place a requester on a
// node, by the node's labels and taints. The node must have the label, if one is given.
func (d *decision) reachable(r *Requester, label string) func(node string) bool {
	affinity := nodeaffinity.NewRequiredNodeAffinity(r.Spec.NodeSelector, r.Spec.Affinity)
	return func(name string) bool {
		node := d.Nodes[name]
		if node == nil || node.Spec.Unschedulable || label != "" && node.Labels[label] != podmeta.ModelReady {
			return false
		}
		fits, err := affinity.Match(node)
		return fits && err == nil && dualpods.Tolerates(r.Spec.Tolerations, node.Spec.Taints)
	}
}

// firstUnheard returns a launcher that must be heard before a requester is placed; nil: none.
func (d *decision) firstUnheard(r *Requester, reachable func(node string) bool) *Launcher {
	for _, l := range d.serving(r) {
		if (l.Silent || l.Store && l.Models == nil) && l.Since.Add(maxUnheardWait).After(d.Now) && reachable(l.Node) {
			return l
		}
	}
	return nil
}

// choosePreferences chooses preferences among the places where a requester's model is near.
func (d *decision) choosePreferences(out *Decision, near []place, reachable func(node string) bool) {
	stored := map[int32]int{} // nodes by weight
	unreachable := ""         // the first node that has the model and that the requester may not use
	for _, p := range near {
		switch {
		case p.sleeper == (Sleeper{}) && stored[p.weight()] == maxPreferred: // enough nodes of this kind
		case !reachable(p.node):
			unreachable = cmp.Or(unreachable, p.node)
		case p.sleeper == (Sleeper{}):
			if !isPreferred(out.Prefer, p.node) {
				stored[p.weight()]++
				out.Prefer = append(out.Prefer, Preference{p.node, p.weight()})
			}
		case d.promised[p.sleeper], !d.gpusFree(p.node, p.gpus):
		case out.Sleeper == (Sleeper{}):
			out.Sleeper, d.promised[p.sleeper] = p.sleeper, true
			d.promiseGPUs(p)
			out.Prefer = append(out.Prefer, Preference{p.node, weightSleeper})
		case len(out.Prefer) < maxPreferred && !isPreferred(out.Prefer, p.node):
			out.Prefer = append(out.Prefer, Preference{p.node, weightOther})
		}
	}
	switch {
	case out.Sleeper != (Sleeper{}):
		out.Row, out.Why = rowAsleep, fmt.Sprintf("its model sleeps on node %s, as instance %s", out.Prefer[0].Node, out.Sleeper.Instance)
	case stored[weightMemory] > 0:
		out.Row, out.Why = rowInMemory, "its model is in the main memory of node "+out.Prefer[0].Node+andMore(stored[weightMemory])
	case stored[weightDisk] > 0:
		out.Row, out.Why = rowOnDisk, "its model is on the disk of node "+out.Prefer[0].Node+andMore(stored[weightDisk])
	case unreachable != "":
		out.Row, out.Why = rowNowhere, "node "+unreachable+" has its model, but the requester may not run there"
	default:
		out.Row, out.Why = rowNowhere, "no node has its model on disk, or asleep on free GPUs"
	}
}

// andMore returns how many nodes there are besides the named one; empty: none.
func andMore(nodes int) string {
	if nodes == 1 {
		return ""
	}
	return fmt.Sprintf(" and %d more", nodes-1)
}

// cacheOf returns the ClusterModelCache of a requester's model; nil when there is none, or
// when the requester opts out.
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

func isPreferred(all []Preference, node string) bool {
	return slices.ContainsFunc(all, func(p Preference) bool { return p.Node == node })
}

// byNode returns the launchers of each node.
func (d *decision) byNode() [][]*Launcher {
	if d.nodeLaunchers != nil {
		return d.nodeLaunchers
	}
	at := map[string]int{}
	for i := range d.Launchers {
		l := &d.Launchers[i]
		n, known := at[l.Node]
		if !known {
			n, at[l.Node] = len(d.nodeLaunchers), len(d.nodeLaunchers)
			d.nodeLaunchers = append(d.nodeLaunchers, nil)
		}
		d.nodeLaunchers[n] = append(d.nodeLaunchers[n], l)
	}
	return d.nodeLaunchers
}

// serveKey returns a key of what a requester demands of its launcher.
func serveKey(r *Requester) string {
	mounts, err := json.Marshal(r.Form.Mounts)
	if err != nil {
		panic(err) // it was decoded from JSON
	}
	return fmt.Sprintf("%s %s %s %s", r.Namespace, r.Form.LauncherConfig, r.Form.Image, mounts)
}

// serving returns the launchers that are to serve a requester: on each node the one that binding
// would choose, unless it is not ready or lacks what the requester needs.
func (d *decision) serving(r *Requester) []*Launcher {
	key := serveKey(r)
	if known, ok := d.servers[key]; ok {
		return known
	}
	need := r.Form.Need()
	need.Namespace = r.Namespace
	of := func(l *Launcher) dualpods.Provider { return l.Provider }
	var all []*Launcher
	for _, launchers := range d.byNode() {
		if l, fits, _ := dualpods.ChooseLauncher(&need, launchers, of); fits && l.Ready {
			all = append(all, l)
		}
	}
	d.servers[key] = all
	return all
}

// gpusFree reports whether none of the GPUs is taken or promised.
func (d *decision) gpusFree(node string, gpus []string) bool {
	return !slices.ContainsFunc(gpus, func(uuid string) bool { return d.Taken[node][uuid] || d.gpus[node][uuid] })
}

// promiseGPUs reserves the GPUs of a sleeper.
func (d *decision) promiseGPUs(p place) {
	if d.gpus[p.node] == nil {
		d.gpus[p.node] = map[string]bool{}
	}
	for _, uuid := range p.gpus {
		d.gpus[p.node][uuid] = true
	}
}
