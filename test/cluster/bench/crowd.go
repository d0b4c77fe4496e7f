package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"hotseat.dev/hotseat/spec/podmeta"
)

// crowd counts the played Pods, by an informer.
type crowd struct {
	stop context.CancelFunc
	over sync.WaitGroup

	mu         sync.Mutex
	changed    chan struct{}
	all        map[types.UID]standing
	running    int // of all Pods but agents
	agents     int // that run
	requesters int // of those that are there, being deleted or not
	served     int // requesters of which the controller says so
	placed     int // requesters from which it took the scheduling gate
	gated      int // requesters that have the gate of gangs
	onNodes    int // requesters that have nodes
}

// standing is what is known of one Pod.
type standing struct{ running, agent, requester, served, placed, gated, onNode bool }

func watchCrowd(ctx context.Context, config *rest.Config) (*crowd, error) {
	pods, err := cache.New(config, cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}, system: {}}, DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		return nil, fmt.Errorf("cannot watch Pods: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	c := &crowd{stop: stop, changed: make(chan struct{}), all: map[types.UID]standing{}}
	informer, err := pods.GetInformer(ctx, &corev1.Pod{}, cache.BlockUntilSynced(false))
	if err == nil {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { c.take(o, false) },
			UpdateFunc: func(_, o any) { c.take(o, false) },
			DeleteFunc: func(o any) { c.take(o, true) },
		})
	}
	if err != nil {
		stop()
		return nil, fmt.Errorf("cannot watch Pods: %w", err)
	}
	c.over.Go(func() { _ = pods.Start(ctx) }) // it ends with ctx alone
	return c, nil
}

func (c *crowd) close() {
	c.stop()
	c.over.Wait()
}

func (c *crowd) tell() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *crowd) take(o any, deleted bool) {
	if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	var status podmeta.Status
	_ = json.Unmarshal([]byte(pod.Annotations[podmeta.AnnotationStatus]), &status) // none: it says nothing yet
	runs, agent := pod.Status.Phase == corev1.PodRunning, podmeta.IsAgent(pod)
	now := standing{running: runs && !agent, agent: runs && agent, requester: podmeta.IsRequester(pod), served: status.State == "Serving" || podmeta.GateOpen(pod)}
	_, now.placed = podmeta.ReadPlacement(pod)
	now.gated, now.onNode = podmeta.AwaitsGang(pod), now.requester && pod.Spec.NodeName != ""
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count(c.all[pod.UID], -1)
	if deleted {
		delete(c.all, pod.UID)
	} else {
		c.all[pod.UID] = now
		c.count(now, 1)
	}
	c.tell()
}

func (c *crowd) count(s standing, by int) {
	if s.running {
		c.running += by
	}
	if s.agent {
		c.agents += by
	}
	if s.requester {
		c.requesters += by
	}
	if s.served {
		c.served += by
	}
	if s.placed {
		c.placed += by
	}
	if s.gated {
		c.gated += by
	}
	if s.onNode {
		c.onNodes += by
	}
}

// until waits until so is true; it is called with the lock held.
func (c *crowd) until(ctx context.Context, so func(*crowd) bool) error {
	for {
		c.mu.Lock()
		done, changed := so(c), c.changed
		c.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *crowd) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("%d agents and %d other Pods run, %d are requesters, %d of these are served and %d placed, %d have the gate of gangs and %d nodes", c.agents, c.running, c.requesters, c.served, c.placed, c.gated, c.onNodes)
}

// sideBySide does something for each of some objects, sixteen at a time.
func sideBySide[T metav1.Object](ctx context.Context, all []T, do func(context.Context, T) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	work := make(chan T)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for o := range work {
				if err := do(ctx, o); err != nil {
					fail(fmt.Errorf("%s: %w", o.GetName(), err))
				}
			}
		})
	}
	for _, o := range all {
		select {
		case work <- o:
		case <-ctx.Done():
		}
	}
	close(work)
	workers.Wait()
	return context.Cause(ctx)
}
