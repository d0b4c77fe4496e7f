package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/helpers/figures"
)

// Bounds of the part.
const (
	modelsTold   = 60 * time.Second
	modelsMemory = 150_000_000
	modelsWrites = int(busiest/time.Second) + 1
)

// modelsGroup is the ModelCacheNodeGroup of all launchers of the part.
const (
	modelsGroup = "bench"
	modelsPath  = "/var/lib/hotseat/models"
	modelsEach  = 400 * time.Millisecond // how long the fetch of one takes
)

// models has a thousand launchers fetch a hundred models, one after the other, and sees
// when the controller tells that all are there, how often it writes, and what memory it
// takes when it has nothing to do any more.
func (b *bench) models() (rows []figures.Row, err error) {
	nodes, count := b.n(mostNodes), 100
	p, err := b.newPlayed("models", nodes, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	p.group = modelsGroup
	caches, err := p.caches(count)
	if err != nil {
		return nil, err
	}
	waiting := p.fetching(caches, time.Now().Add(24*time.Hour))
	if err := errors.Join(p.makeNodes(), p.fetch(waiting), p.startController()); err != nil {
		return nil, err
	}
	if err := p.untilModels("the launchers are heard", func(c *v1alpha1.ClusterModelCache) bool { return c.Status.Desired == int32(nodes) }); err != nil {
		return nil, err
	}
	f := p.fetching(caches, time.Now().Add(time.Second))
	if err := p.fetch(f); err != nil {
		return nil, err
	}
	err = p.profiled(30, func() error {
		return p.untilModels("all models are told of", func(c *v1alpha1.ClusterModelCache) bool { return c.Status.Ready == int32(nodes) })
	})
	if err != nil {
		return nil, err
	}
	told := max(time.Since(f.over()), 0)
	most, err := p.resident(p.controller, "VmHWM")
	if err != nil {
		return nil, err
	}
	p.rest(settle)
	full, err := p.resident(p.controller, "VmRSS")
	if err != nil {
		return nil, err
	}
	writes, err := readWrites(p.AuditLog())
	if err != nil {
		return nil, err
	}
	often := mostWrites(writes)
	if err := errors.Join(p.profile("heap?gc=1"), p.profile("goroutine")); err != nil {
		return nil, err
	}
	what := fmt.Sprintf("%d launchers fetch %d models one after the other", nodes, count)
	return []figures.Row{
		{
			Figure: what + ": the last is there → each ClusterModelCache tells of all nodes (s)", Samples: 1,
			Ours: fmt.Sprintf("%.1f", told.Seconds()), Target: fmt.Sprintf("≤ %.0f s", modelsTold.Seconds()), Met: told <= modelsTold,
		},
		{
			Figure: "the same: writes to the status of one ClusterModelCache, in the ten seconds with most: one a second", Samples: count,
			Ours: strconv.Itoa(often), Target: fmt.Sprintf("≤ %d", modelsWrites), Met: often <= modelsWrites,
		},
		{
			Figure: fmt.Sprintf("the same: resident memory of the controller after two minutes of rest (%s at most before)", mb(most)), Samples: 1,
			Ours: mb(full), Target: "≤ " + mb(modelsMemory), Met: full <= modelsMemory,
		},
	}, nil
}

// caches makes the objects, before a controller runs that would have launchers fetch.
func (p *played) caches(count int) (all []*v1alpha1.ClusterModelCache, err error) {
	group := &v1alpha1.ModelCacheNodeGroup{ObjectMeta: metav1.ObjectMeta{Name: modelsGroup}, Spec: v1alpha1.ModelCacheNodeGroupSpec{Path: modelsPath, Namespaces: []string{namespace}}}
	if err := p.api.Create(p.ctx, group); err != nil {
		return nil, fmt.Errorf("cannot make the node group: %w", err)
	}
	for n := range count {
		all = append(all, &v1alpha1.ClusterModelCache{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("model-%d", n)},
			Spec:       v1alpha1.ClusterModelCacheSpec{Source: v1alpha1.ModelSource{URI: fmt.Sprintf("hf://organisation/model-%d", n)}, NodeGroups: []string{modelsGroup}},
		})
	}
	err = sideBySide(p.ctx, all, func(ctx context.Context, c *v1alpha1.ClusterModelCache) error { return p.api.Create(ctx, c) })
	if err != nil {
		return nil, fmt.Errorf("cannot make the model caches: %w", err)
	}
	return all, nil
}

// fetching is a fetch of the models of the caches, for these.
func (p *played) fetching(caches []*v1alpha1.ClusterModelCache, begins time.Time) *fetching {
	f := &fetching{Begins: begins, Each: modelsEach, Nodes: p.nodes}
	for n, c := range caches {
		id := fmt.Sprintf("%032x", n)
		f.Models = append(f.Models, launcherapi.Model{
			ID: id, URI: c.Spec.Source.URI, Ref: "main", Revision: fmt.Sprintf("%040x", n), State: launcherapi.ModelReady, Bytes: 15_000_000_000, Files: 12,
			Path: modelsPath + "/models/" + id + "/files", Refs: []string{"main"}, PageCache: launcherapi.PageCacheNone,
			WantedBy: []string{"ClusterModelCache/" + c.Name + "/" + string(c.UID)},
		})
	}
	return f
}

// fetch has the stand-in's launchers fetch.
func (p *played) fetch(f *fetching) error {
	body, err := json.Marshal(f)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(p.ctx, http.MethodPost, "http://"+notesAddress+"/models", bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return fmt.Errorf("cannot have the stand-in fetch models: %w", err)
	}
	return resp.Body.Close()
}

// untilModels waits until all caches are so.
func (p *played) untilModels(what string, so func(*v1alpha1.ClusterModelCache) bool) error {
	return p.poll(200*time.Millisecond, func(ctx context.Context) (lacks string, err error) {
		var list v1alpha1.ClusterModelCacheList
		if err := p.api.List(ctx, &list); err != nil {
			return "", fmt.Errorf("waited in vain that %s: %w", what, err)
		}
		for i := range list.Items {
			if c := &list.Items[i]; !so(c) {
				lacks = fmt.Sprintf("%s: %s: %+v", what, c.Name, c.Status.Conditions)
			}
		}
		return lacks, nil
	})
}

// busiest is the time in which writes are counted. As many seconds and one fit into it of
// writes of which each comes a second after the one before.
const busiest = 10 * time.Second

// mostWrites is how often the controller wrote to the status of a ClusterModelCache: of
// the one, and in the ten seconds, in which it did most often.
func mostWrites(writes []write) (most int) {
	times := map[string][]time.Time{}
	for _, w := range writes {
		if w.byController() && w.Object.Resource == "clustermodelcaches" && w.Object.Subresource == "status" {
			times[w.Object.Name] = append(times[w.Object.Name], w.Received)
		}
	}
	for _, all := range times {
		slices.SortFunc(all, time.Time.Compare)
		first := 0
		for last := range all {
			for all[last].Sub(all[first]) > busiest {
				first++
			}
			most = max(most, last-first+1)
		}
	}
	return most
}

// grouped makes a launcher one of the part's group.
func grouped(pod *corev1.Pod, group string) {
	if group == "" {
		return
	}
	pod.Labels[podmeta.LabelModelNodeGroup] = group
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: podmeta.VolumeModels, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: modelsPath}}})
}
