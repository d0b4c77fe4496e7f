package simulation

import (
	"fmt"
	"time"

	program "hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// raceForSleeper has one requester come soon after another, where one instance sleeps for
// both. Of half of the races the API server loses answers.
func (w *world) raceForSleeper(e event) {
	n := e.arg / 8 % uint64(len(w.sources))
	if !w.putSleeper(n, e.arg/64) {
		return
	}
	w.after(longestLag+time.Second, func() { // the controllers have heard of it
		if before := w.api.flaky; e.arg%2 == 0 && before == 0 {
			w.api.flaky = 60
			w.after(time.Second, func() { w.api.flaky = before })
		}
		plain := n + 7*uint64(len(w.sources)) // see putRequester
		w.putRequester(plain)
		w.after(time.Millisecond<<(e.arg/64%13), func() { w.putRequester(plain) })
	})
}

// putSleeper makes an instance that sleeps on a GPU that nobody has, of the model of a
// configuration.
func (w *world) putSleeper(n, arg uint64) bool {
	name, _ := pick(sorted(w.api.objects[nodes]), arg)
	l := w.server(name, requester("who was here before", fmt.Sprint("config-", n)))
	if l == nil {
		return false
	}
	gpu, ok := pick(w.spare(name), arg/4)
	if taken, _ := w.truth.is(fact{"taken", gpu, "", ""}, 0); !ok || taken == yes {
		return false
	}
	config := fmt.Sprint("config-", n)
	_, id := w.instanceOf(l, requester("who was here before", config), w.api.objects[configs][config].(*v1alpha1.InferenceServerConfig), gpu)
	used := time.Now()
	l.instances[id] = launcherapi.Instance{InstanceID: id, State: string(program.Sleeping), GPUUUIDs: []string{gpu}, LastUsedAt: &used}
	w.note("%s sleeps on %s", id, l.name)
	w.lease(l, id, w.sources[n].uri)
	l.changed()
	return true
}
