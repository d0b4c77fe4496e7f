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

// refusal is why a launcher could not be created.
type refusal struct {
	why string
	at  time.Time
}

// recordCreation records whether a launcher could be created on a node, as where a quota keeps its
// Pod out. It requests a reconciliation when that changes.
func (p *Pool) recordCreation(config client.ObjectKey, node string, err error) {
	why := ""
	if err != nil && !apierrors.IsAlreadyExists(err) {
		why = fmt.Sprintf("cannot create a launcher on node %s: %v", node, err)
	}
	p.mu.Lock()
	before, now := p.refusals[config], refusal{why, time.Now()}
	if why == "" {
		delete(p.refusals, config)
	} else {
		p.refusals[config] = now
	}
	p.mu.Unlock()
	if why != before.why && p.opts.Again != nil {
		p.opts.Again(config)
	}
}

// sooner returns the shorter of two pauses; 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// refused returns why a launcher of a LauncherConfig could not be created, and how long that counts
// still; empty: nothing is known.
func (p *Pool) refused(config client.ObjectKey) (why string, left time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, ok := p.refusals[config]
	if !ok {
		return "", 0
	}
	if left = refusalCounts - time.Since(last.at); left <= 0 {
		delete(p.refusals, config)
		return "", 0
	}
	return last.why, left
}
