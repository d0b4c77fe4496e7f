package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/helpers/figures"
)

const (
	gangSize    = 8 // servers of a group: half of them prefill, half decode
	gangsPlaced = 30 * time.Second
)

// gangs times how soon a hundred groups have nodes that get them together, in turn with the same groups
// without a gang policy. Each of a thousand nodes has one GPU, and no launcher; the scheduler is Kubernetes'
// own.
func (b *bench) gangs() (rows []figures.Row, err error) {
	nodes, count := b.n(mostNodes), b.n(100)
	p, err := b.newPlayed("gangs", nodes, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.startScheduler(false); err != nil {
		return nil, err
	}
	if err := errors.Join(p.makeBareNodes(), p.untilGPUs(), p.startController(), p.untilController()); err != nil {
		return nil, err
	}
	var gates, placed, bare figures.Times
	for round := range b.n(3) {
		var free, all time.Duration
		err := p.profiled(10, func() (err error) {
			free, all, err = p.groupsCome(fmt.Sprintf("gang-%d", round), count, &v1alpha1.GangPolicy{})
			return err
		})
		if err != nil {
			return nil, err
		}
		gates, placed = append(gates, free), append(placed, all)
		if _, all, err = p.groupsCome(fmt.Sprintf("single-%d", round), count, nil); err != nil {
			return nil, err
		}
		bare = append(bare, all)
		b.say("gangs: %s until the last gate was removed, %s until all Pods had nodes, %s without gangs", free, placed[round], bare[round])
	}
	what := fmt.Sprintf("%d ModelServings of a group of %d servers with a gang policy are created on %d nodes of one GPU", count, gangSize, nodes)
	last := figures.Timed(what+" → the last gate is removed", gates, nil, 0, 0)
	all := figures.Timed("the same → all Pods have nodes; bare: without a gang policy", placed, bare, gangsPlaced, 0)
	all.Beside = fmt.Sprintf("%.2f×", float64(placed.P50())/float64(bare.P50()))
	return []figures.Row{last, all}, nil
}

// groupsCome makes ModelServings of one group, and returns how long it took until no Pod had the gate of
// gangs any more, and until all had nodes. Then it removes them.
func (p *played) groupsCome(name string, count int, policy *v1alpha1.GangPolicy) (free, placed time.Duration, err error) {
	servings := make([]*v1alpha1.ModelServing, count)
	for n := range servings {
		entry, err := playedEntry(nil)
		if err != nil {
			return 0, 0, err
		}
		servings[n] = &v1alpha1.ModelServing{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%d", name, n)}}
		servings[n].Spec.Template.GangPolicy = policy
		for _, role := range []string{"prefill", "decode"} {
			servings[n].Spec.Template.Roles = append(servings[n].Spec.Template.Roles, v1alpha1.ServingRole{Name: role, Replicas: new(int32(gangSize / 2)), EntryTemplate: entry})
		}
	}
	began := time.Now()
	if err := sideBySide(p.ctx, servings, func(ctx context.Context, m *v1alpha1.ModelServing) error { return p.api.Create(ctx, m) }); err != nil {
		return 0, 0, fmt.Errorf("cannot make ModelServings: %w", err)
	}
	if err := p.until("no Pod has the gate", func(c *crowd) bool { return c.requesters == gangSize*count && c.gated == 0 }); err != nil {
		return 0, 0, err
	}
	free = time.Since(began)
	if err := p.until("all Pods have nodes", func(c *crowd) bool { return c.onNodes == gangSize*count }); err != nil {
		return 0, 0, err
	}
	placed = time.Since(began)
	return free, placed, p.removeServings(servings)
}

// playedEntry is the Pod template of requesters on played nodes, changed. change may be nil.
func playedEntry(change func(*corev1.PodTemplateSpec)) (*runtime.RawExtension, error) {
	pod := requesterPod("probe", "")
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: pod.Annotations}, Spec: pod.Spec}
	template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} // nobody takes taints off new nodes here
	if change != nil {
		change(&template)
	}
	raw, err := json.Marshal(template)
	return &runtime.RawExtension{Raw: raw}, err
}

// removeServings removes ModelServings, whose Pods are deleted first: nobody collects garbage here.
func (p *played) removeServings(servings []*v1alpha1.ModelServing) error {
	none := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))
	if err := sideBySide(p.ctx, servings, func(ctx context.Context, m *v1alpha1.ModelServing) error { return p.api.Patch(ctx, m, none) }); err != nil {
		return fmt.Errorf("cannot change ModelServings: %w", err)
	}
	if err := p.until("the Pods are gone", func(c *crowd) bool { return c.requesters == 0 }); err != nil {
		return err
	}
	if err := sideBySide(p.ctx, servings, func(ctx context.Context, m *v1alpha1.ModelServing) error { return p.api.Delete(ctx, m) }); err != nil {
		return fmt.Errorf("cannot delete ModelServings: %w", err)
	}
	return nil
}
