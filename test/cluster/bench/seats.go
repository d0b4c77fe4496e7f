package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/figures"
)

// beyondWake bounds the time from a request for a Model that sleeps behind a seat to the first byte, less the time in which
// its engine wakes.
const beyondWake = 60 * time.Millisecond

// seats times requests for a Model at zero whose model sleeps behind a seat, up to the first byte. It compares them with
// the times in which the engine woke, as its launcher reports them. A Model keeps its seat until its demand of the last
// 10 s is zero, so two Models with a seat each are asked in turn.
func (b *bench) seats() (rows []figures.Row, err error) {
	s, err := b.newSite("seats", cluster.Options{Nodes: 1, GPUs: 2})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Down()) }()
	launchers, err := s.setUpNode(b.ctx, "frontDoor.namespace="+namespace, "frontDoor.replicas=1")
	if err != nil {
		return nil, err
	}
	defer launchers.close()
	models := []string{"model-a", "model-b"}
	door, err := b.setUpSeats(s, models)
	if err != nil {
		return nil, err
	}
	var asks []ask
	for n := range b.n(15) + 1 {
		for _, model := range models {
			a, err := s.ask(b.ctx, door, model)
			if err != nil {
				return nil, err
			}
			if n > 0 { // the first one is a start
				asks = append(asks, a)
			}
		}
		if err := b.untilSeatsAreFree(s, launchers); err != nil {
			return nil, err
		}
	}
	ours := took(asks)
	wakes, err := wakes(asks, launchers.moments())
	if err != nil {
		return nil, err
	}
	beyond := ours.P50() - wakes.P50()
	return []figures.Row{{
		Figure: "request for a Model at zero that sleeps behind a seat → first byte (ms); bare: the wake of its engine", Samples: len(ours), Ours: ours.String(), Bare: wakes.String(),
		Beside: fmt.Sprintf("%+.0f ms at p50", float64(beyond)/1e6), Target: "p50 ≤ +" + figures.Short(beyondWake), Met: beyond <= beyondWake,
	}}, b.keepAsks(s, "seats", asks, launchers.moments())
}

// setUpSeats makes a SeatPool with a seat for each Model, and the Models. It returns the address of the front door.
func (b *bench) setUpSeats(s *site, models []string) (door string, err error) {
	pool := &v1alpha1.SeatPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "seats"}, Spec: v1alpha1.SeatPoolSpec{Replicas: new(int32(len(models))), GPUs: 1, LauncherConfigName: "simulated"}}
	if err := s.api.Create(b.ctx, pool); err != nil {
		return "", fmt.Errorf("cannot make a SeatPool: %w", err)
	}
	if err := s.wait(b.ctx, "--for=condition=Available", "seatpool/"+pool.Name); err != nil {
		return "", err
	}
	for _, name := range models {
		m := &v1alpha1.Model{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Specs: []v1alpha1.ModelEntry{{Name: "seats", SeatPool: pool.Name}}}
		m.Spec.URL, m.Spec.ScaleDownDelaySeconds = "hf://org/"+name, new(int32(0))
		m.Spec.Args = []string{"--gpu-memory-utilization=0.4", "--sim-load-time=" + loadTime.String()}
		if err := s.api.Create(b.ctx, m); err != nil {
			return "", fmt.Errorf("cannot make a Model: %w", err)
		}
		if err := s.wait(b.ctx, "--for=condition=Available", "mdl/"+name); err != nil {
			return "", err
		}
	}
	return s.frontDoor(b.ctx)
}

// untilSeatsAreFree waits until no seat has a model, and all models sleep, and then for what the kubelet and the launcher
// still have to do, which no watch shows.
func (b *bench) untilSeatsAreFree(s *site, launchers *launcherWatch) error {
	err := s.poll(b.ctx, "no seat has a model, and all models sleep", func() (bool, error) {
		var seats corev1.PodList
		if err := s.api.List(b.ctx, &seats, client.InNamespace(namespace), client.HasLabels{podmeta.LabelSeat, podmeta.LabelModel}); err != nil {
			return false, err
		}
		return len(seats.Items) == 0 && allSleep(launchers.moments()), nil
	})
	if err != nil {
		return err
	}
	select {
	case <-b.ctx.Done():
		return context.Cause(b.ctx)
	case <-time.After(afterSleep):
		return nil
	}
}

const afterSleep = time.Second

// allSleep reports whether the last state of each instance is that it sleeps.
func allSleep(moments []launcherapi.Instance) bool {
	last := map[string]string{}
	for _, m := range moments {
		last[m.InstanceID] = m.State
	}
	for _, state := range last {
		if launcher.State(state) != launcher.Sleeping {
			return false
		}
	}
	return true
}
