package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/figures"
)

// Bounds of the part: how many times faster it is in place.
const (
	leastAsleep  = 10 // the models that come in sleep
	leastNew     = 3  // they are started
	leastRestart = 5  // a server that was killed is started again
)

// The stand-in engines of the part take as long as those of the launcher's bench.
const (
	loadTime = 2 * time.Second
	napTime  = 100 * time.Millisecond // to sleep, and to wake
)

// groupServers is how many servers the group of the part has: half of them prefill, half decode.
const groupServers = 4

// groups times changes of the model of a group in place, in turn with changes by new Pods, and
// restarts of a server in place, in turn with groups that are recreated. There are two nodes, with
// GPUs for one group.
func (b *bench) groups() (rows []figures.Row, err error) {
	s, err := b.newSite("groups", cluster.Options{Nodes: 2, GPUs: groupServers / 2})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Down()) }()
	if err := s.LoadProduct(b.ctx, "bin", "dev"); err != nil {
		return nil, err
	}
	if err := s.install(b.ctx); err != nil {
		return nil, err
	}
	if err := s.apply(b.ctx, "examples/dual-pods/launcherconfig.yaml"); err != nil {
		return nil, err
	}
	if err := s.wait(b.ctx, "--for=condition=Available", "lcfg/simulated"); err != nil {
		return nil, err
	}
	if rows, err = s.changes(b.ctx, b.n(10)); err != nil {
		return nil, err
	}
	restarts, err := s.restarts(b.ctx, b.n(8))
	return append(rows, restarts...), err
}

// model makes an InferenceServerConfig for org/NAME.
func (s *site) model(ctx context.Context, name string) error {
	config := &v1alpha1.InferenceServerConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	config.Spec.LauncherConfigName = "simulated"
	config.Spec.ModelServerConfig.Port = 8000
	config.Spec.ModelServerConfig.Args = []string{
		"org/" + name, "--gpu-memory-utilization=0.4", "--sim-load-time=" + loadTime.String(), "--sim-sleep-time=" + napTime.String(), "--sim-wake-time=" + napTime.String(),
	}
	if err := s.api.Create(ctx, config); err != nil {
		return fmt.Errorf("cannot make InferenceServerConfig %s: %w", name, err)
	}
	return nil
}

// fourServers is a ModelServing whose group serves a model.
func fourServers(name, model string) *v1alpha1.ModelServing {
	serving := &v1alpha1.ModelServing{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, role := range []string{"prefill", "decode"} {
		serving.Spec.Template.Roles = append(serving.Spec.Template.Roles, v1alpha1.ServingRole{Name: role, Replicas: new(int32(groupServers / 2)), InferenceServerConfig: model})
	}
	return serving
}

// changes gives the group other models, in place and by new Pods, of which the launchers have
// sleepers on all GPUs, and of which they have none.
func (s *site) changes(ctx context.Context, turns int) (rows []figures.Row, err error) {
	if err := errors.Join(s.model(ctx, "one"), s.model(ctx, "two")); err != nil {
		return nil, err
	}
	serving := fourServers("changed", "one")
	if _, err := s.timed(ctx, serving.Name, func() (time.Time, error) { return time.Now(), s.api.Create(ctx, serving) }, runs); err != nil {
		return nil, err
	}
	modes := []string{v1alpha1.UpdateInPlace, v1alpha1.UpdateRecreate}
	asleep, started := map[string]*figures.Times{}, map[string]*figures.Times{}
	for _, mode := range modes {
		asleep[mode], started[mode] = &figures.Times{}, &figures.Times{}
	}
	// Both models have to be on all GPUs before the first change that is timed.
	warm := &figures.Times{}
	if err := s.change(ctx, serving, "two", v1alpha1.UpdateInPlace, warm); err != nil {
		return nil, err
	}
	next := map[string]string{"one": "two", "two": "one"}
	model := "two"
	for range turns {
		for _, mode := range modes {
			model = next[model]
			if err := s.change(ctx, serving, model, mode, asleep[mode]); err != nil {
				return nil, err
			}
		}
	}
	for turn := range turns {
		for _, mode := range modes {
			model = fmt.Sprintf("new-%d-%s", turn, map[string]string{v1alpha1.UpdateInPlace: "in-place", v1alpha1.UpdateRecreate: "recreate"}[mode])
			if err := s.model(ctx, model); err != nil {
				return nil, err
			}
			if err := s.change(ctx, serving, model, mode, started[mode]); err != nil {
				return nil, err
			}
		}
	}
	const figure = "another model for a group of four servers on two nodes, changed in place → all serve; the new models "
	return []figures.Row{
		faster(figure+"sleep; bare: the same with new Pods", *asleep[v1alpha1.UpdateInPlace], *asleep[v1alpha1.UpdateRecreate], leastAsleep),
		faster(figure+"are started, in 2 s; bare: the same with new Pods", *started[v1alpha1.UpdateInPlace], *started[v1alpha1.UpdateRecreate], leastNew),
	}, s.removeServing(ctx, serving)
}

// faster is the row of a time that has to be so many times shorter than the bare one.
func faster(figure string, ours, bare figures.Times, least float64) figures.Row {
	row := figures.Timed(figure, ours, bare, 0, 0)
	times := float64(bare.P50()) / float64(ours.P50())
	row.Beside, row.Target, row.Met = fmt.Sprintf("%.1f× faster", times), fmt.Sprintf("≥ %g× faster at p50", least), times >= least
	return row
}

// change gives a group another model, and adds to times how long it took until it runs with that. It
// is an error if the Pods are not what the mode says.
func (s *site) change(ctx context.Context, serving *v1alpha1.ModelServing, model, mode string, times *figures.Times) error {
	before, err := s.podsOf(ctx, serving.Name)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"updateMode": mode, "template": fourServers(serving.Name, model).Spec.Template}})
	if err != nil {
		return err
	}
	took, err := s.timed(ctx, serving.Name, func() (time.Time, error) {
		at := time.Now()
		return at, s.api.Patch(ctx, fourServers(serving.Name, ""), client.RawPatch(types.MergePatchType, patch))
	}, func(m *v1alpha1.ModelServing) bool {
		return m.Spec.Template.Roles[0].InferenceServerConfig == model && runs(m)
	})
	if err != nil {
		return err
	}
	after, err := s.podsOf(ctx, serving.Name)
	if err != nil {
		return err
	}
	if same, want := stayed(before, after), map[string]int{v1alpha1.UpdateInPlace: groupServers}[mode]; same != want {
		return fmt.Errorf("%d Pods stayed during a change to %s with the mode %s, and not %d", same, model, mode, want)
	}
	*times = append(*times, took)
	return nil
}

// runs says that the group of a ModelServing runs with the present template.
func runs(m *v1alpha1.ModelServing) bool {
	return m.Status.ObservedGeneration == m.Generation && m.Status.CurrentRevision == m.Status.Revision && m.Status.ReadyReplicas == 1
}

func runsNot(m *v1alpha1.ModelServing) bool { return m.Status.ReadyReplicas == 0 }

// podsOf are the Pods of a ModelServing that stay.
func (s *site) podsOf(ctx context.Context, serving string) (map[string]types.UID, error) {
	var list corev1.PodList
	if err := s.api.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{podmeta.LabelServing: serving}); err != nil {
		return nil, fmt.Errorf("cannot list the Pods of ModelServing %s: %w", serving, err)
	}
	all := map[string]types.UID{}
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp.IsZero() {
			all[list.Items[i].Name] = list.Items[i].UID
		}
	}
	return all, nil
}

// stayed counts the Pods of before that are still there.
func stayed(before, after map[string]types.UID) (count int) {
	for name, uid := range before {
		if after[name] == uid {
			count++
		}
	}
	return count
}

// timed does something to a ModelServing, and returns the time from the moment that do returns until
// the ModelServing was as the functions say, one after the other.
func (s *site) timed(ctx context.Context, name string, do func() (time.Time, error), so ...func(*v1alpha1.ModelServing) bool) (time.Duration, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	events, err := s.api.Watch(ctx, &v1alpha1.ModelServingList{}, client.InNamespace(namespace), client.MatchingFields{"metadata.name": name})
	if err != nil {
		return 0, fmt.Errorf("cannot watch ModelServing %s: %w", name, err)
	}
	defer events.Stop()
	began, err := do()
	if err != nil {
		return 0, fmt.Errorf("cannot change what ModelServing %s has: %w", name, err)
	}
	var last *v1alpha1.ModelServing
	for event := range events.ResultChan() {
		m, ok := event.Object.(*v1alpha1.ModelServing)
		if !ok {
			continue
		}
		for last = m; len(so) > 0 && so[0](m); {
			so = so[1:]
		}
		if len(so) == 0 {
			return time.Since(began), nil
		}
	}
	if last == nil {
		return 0, fmt.Errorf("waited in vain for ModelServing %s", name)
	}
	return 0, fmt.Errorf("waited in vain for ModelServing %s: %+v", name, last.Status)
}
