package main

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/figures"
)

// beyondWake bounds how much longer a Model at zero, which sleeps behind a seat, takes to its first byte than its engine
// takes to wake.
const beyondWake = 60 * time.Millisecond

// seats times requests for a Model at zero whose model sleeps behind a seat, up to the first byte. It compares them with
// the times in which the engine woke, as its launcher reports them.
func (b *bench) seats() (rows []figures.Row, err error) {
	s, err := b.newSite("seats", cluster.Options{Nodes: 1, GPUs: 2}) // as many as the launcher of the example simulates
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Down()) }()
	launchers, err := s.setUpNode(b.ctx, "frontDoor.namespace="+namespace, "frontDoor.replicas=1")
	if err != nil {
		return nil, err
	}
	defer launchers.close()
	pool := &v1alpha1.SeatPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "seats"}, Spec: v1alpha1.SeatPoolSpec{GPUs: 1, LauncherConfigName: "simulated"}}
	m := &v1alpha1.Model{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: zeroModel}, Specs: []v1alpha1.ModelEntry{{Name: "seats", SeatPool: "seats"}}}
	m.Spec.URL, m.Spec.ScaleDownDelaySeconds = "hf://org/"+zeroModel, new(int32(0))
	m.Spec.Args = []string{"--gpu-memory-utilization=0.4", "--sim-load-time=" + loadTime.String()}
	if err := errors.Join(s.api.Create(b.ctx, pool), s.api.Create(b.ctx, m)); err != nil {
		return nil, fmt.Errorf("cannot make a SeatPool and a Model: %w", err)
	}
	if err := errors.Join(s.wait(b.ctx, "--for=condition=Available", "seatpool/seats"), s.wait(b.ctx, "--for=condition=Available", "mdl/"+zeroModel)); err != nil {
		return nil, err
	}
	door, err := s.frontDoor(b.ctx)
	if err != nil {
		return nil, err
	}
	var ours, wakes figures.Times
	for n := range b.n(40) + 1 {
		began := time.Now()
		if err := s.chat(b.ctx, door, zeroModel); err != nil {
			return nil, err
		}
		took := time.Since(began)
		if err := s.poll(b.ctx, "the seat has no model, and the model sleeps", func() (bool, error) {
			var seats corev1.PodList
			err := s.api.List(b.ctx, &seats, client.InNamespace(namespace), client.MatchingLabels{podmeta.LabelModel: zeroModel})
			_, asleep := launchers.lastWake()
			return len(seats.Items) == 0 && asleep, err
		}); err != nil {
			return nil, err
		}
		if wake, _ := launchers.lastWake(); n > 0 { // the first one is a start
			ours, wakes = append(ours, took), append(wakes, wake)
		}
	}
	beyond := ours.P50() - wakes.P50()
	return []figures.Row{{
		Figure: "request for a Model at zero that sleeps behind a seat → first byte (ms); bare: the wake of its engine", Samples: len(ours), Ours: ours.String(), Bare: wakes.String(),
		Beside: fmt.Sprintf("%+.0f ms at p50", float64(beyond)/1e6), Target: "p50 ≤ +" + figures.Short(beyondWake), Met: beyond <= beyondWake,
	}}, nil
}

// lastWake returns how long the last wake of an instance took, and whether the instance sleeps by now.
func (w *launcherWatch) lastWake() (took time.Duration, asleep bool) {
	var began time.Time
	for _, i := range w.moments() {
		switch launcher.State(i.State) {
		case launcher.Waking:
			began = i.StateSince
		case launcher.Awake:
			if !began.IsZero() {
				took, began = i.StateSince.Sub(began), time.Time{}
			}
		default:
		}
		asleep = launcher.State(i.State) == launcher.Sleeping
	}
	return took, asleep
}
