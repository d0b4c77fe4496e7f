package demand

import (
	"net"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/spec/demandapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

// Pods has a Listener listen to the Pods of the front door. It is safe for concurrent use.
type Pods struct {
	Listener *Listener
	Own      types.UID // of the Pod that listens, which does not hear itself; empty: it is none of them
	Plain    bool      // the front doors speak HTTP, and anybody may say that they are one

	mu   sync.Mutex
	urls map[string]string // by the UID
	uids map[types.NamespacedName]string
}

// Set notes a Pod.
func (p *Pods) Set(pod *corev1.Pod) {
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	if pod.Labels[podmeta.LabelComponent] != podmeta.ComponentFrontDoor || pod.UID == p.Own || pod.Status.PodIP == "" || podmeta.Finished(pod) {
		p.Delete(name)
		return
	}
	scheme := "https"
	if p.Plain {
		scheme = "http"
	}
	p.change(func() {
		p.forget(name)
		p.uids[name] = string(pod.UID)
		p.urls[string(pod.UID)] = scheme + "://" + net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(podmeta.PortDemand))) + demandapi.Path
	})
}

// Delete forgets a Pod.
func (p *Pods) Delete(name types.NamespacedName) { p.change(func() { p.forget(name) }) }

func (p *Pods) forget(name types.NamespacedName) {
	delete(p.urls, p.uids[name])
	delete(p.uids, name)
}

func (p *Pods) change(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.urls == nil {
		p.urls, p.uids = map[string]string{}, map[types.NamespacedName]string{}
	}
	change()
	p.Listener.Listen(p.urls)
}
