package launcherpool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// standing is a launcher as a rollout sees it.
type standing struct {
	pod       *corev1.Pod
	node      string
	outdated  bool
	bound     bool
	closed    bool // the LauncherConfig does not select its node any more
	barred    bool // its node has a taint that launchers of the present template do not tolerate
	pressured bool // its node is under pressure, and accepts no new launcher for now
	ready     bool // its Pod is Ready, and is not being deleted
	leaving   bool // its Pod is being deleted, or has ended
	holds     int  // instances that end with it: those that sleep, are awake or move
	heard     bool // holds is known
	asked     bool // it is not heard, and may answer within moments
}

// losesNothing reports whether the launcher can be replaced and nobody misses it.
func (s *standing) losesNothing() bool { return !s.ready && s.heard && s.holds == 0 }

// goes reports whether the launcher is on its way out without the rollout: a closed one
// without requesters is removed, by its DaemonSet or as unwanted.
func (s *standing) goes() bool { return s.leaving || s.closed && !s.bound }

// rollout is what one pass decides about the launchers of earlier templates.
type rollout struct {
	replace     []*standing // now, in this order
	budget      int         // how many nodes may be without a ready launcher
	unavailable int         // how many are, once these are replaced
	outdated    int         // launchers of earlier templates
	leaving     int         // those of them that go now
	bound       int         // those of them that have requesters
	kept        int         // those of them that stay, because of the taints of their nodes
	pressured   int         // those of them that stay until the pressure on their nodes ends
	waiting     int         // those of them that wait for the budget
	asked       bool        // one may say within moments what it holds
	notReady    *standing   // the first launcher on a node without a ready one; nil: there is none
	missing     string      // the first node that is to have a launcher and has no Pod of one
}

// planRollout decides which launchers are replaced now. It is a pure function. missing is
// the number of nodes that are to have a launcher and have no Pod of one.
//
// A launcher with a requester stays. A launcher that is not ready and holds nothing is
// replaced at once: nothing is lost. The others follow in order: launchers that hold the
// least come first, and launchers that were never heard come last. A ready one is replaced
// only if fewer nodes than the budget are without a ready launcher. A launcher that is not
// ready takes nothing away, so that only the nodes count that wait for a launcher of the
// present template. Otherwise a template by which no launcher becomes ready could never be
// corrected. Closed launchers are not replaced, and their nodes do not count. Neither are
// barred ones, nor do theirs: what sleeps in a barred launcher would be lost, and the node
// would not accept a new one. Launchers on nodes under pressure are kept for the same
// reason, and their nodes count: the pressure passes.
func planRollout(launchers []standing, missing, budget int) *rollout {
	r := &rollout{budget: budget, unavailable: missing}
	moving := missing // nodes that wait for a launcher of the present template
	nodes := nodesByName(launchers)
	r.notReady = firstNotReady(launchers, nodes)
	for _, n := range nodes {
		if !n.ready {
			r.unavailable++
		}
		if !n.ready && !n.earlier {
			moving++
		}
	}
	var budgeted []*standing
	for i := range launchers {
		s := &launchers[i]
		switch {
		case !s.outdated:
			continue
		case s.goes():
			r.leaving++
		case s.bound:
			r.bound++
		case s.barred:
			r.kept++
		case s.losesNothing():
			r.replace = append(r.replace, s)
		case s.pressured:
			r.pressured++
		default:
			budgeted = append(budgeted, s)
		}
		r.outdated++
	}
	slices.SortFunc(budgeted, compareLoss)
	for _, s := range budgeted {
		counted := r.unavailable
		if !s.ready {
			counted = moving
		}
		if s.asked || counted >= budget {
			r.asked = r.asked || s.asked
			r.waiting++
			continue
		}
		r.replace = append(r.replace, s)
		moving++
		if s.ready {
			r.unavailable++
		}
	}
	r.leaving += len(r.replace)
	return r
}

// compareLoss orders launchers by what is lost with them, the least first.
func compareLoss(a, b *standing) int {
	return cmp.Or(dualpods.TrueFirst(a.heard, b.heard), cmp.Compare(a.holds, b.holds), dualpods.TrueFirst(!a.ready, !b.ready), strings.Compare(a.pod.Name, b.pod.Name))
}

// nodeStanding is a node as a rollout sees it.
type nodeStanding struct {
	ready   bool // it has a ready launcher
	earlier bool // it has a launcher of an earlier template that stays for now
}

// nodesByName returns the nodes that are to have a launcher and have a Pod of one.
func nodesByName(launchers []standing) map[string]nodeStanding {
	nodes := map[string]nodeStanding{}
	for _, s := range launchers {
		if s.closed || s.barred {
			continue
		}
		n := nodes[s.node]
		nodes[s.node] = nodeStanding{ready: n.ready || s.ready, earlier: n.earlier || s.outdated && !s.leaving}
	}
	return nodes
}

// firstNotReady returns the first launcher, by name, on a node that is to have a ready launcher
// and has none. Launchers that are being deleted come last.
func firstNotReady(launchers []standing, nodes map[string]nodeStanding) (first *standing) {
	for i := range launchers {
		s := &launchers[i]
		if s.closed || s.barred || nodes[s.node].ready {
			continue
		}
		if first == nil || cmp.Or(dualpods.TrueFirst(!s.leaving, !first.leaving), strings.Compare(s.pod.Name, first.pod.Name)) < 0 {
			first = s
		}
	}
	return first
}

// defaultBudget is the budget of a LauncherConfig that says none, or none that can be read.
const defaultBudget = 1

// budgetOf returns how many of so many nodes may be without a ready launcher.
func budgetOf(config *v1alpha1.LauncherConfig, nodes int) int {
	most := config.Spec.Rollout.MaxUnavailable
	if most == nil {
		return defaultBudget
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(most, nodes, true)
	if err != nil || n < 0 {
		return defaultBudget
	}
	return n
}

// standings returns the launchers of a LauncherConfig as a rollout sees them.
func (p *Pool) standings(ctx context.Context, f *observation) (all []standing) {
	for _, pod := range f.launchers {
		view, provider := p.opts.Views.Pick(string(pod.UID), lives), dualpods.ProviderOf(pod, 0)
		s := standing{
			pod: pod, node: NodeOf(pod), outdated: f.outdated(pod), bound: isBound(pod),
			leaving: provider.Stage == dualpods.Leaving || p.replaced.has(pod),
		}
		if s.node != "" {
			node, err := p.node(ctx, s.node)
			s.closed = err != nil || node == nil || !f.selects(node)
			s.barred = !s.closed && !f.admits(node)
			s.pressured = !s.closed && underPressure(node)
		}
		s.ready = provider.Ready && !s.leaving
		s.holds, s.heard = held(pod, view)
		s.asked = !s.heard && time.Since(p.replaced.listeningSince(view.Lost)) < dualpods.LauncherPatience
		all = append(all, s)
	}
	return all
}

// lives reports whether an instance ends with its launcher.
func lives(_ string, i launcherapi.Instance) bool { return !launcher.State(i.State).Ended() }

// held returns how many instances end with a launcher. heard is false if that is not known:
// its program runs and has not answered this controller yet. A launcher that has fallen
// silent holds what it held when it answered last.
func held(pod *corev1.Pod, view nodeview.View) (instances int, heard bool) {
	if p := dualpods.ProviderOf(pod, 0); p.Ended || !podmeta.ContainerRuns(pod, podmeta.ServingContainer) && view.Instances == nil {
		return 0, true
	}
	for id, i := range view.Instances {
		if lives(id, i) {
			instances++
		}
	}
	return instances, view.Instances != nil
}

// unheardRecheck is the period after which a rollout asks again what launchers hold that were
// not heard yet.
const unheardRecheck = time.Second

// missingRecheck is the period after which a rollout looks again at nodes without a launcher.
// No event reports that such a node is gone.
const missingRecheck = time.Minute

// replace deletes launchers whose Pod has ended, and launchers of an earlier template as
// planRollout says. The DaemonSet makes new ones; in mode OnDemand the next pass does, so
// that the rollout waits for them. The deletion has the resource version that was read as
// a precondition: a launcher that was bound since then stays.
func (p *Pool) replace(ctx context.Context, f *observation) error {
	errs := []error{p.makeSuccessors(ctx, f)}
	standings := p.standings(ctx, f)
	nodes, missing, err := p.nodesOf(ctx, f, standings)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	f.uncounted = map[types.UID]bool{}
	for _, s := range standings {
		f.uncounted[s.pod.UID] = s.closed || s.barred
	}
	f.rollout = planRollout(standings, len(missing), budgetOf(f.config, nodes))
	if len(missing) > 0 {
		f.rollout.missing = slices.Min(missing)
	}
	if f.rollout.asked {
		f.requeueAfter = dualpods.Sooner(f.requeueAfter, unheardRecheck)
	}
	if f.rollout.waiting > 0 && len(missing) > 0 {
		f.requeueAfter = dualpods.Sooner(f.requeueAfter, missingRecheck)
	}
	for i := range standings {
		if s := &standings[i]; podmeta.Finished(s.pod) && s.pod.DeletionTimestamp.IsZero() && !s.bound && !p.replaced.has(s.pod) {
			errs = append(errs, p.replaceOne(ctx, s))
		}
	}
	for _, s := range f.rollout.replace {
		err := p.replaceOne(ctx, s)
		errs = append(errs, err)
		if err != nil {
			continue
		}
		p.replaced.add(s.pod, place{client.ObjectKeyFromObject(f.config), s.node}, f.config.Spec.Population.Mode == v1alpha1.OnDemand && s.ready)
		p.opts.Recorder.Eventf(f.config, s.pod, corev1.EventTypeNormal, "Replaced", "Replace", "launcher %s of node %s was made from an earlier template; instances that ended with it: %d", s.pod.Name, s.node, s.holds)
	}
	return errors.Join(errs...)
}

func (p *Pool) replaceOne(ctx context.Context, s *standing) error {
	err := p.opts.API.Delete(ctx, s.pod, client.Preconditions{UID: &s.pod.UID, ResourceVersion: &s.pod.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot replace launcher %s: %w", s.pod.Name, err)
	}
	return nil
}

// nodesOf returns how many nodes are to have a launcher, and the names of those that have no Pod
// of one. As a DaemonSet does, it counts no node on which its Pods may not be placed. It does not
// take the number from the status of the DaemonSet, which also leaves out nodes that are down:
// those have launchers that are missed.
func (p *Pool) nodesOf(ctx context.Context, f *observation, launchers []standing) (nodes int, missing []string, err error) {
	there := nodesByName(launchers)
	if !slices.ContainsFunc(launchers, func(s standing) bool { return s.outdated }) {
		return len(there), nil, nil // nothing is replaced
	}
	wanted, err := p.wantedNodes(ctx, f)
	for i := range wanted {
		if _, is := there[wanted[i].Name]; !is && f.selects(&wanted[i]) && f.admits(&wanted[i]) {
			missing = append(missing, wanted[i].Name)
		}
	}
	return len(there) + len(missing), missing, err
}

// wantedNodes returns the nodes that get a launcher without a requester that needs one, if they
// are selected and admit it.
func (p *Pool) wantedNodes(ctx context.Context, f *observation) ([]corev1.Node, error) {
	var all corev1.NodeList
	if f.config.Spec.Population.Mode != v1alpha1.OnDemand {
		if err := p.opts.API.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("cannot list the nodes: %w", err)
		}
		return all.Items, nil
	}
	for _, name := range p.replaced.awaiting(client.ObjectKeyFromObject(f.config)) {
		node, err := p.node(ctx, name)
		if err != nil {
			return nil, err
		}
		if node != nil {
			all.Items = append(all.Items, *node)
		}
	}
	return all.Items, nil
}

// makeSuccessors creates the launchers of mode OnDemand whose predecessors were replaced and
// are gone.
func (p *Pool) makeSuccessors(ctx context.Context, f *observation) error {
	var errs []error
	config := client.ObjectKeyFromObject(f.config)
	for _, node := range p.replaced.awaiting(config) {
		there, leaving := false, false
		for _, pod := range f.launchers {
			if NodeOf(pod) == node {
				goes := !pod.DeletionTimestamp.IsZero() || p.replaced.has(pod)
				there, leaving = there || !goes, leaving || goes
			}
		}
		on, err := p.node(ctx, node)
		switch {
		case err != nil:
			errs = append(errs, err)
		case there || on == nil || !f.selects(on):
			p.replaced.forget(place{config, node})
		case leaving: // an event reports its end
		default:
			err := p.Create(ctx, dualpods.LauncherNeed{Namespace: config.Namespace, Config: config.Name, Node: node})
			if err != nil { // a requester that needs the launcher has it made
				p.replaced.forget(place{config, node})
				errs = append(errs, fmt.Errorf("cannot replace the launcher of node %s: %w", node, err))
			}
		}
	}
	return errors.Join(errs...)
}
