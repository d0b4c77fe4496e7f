package simulation

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// A launcher that is started again may have another configuration: other budgets.

// reconfigure has the launcher have other budgets when it is started again.
func (w *world) reconfigure(s step) { w.next = &s.budget }

// configure gives the launcher that starts its budgets.
func (w *world) configure() {
	if w.next != nil {
		w.budget, w.next = *w.next, nil
		w.budgets = append(w.budgets, w.budget)
	}
}

// everBudgeted says whether some launcher had such a budget.
func (w *world) everBudgeted(has func(launcherapi.Budget) bool) bool {
	return slices.ContainsFunc(w.budgets, has)
}

// checkBudget checks that no more instances sleep on a GPU than its budget allows, as far as
// there is one that may be evicted: the newest sleeper never is.
func (w *world) checkBudget(all []launcherapi.Instance) {
	if w.budget.MaxSleepersPerGPU == 0 {
		return
	}
	sleepers := map[string][]launcherapi.Instance{}
	var newest launcherapi.Instance
	for _, i := range all {
		if i.State != string(launcher.Sleeping) || i.Engine == restartedName {
			continue
		}
		for _, gpu := range i.GPUUUIDs {
			sleepers[gpu] = append(sleepers[gpu], i)
		}
		if !i.StateSince.Before(newest.StateSince) {
			newest = i
		}
	}
	for gpu, on := range sleepers {
		mayGo := func(i launcherapi.Instance) bool {
			return i.Annotations[launcherapi.AnnotationPinned] != "true" && i.InstanceID != newest.InstanceID
		}
		if len(on) > w.budget.MaxSleepersPerGPU && slices.ContainsFunc(on, mayGo) {
			w.m.wrong(budgetsHold, "%d instances sleep on %s, and its budget is %d", len(on), gpu, w.budget.MaxSleepersPerGPU)
		}
	}
}

// drawConfiguration has the launcher of some scripts be killed, and be started again with other
// budgets. It draws by itself, so that the steps of a seed stay as they are.
func (d *drawing) drawConfiguration(steps []step) []step {
	if len(steps) == 0 || d.n(6) > 0 {
		return steps
	}
	n := d.n(len(steps))
	other := step{at: steps[n].at, what: "other configuration", budget: d.budget()}
	return slices.Insert(steps, n+1, other, step{at: steps[n].at, what: "kill", limit: d.between(time.Millisecond, 3*time.Second)})
}

func TestBudgetThatIsLoweredCountsFromTheNextStart(t *testing.T) {
	lowered := script{end: 40 * time.Second, steps: []step{
		{at: time.Second, what: "create", request: "first", id: "a", gpus: []string{"g1"}, share: "0.3"},
		{at: 2 * time.Second, what: "create", request: "second", id: "b", gpus: []string{"g1"}, share: "0.3"},
		{at: 12 * time.Second, what: "sleep", id: "a"},
		{at: 14 * time.Second, what: "sleep", id: "b"},
		{at: 20 * time.Second, what: "other configuration", budget: launcherapi.Budget{MaxSleepersPerGPU: 1}},
		{at: 20 * time.Second, what: "kill", limit: time.Second},
	}}
	out := playWatched(t, lowered, true)
	assert.Empty(t, out.wrong)
	var left []string
	for _, i := range out.left {
		left = append(left, i.InstanceID)
	}
	assert.Equal(t, []string{"b"}, left, "the older sleeper is evicted")
}
