package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/test/helpers/figures"
)

// Nodes of one GPU each, of which two models have as many replicas together at all
// times as leave a third free; and how often these go from the one to the other.
const (
	pingNodes = 30
	pingFew   = 5
	pingMany  = 15
	pingTurns = 8
)

// steeredShare is the target of the part.
const steeredShare = 0.9

// pingPong has two models take turns as two autoscalers would say, and counts how many
// of their requesters found their model asleep on the GPU that they got: with the
// scheduling gate, by which they are steered, and without: where launchers have main
// memory for both models, and where they have it for the one alone that ran there last.
// The scheduler is Kubernetes' own. Of nodes that are alike to it, as all are here but
// for what a requester prefers, that of Kubernetes 1.37 takes the first in an order that
// does not change, where no extender has been asked: so it is timed with one that thinks
// the same of all nodes, which has it draw as those before did, and without.
func (b *bench) pingPong() (rows []figures.Row, err error) {
	for _, in := range []pingPlace{{most: 2, drawn: true}, {most: 1, drawn: true}, {most: 1}} {
		row, err := b.pingPongIn(in)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// pingPlace is a cluster of the part.
type pingPlace struct {
	most  int  // models for which a launcher has main memory
	drawn bool // the scheduler draws among nodes that are alike to it
}

func (in pingPlace) String() string {
	order := "nodes taken in order"
	if in.drawn {
		order = "nodes drawn"
	}
	return fmt.Sprintf("main memory for %d of them, %s", in.most, order)
}

func (b *bench) pingPongIn(in pingPlace) (row figures.Row, err error) {
	nodes, turns := pingNodes, b.n(pingTurns)
	p, err := b.newPlayed("ping-pong", nodes, in.most)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.startScheduler(in.drawn); err != nil {
		return row, err
	}
	if err := errors.Join(p.makeNodes(), p.startController()); err != nil {
		return row, err
	}
	left, count, err := p.turns("left", turns, false)
	if err != nil {
		return row, err
	}
	steered, _, err := p.turns("steered", turns, true)
	if err != nil {
		return row, err
	}
	return figures.Row{
		Figure: fmt.Sprintf("two models take turns on %d nodes of one GPU, %d and %d replicas and the other way round, %s: share of hot starts with the scheduling gate; bare: without it", nodes, pingMany, pingFew, in), Samples: count,
		Ours: fmt.Sprintf("%.0f %%", 100*steered), Bare: fmt.Sprintf("%.0f %%", 100*left), Beside: fmt.Sprintf("%+.0f points", 100*(steered-left)),
		Target: fmt.Sprintf("≥ %.0f %%", 100*steeredShare), Met: steered >= steeredShare,
	}, nil
}

// schedulerConfig has a scheduler ask the stand-in what it thinks of nodes.
const schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q}
extenders: [{urlPrefix: "http://` + notesAddress + `", prioritizeVerb: alike, weight: 1, nodeCacheCapable: true}]
`

func (p *played) startScheduler(draws bool) error {
	who := p.file("kwok")
	args := []string{"kube-scheduler", "--authentication-kubeconfig=" + who, "--authorization-kubeconfig=" + who, "--bind-address=127.0.0.1"}
	if draws {
		config := p.file("scheduler.yaml")
		if err := os.WriteFile(config, fmt.Appendf(nil, schedulerConfig, who), 0o600); err != nil {
			return fmt.Errorf("cannot write the scheduler's configuration: %w", err)
		}
		args = append(args, "--config="+config)
	} else {
		args = append(args, "--kubeconfig="+who, "--leader-elect=false")
	}
	_, err := p.start("scheduler", nil, p.Kube, args...)
	return err
}

// turns has two models take turns, and gives the share of hot starts among the
// requesters that came once both had been as large as they get.
func (p *played) turns(name string, turns int, gated bool) (share float64, count int, err error) {
	models := [2]*scaled{{name: name + "-a", gated: gated}, {name: name + "-b", gated: gated}}
	var counted []*corev1.Pod
	for turn := range turns + 2 {
		grows, shrinks := models[turn%2], models[(turn+1)%2]
		came, err := p.turn(grows, shrinks)
		if err != nil {
			return 0, 0, fmt.Errorf("turn %d of %s: %w", turn, name, err)
		}
		if turn >= 2 {
			counted = append(counted, came...)
		}
	}
	notes, err := p.notes(p.ctx)
	if err != nil {
		return 0, 0, err
	}
	hot := 0
	for i, pod := range counted {
		n, ok := notes[string(pod.UID)]
		if !ok {
			return 0, 0, fmt.Errorf("the stand-in has no note of Pod %s", pod.Name)
		}
		if n.Woke {
			hot++
		}
		if each := pingMany - pingFew; (i+1)%each == 0 {
			p.b.say("ping-pong, %s: %d of %d requesters started hot after %d turns", name, hot, i+1, (i+1)/each)
		}
	}
	for _, m := range models {
		if err := p.shrink(m, 0); err != nil {
			return 0, 0, err
		}
	}
	return float64(hot) / float64(len(counted)), len(counted), nil
}

// scaled is a model with replicas.
type scaled struct {
	name  string
	gated bool
	pods  []*corev1.Pod
}

// turn shrinks one model and lets the other grow.
func (p *played) turn(grows, shrinks *scaled) (came []*corev1.Pod, err error) {
	if err := p.shrink(shrinks, pingFew); err != nil {
		return nil, err
	}
	for len(grows.pods)+len(came) < pingMany {
		pod := requesterPod("probe", "")
		pod.GenerateName = grows.name + "-"
		pod.Annotations[podmeta.AnnotationServerPatch] = patchFor("org/" + grows.name)
		pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} // nobody takes taints off new nodes here
		if grows.gated {
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: podmeta.SchedulingGate}}
		}
		came = append(came, pod)
	}
	there := p.served() + len(came)
	if err := p.create(came); err != nil {
		return nil, err
	}
	grows.pods = append(grows.pods, came...)
	ctx, stop := context.WithCancel(p.ctx)
	defer stop()
	played := make(chan error, 1)
	go func() { played <- p.kubelets(ctx, came) }()
	if err := p.until("all requesters are served", func(c *crowd) bool { return c.served == there }); err != nil {
		stop()
		return nil, errors.Join(err, <-played)
	}
	return came, <-played // it has given the last an address before that was served
}

// shrink takes the replicas of a model that are there longest, until so many are left.
func (p *played) shrink(m *scaled, to int) error {
	n := max(len(m.pods)-to, 0)
	gone := m.pods[:n]
	m.pods = m.pods[n:]
	left := p.present() - n
	if err := p.delete(gone); err != nil {
		return err
	}
	return p.until("the requesters are gone", func(c *crowd) bool { return c.requesters == left })
}

// kubelets give each Pod an address on the node that the scheduler has taken, of the
// node's only GPU, until all have one.
func (p *played) kubelets(ctx context.Context, pods []*corev1.Pod) error {
	left := map[string]bool{}
	for _, pod := range pods {
		left[pod.Name] = true
	}
	for len(left) > 0 {
		var list corev1.PodList
		if err := p.api.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			pod := &list.Items[i]
			if !left[pod.Name] || pod.Spec.NodeName == "" {
				continue
			}
			var node int
			if _, err := fmt.Sscanf(pod.Spec.NodeName, nodeFormat, &node); err != nil {
				return fmt.Errorf("node %s is none of ours: %w", pod.Spec.NodeName, err)
			}
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, ipAnnotation, podAddress(node, p.next[node])))
			if err := p.api.Patch(ctx, pod, patch); err != nil {
				return err
			}
			p.next[node] += gpusOfNode
			delete(left, pod.Name)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
