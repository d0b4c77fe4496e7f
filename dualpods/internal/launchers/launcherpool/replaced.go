package launcherpool

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// replacements are the launchers that this process has replaced or removed. A process that is started
// later does not know them: in mode OnDemand, the next requester has the launcher made.
type replacements struct {
	mu         sync.Mutex
	deleted    map[types.UID]client.ObjectKey // Pods that the cache may show still, with their LauncherConfig
	successors map[place]bool                 // where a launcher of mode OnDemand is to be created
	began      time.Time                      // when this process first looked
}

func newReplacements() *replacements {
	return &replacements{deleted: map[types.UID]client.ObjectKey{}, successors: map[place]bool{}}
}

// add records that a launcher was deleted, and whether its successor is to be created.
func (r *replacements) add(pod *corev1.Pod, at place, create bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deleted[pod.UID] = at.config
	if create {
		r.successors[at] = true
	}
}

// has reports whether a launcher was deleted.
func (r *replacements) has(pod *corev1.Pod) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, is := r.deleted[pod.UID]
	return is
}

// awaiting returns the nodes where launchers of a LauncherConfig are to be created, sorted.
func (r *replacements) awaiting(config client.ObjectKey) (nodes []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at := range r.successors {
		if at.config == config {
			nodes = append(nodes, at.node)
		}
	}
	slices.SortFunc(nodes, strings.Compare)
	return nodes
}

// forget records that no launcher is to be created there any more.
func (r *replacements) forget(at place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.successors, at)
}

// keep forgets the deleted launchers of a LauncherConfig that are not among these.
func (r *replacements) keep(config client.ObjectKey, launchers []*corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.deleted, func(uid types.UID, of client.ObjectKey) bool {
		return of == config && !slices.ContainsFunc(launchers, func(pod *corev1.Pod) bool { return pod.UID == uid })
	})
}

// forgetConfig forgets a LauncherConfig.
func (r *replacements) forgetConfig(config client.ObjectKey) {
	r.keep(config, nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.successors, func(at place, _ bool) bool { return at.config == config })
}

// listeningSince returns since when this process has listened to a launcher, which it lost, or
// began to listen to, at that time; zero: it is about to.
func (r *replacements) listeningSince(lost time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.began.IsZero() {
		r.began = time.Now()
	}
	if lost.After(r.began) {
		return lost
	}
	return r.began
}
