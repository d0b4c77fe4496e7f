package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/helpers/figures"
)

// beyondDeadline bounds how long after unschedulableSeconds the next entry is asked.
const beyondDeadline = time.Second

// stockouts times how long a Model whose first entry has no node takes to ask its second one, from the scheduler's first
// word on the Pod, less unschedulableSeconds. Times in a Pod's conditions are whole seconds, so it may ask up to a second
// early.
func (b *bench) stockouts(s *site, door string) (figures.Row, error) {
	for name, labels := range map[string]map[string]string{"bench-usual": nil, "bench-rare": {"bench.hotseat.dev/gpu": "rare"}} {
		p := &v1alpha1.ResourceProfile{ObjectMeta: metav1.ObjectMeta{Name: name}}
		p.Spec.LauncherConfigName, p.Spec.NodeSelector = "simulated", labels
		p.Spec.Limits = corev1.ResourceList{podmeta.ResourceGPU: resource.MustParse("1")}
		if err := s.api.Create(b.ctx, p); err != nil {
			return figures.Row{}, fmt.Errorf("cannot make a ResourceProfile: %w", err)
		}
	}
	var names []string
	for n := range b.n(10) {
		name := fmt.Sprintf("stockout-%d", n)
		if err := s.stockout(b.ctx, door, name); err != nil {
			return figures.Row{}, err
		}
		names = append(names, name)
	}
	last := names[len(names)-1] + "-usual"
	writes, err := readAudit(b.ctx, s.AuditLog(), last, func(w *write) bool {
		return w.Object.Resource == "deployments" && w.Verb == "update" && w.byController()
	})
	if err != nil {
		return figures.Row{}, err
	}
	var late figures.Times
	for _, name := range names {
		took, err := askedAfter(writes, name)
		if err != nil {
			return figures.Row{}, err
		}
		late = append(late, took-time.Second)
	}
	return figures.Row{
		Figure: "no node for the first entry: unschedulableSeconds after the scheduler has said so → the second entry is asked (ms)", Samples: len(late), Ours: late.String(),
		Target: "p99 ≤ " + figures.Short(beyondDeadline), Met: late.P99() <= beyondDeadline,
	}, nil
}

// stockout asks a Model whose first entry has no node, and deletes it.
func (s *site) stockout(ctx context.Context, door, name string) error {
	m := &v1alpha1.Model{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	m.Spec.URL, m.Spec.ScaleDownDelaySeconds, m.Spec.UnschedulableSeconds = "hf://org/"+name, new(int32(0)), new(int32(1))
	m.Spec.Args = []string{"--gpu-memory-utilization=0.4"}
	m.Specs = []v1alpha1.ModelEntry{{Name: "rare"}, {Name: "usual"}}
	m.Specs[0].ResourceProfile, m.Specs[1].ResourceProfile = "bench-rare", "bench-usual"
	if err := s.api.Create(ctx, m); err != nil {
		return fmt.Errorf("cannot make a Model: %w", err)
	}
	if err := s.wait(ctx, "--for=condition=Accepted", "mdl/"+name); err != nil {
		return err
	}
	err := s.poll(ctx, "the front door answers for "+name, func() (bool, error) { return s.chat(ctx, door, name) == nil, nil })
	if err != nil {
		return err
	}
	if err := s.api.Delete(ctx, m); err != nil {
		return fmt.Errorf("cannot delete a Model: %w", err)
	}
	return s.poll(ctx, "its Pods are gone", func() (bool, error) {
		var pods corev1.PodList
		err := s.api.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{podmeta.LabelModel: name})
		return len(pods.Items) == 0, err
	})
}

// askedAfter returns how long after the scheduler's first word on the Pod of a Model's first entry the second one was
// asked.
func askedAfter(writes []write, model string) (time.Duration, error) {
	var said, asked time.Time
	for i := range writes {
		w := &writes[i]
		isPod := w.Object.Resource == "pods" && strings.HasPrefix(w.Object.Name, model+"-rare-")
		switch {
		case said.IsZero() && isPod && w.Object.Subresource == "status" && w.user() == "system:kube-scheduler":
			said = w.Answered
		case !said.IsZero() && asked.IsZero() && w.Object.Resource == "deployments" && w.Object.Subresource == "" && w.Verb == "update" && w.byController() && w.Object.Name == model+"-usual":
			asked = w.Received
		}
	}
	if said.IsZero() || asked.IsZero() {
		return 0, fmt.Errorf("the audit log does not tell all of Model %s: unschedulable %s, asked %s", model, said, asked)
	}
	return asked.Sub(said), nil
}
