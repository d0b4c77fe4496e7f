package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/helpers/figures"
)

// templateHash is the hash in the names of ReplicaSets. No controller makes these here.
const templateHash = "6d4cf56db6"

// The numbers of part many.
const (
	entriesOfMany  = 4
	manyPassesTook = 50 * time.Millisecond // bound of a pass for one Model
)

// many has a thousand Models of four entries at rest. The first entry of each has a Pod that is ready. It counts the
// controller's writes in a minute, times its passes, and reads its memory. The baseline has ten Models.
func (b *bench) many() (rows []figures.Row, err error) {
	r, err := b.resting("many", manyAtRest)
	if err != nil {
		return nil, err
	}
	count, few, before, after := r.count, r.few, r.before, r.after
	return []figures.Row{
		{
			Figure:  fmt.Sprintf("%d Models at rest, each of %d entries, with one Pod that is ready: writes of the controller in %s, and in %d passes; bare: %d Models", count, entriesOfMany, atRest, after.passes.count, few),
			Samples: 1, Ours: strconv.Itoa(after.writes), Bare: strconv.Itoa(before.writes), Target: "0", Met: after.writes == 0,
		},
		{
			Figure:  fmt.Sprintf("the same: a pass for one Model, mean (ms), and share of passes within 5 ms; bare: %d Models", few),
			Samples: after.passes.count, Ours: after.passes.String(), Bare: before.passes.String(), Beside: fmt.Sprintf("%.2f×", float64(after.passes.mean())/float64(before.passes.mean())),
			Target: "≤ " + figures.Short(manyPassesTook), Met: after.passes.mean() <= manyPassesTook,
		},
		{
			Figure:  fmt.Sprintf("the same: resident memory of the controller above that with %d Models (%s); bare: a process that does nothing but keep the Pods in client-go's cache", few, mb(before.bytes)),
			Samples: 1, Ours: mb(after.bytes - before.bytes), Bare: mb(after.cache - before.cache), Beside: fmt.Sprintf("%+.1f kB for each", float64(after.bytes-before.bytes)/1e3/float64(max(1, count-few))),
		},
	}, nil
}

var manyAtRest = atRestOf{"model", func(n int) client.Object {
	return &v1alpha1.Model{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: manyName(n)}}
}, (*played).manyCome}

func manyName(n int) string { return fmt.Sprintf("many-%d", n) }

// manyTogether is how many Models are made before the part waits until they are available.
const manyTogether = 200

// manyCome makes the Models from the first up to the last, some at a time.
func (p *played) manyCome(first, last int) error {
	for ; first < last; first += manyTogether {
		if err := p.someCome(first, min(first+manyTogether, last)); err != nil {
			return err
		}
	}
	return nil
}

// someCome makes the Models from the first up to the last, each with the Pod that its first Deployment would make, and
// waits until all that there are are available.
func (p *played) someCome(first, last int) error {
	var models []*v1alpha1.Model
	var pods []*corev1.Pod
	for n := first; n < last; n++ {
		m := &v1alpha1.Model{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: manyName(n)}}
		m.Spec.URL, m.Spec.Engine, m.Spec.Image = "hf://org/many", v1alpha1.EngineLlamaCpp, "example.com/llama"
		for k := range entriesOfMany {
			e := v1alpha1.ModelEntry{Name: fmt.Sprintf("e%d", k)}
			if k == 0 {
				e.MinReplicas = new(int32(1))
			}
			m.Specs = append(m.Specs, e)
		}
		models = append(models, m)
		node := n % p.nodes
		pods = append(pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: manyName(n) + "-e0", Annotations: map[string]string{ipAnnotation: podAddress(node, firstRequester+n/p.nodes)},
				Labels: map[string]string{podmeta.LabelModel: m.Name, podmeta.LabelModelEntry: "e0", appsv1.DefaultDeploymentUniqueLabelKey: templateHash},
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "apps/v1", Kind: "ReplicaSet", Name: m.Name + "-e0-" + templateHash, UID: "replica-set", Controller: new(true),
				}},
			},
			Spec: corev1.PodSpec{NodeName: nodeName(node), Containers: []corev1.Container{{Name: podmeta.ServingContainer, Image: m.Spec.Image}}},
		})
	}
	if err := sideBySide(p.ctx, models, func(ctx context.Context, m *v1alpha1.Model) error { return p.api.Create(ctx, m) }); err != nil {
		return fmt.Errorf("cannot make Models: %w", err)
	}
	if err := sideBySide(p.ctx, pods, func(ctx context.Context, o *corev1.Pod) error { return p.api.Create(ctx, o) }); err != nil {
		return fmt.Errorf("cannot make Pods: %w", err)
	}
	return p.poll(time.Second, func(ctx context.Context) (lacks string, err error) {
		var list v1alpha1.ModelList
		if err := p.api.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return "", fmt.Errorf("cannot list the Models: %w", err)
		}
		available := 0
		for i := range list.Items {
			if meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, "Available") {
				available++
			}
		}
		if available != last {
			lacks = fmt.Sprintf("%d of %d Models are available", available, last)
		}
		return lacks, nil
	})
}
