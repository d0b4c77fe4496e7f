package endpoints

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// book is what this process knows: what binding says of requesters, and to whom slices lead.
type book struct {
	mu    sync.Mutex
	words map[types.UID]word
	// leads are the requesters, with their nodes, to which the slices of a Service lead, or may
	// lead while a write is under way. A Service without an entry has not been read yet.
	leads map[client.ObjectKey]map[types.UID]string
	// left is since when no slice leads to a requester any more.
	left map[types.UID]time.Time
}

func newBook() *book {
	return &book{words: map[types.UID]word{}, leads: map[client.ObjectKey]map[types.UID]string{}, left: map[types.UID]time.Time{}}
}

// say takes in binding's word, and reports whether that is another one.
func (b *book) say(pod *corev1.Pod, serves, ready bool, now time.Time) (changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w, ok := b.words[pod.UID]; ok && w.serves == serves {
		return false
	}
	w := word{serves: serves, since: now}
	w.hears(ready)
	b.words[pod.UID] = w
	return true
}

func (b *book) forget(requester types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.words, requester)
	delete(b.left, requester)
}

// hear takes in whether the kubelet says that a requester is ready, and returns the word on it.
func (b *book) hear(requester types.UID, ready bool) (w word, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w, ok = b.words[requester]; ok {
		w.hears(ready)
		b.words[requester] = w
	}
	return w, ok
}

// mayLead notes to whom slices of a Service may lead in addition, before they are written.
func (b *book) mayLead(service client.ObjectKey, to map[types.UID]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leads[service] == nil {
		b.leads[service] = map[types.UID]string{}
	}
	for uid, node := range to {
		b.leads[service][uid] = node
	}
}

// doLead notes to whom the slices of a Service lead, as the API server has them. It returns
// the nodes of the requesters to which no slice leads any more. gone: nothing is left of the
// Service.
func (b *book) doLead(service client.ObjectKey, to map[types.UID]string, gone bool, now time.Time) (nodes []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.leads[service]
	b.leads[service] = to
	if gone {
		delete(b.leads, service)
	}
	for uid, node := range before {
		if !b.leadsTo(uid) {
			b.left[uid] = now
			nodes = append(nodes, node)
		}
	}
	for uid, since := range b.left {
		if now.Sub(since) > settled {
			delete(b.left, uid)
		}
	}
	return nodes
}

// leadsTo reports whether slices of any Service lead to a requester.
func (b *book) leadsTo(requester types.UID) bool {
	for _, to := range b.leads {
		if _, leads := to[requester]; leads {
			return true
		}
	}
	return false
}
