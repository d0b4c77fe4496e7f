package inference

import (
	"slices"
	"sync"
	"time"
)

// Transition is a way in which a model becomes awake.
type Transition string

// The transitions of models.
const (
	Start Transition = "start" // of an engine that did not run
	Wake  Transition = "wake"  // on GPUs that are free
	Swap  Transition = "swap"  // in the place of another model
)

// Predictor tells from a model's past transitions how long the next one takes. Its zero
// value is ready. It is safe for concurrent use.
type Predictor struct {
	mu   sync.Mutex
	past map[string]map[Transition][]time.Duration
}

// remembered is how many transitions of a kind count. A model that has changed is
// predicted well after half of them.
const remembered = 5

// Observe records how long a transition took. Only those that succeeded count.
func (p *Predictor) Observe(model string, t Transition, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.past == nil {
		p.past = map[string]map[Transition][]time.Duration{}
	}
	if p.past[model] == nil {
		p.past[model] = map[Transition][]time.Duration{}
	}
	past := append(p.past[model][t], took)
	p.past[model][t] = past[max(0, len(past)-remembered):]
}

// Forget drops what is known of a model that is no longer served, or has changed.
func (p *Predictor) Forget(model string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.past, model)
}

// Remaining predicts how much longer a transition takes that began some time ago. It
// reports false if the model has had none of the kind.
//
// The median of the last ones is within a factor of two of the next one whenever these
// differ by no more than that among themselves. A transition that has outlasted some of them is
// predicted from the others; if it has outlasted all, it is taken to be half done.
func (p *Predictor) Remaining(model string, t Transition, elapsed time.Duration) (time.Duration, bool) {
	p.mu.Lock()
	past := slices.Clone(p.past[model][t])
	p.mu.Unlock()
	if len(past) == 0 {
		return 0, false
	}
	slices.Sort(past)
	past = slices.DeleteFunc(past, func(took time.Duration) bool { return took <= elapsed })
	if len(past) == 0 {
		return elapsed, true
	}
	return past[(len(past)-1)/2] - elapsed, true
}

// RetryAfter is what to tell a client that cannot wait: the time that remains, in whole
// seconds and at least one; or unknown for a model's first transition.
func (p *Predictor) RetryAfter(model string, t Transition, elapsed, unknown time.Duration) time.Duration {
	remaining, ok := p.Remaining(model, t, elapsed)
	if !ok {
		return unknown
	}
	return max(time.Second, (remaining + time.Second - 1).Truncate(time.Second))
}
