package launcherpool

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// refusalCounts is how long a launcher that could not be created counts in the status of its
// LauncherConfig. While a requester waits for the launcher, the controller tries again sooner.
const refusalCounts = 30 * time.Second

// place is a node where launchers of a LauncherConfig are created.
type place struct {
	config client.ObjectKey
	node   string
}

// refusal is why a launcher could not be created.
type refusal struct {
	why string
	at  time.Time
}

// recordCreation records whether a launcher could be created on a node, as where a quota keeps its
// Pod out. It requests a reconciliation when the status of the LauncherConfig changes by that.
func (p *Pool) recordCreation(config client.ObjectKey, node string, err error) {
	why := ""
	if err != nil && !apierrors.IsAlreadyExists(err) {
		why = fmt.Sprintf("cannot create a launcher on node %s: %v", node, err)
	}
	at := place{config, node}
	p.mu.Lock()
	before, _ := p.firstRefusal(config)
	if why == "" {
		delete(p.refusals, at)
	} else {
		p.refusals[at] = refusal{why, p.opts.Now()}
	}
	now, _ := p.firstRefusal(config)
	p.mu.Unlock()
	if now != before && p.opts.Again != nil {
		p.opts.Again(config)
	}
}

// refused returns why a launcher of a LauncherConfig could not be created, and how long that counts
// still; empty: nothing is known.
func (p *Pool) refused(config client.ObjectKey) (why string, left time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.firstRefusal(config)
}

// firstRefusal returns the refusal that counts for a LauncherConfig: of several nodes, that of the
// first by name. It forgets those that do not count any more. The caller holds the lock.
func (p *Pool) firstRefusal(config client.ObjectKey) (why string, left time.Duration) {
	first := ""
	for at, last := range p.refusals {
		counts := refusalCounts - time.Since(last.at)
		switch {
		case at.config != config:
		case counts <= 0:
			delete(p.refusals, at)
		case why == "" || at.node < first:
			first, why, left = at.node, last.why, counts
		}
	}
	return why, left
}
