package binding

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/spec/podmeta"
)

// Every launcher of the simulated world has a model store, with all models in it
// until a script takes some away. Each model has a ClusterModelCache: that of the first
// says onMissing: Fail, all others Wait.

const simKeeper = "kept"

// keeper is what a controller process reads of ClusterModelCaches.
func (s *sim) keeper(_ context.Context, name modelref.Name, _ string) (*dualpods.ModelKeeper, []podmeta.Problem) {
	return &dualpods.ModelKeeper{Name: simKeeper, Waits: waitsFor(name), Node: "its node fetches it"}, nil
}

func waitsFor(name modelref.Name) bool { return name.Model != "org/"+modelName(0) }

// simModelEvents are those of models that come and go.
var simModelEvents = []string{"model goes", "model goes", "models go", "model comes", "models unheard"}

// modelsComeAndGo has models come and go in some scripts.
func (s *sim) modelsComeAndGo(script []simEvent) []simEvent {
	if !s.chance("models come and go", 12) {
		return script
	}
	last := script[len(script)-1].at
	for range 2 + s.draw("model events", 4) {
		script = append(script, simEvent{s.between("model at", 0, last+time.Second), simModelEvents[s.draw("model event", uint64(len(simModelEvents)))], s.draw("model arg", 1<<20)})
	}
	return inOrder(script)
}

// happenToModels has the models of nodes come and go.
func (s *sim) happenToModels(e simEvent, long time.Duration) {
	if e.what == "models unheard" { // with the next streams, as where launchers are asked for them late
		s.lateModels += 1 + int(e.arg%3)
		return
	}
	for _, node := range sortedKeys(s.api.nodesEver) {
		for model := range simModels {
			one := e.what == "models go" || e.arg/8%simModels == uint64(model)
			if !one || e.what == "model goes" && e.arg%8 > 3 && node != fmt.Sprintf("node-%d", e.arg%8%simNodes) {
				continue
			}
			s.hasModel(node, model, e.what == "model comes")
			if e.what != "model comes" && e.arg/64%3 > 0 { // else for long
				s.after(long, func() { s.hasModel(node, model, true) })
			}
		}
	}
}

// hasModel has the launchers of a node have a model whole, or not.
func (s *sim) hasModel(node string, model int, has bool) {
	name := "org/" + modelName(model)
	if s.lacks[node] == nil {
		s.lacks[node] = map[string]bool{}
	}
	if s.lacks[node][name] == !has {
		return
	}
	s.lacks[node][name] = !has
	s.note("node %s has %s: %v", node, name, has)
	for _, key := range sortedKeys(s.launchers) {
		if l := s.launchers[key]; l.node == node {
			l.tellModels(s.between("models", 100*time.Microsecond, 20*time.Millisecond))
		}
	}
}

// models are what a launcher says of its store.
func (l *simLauncher) models() map[string]nodeview.Model {
	all := map[string]nodeview.Model{}
	for model := range simModels {
		m := launcherapi.Model{ID: modelName(model), URI: modelref.HubScheme + "org/" + modelName(model), Refs: []string{modelref.MainBranch}, State: launcherapi.ModelReady}
		if l.s.lacks[l.node]["org/"+modelName(model)] {
			m.State = launcherapi.ModelDownloading
		}
		all[m.ID] = nodeview.NewModel(m)
	}
	return all
}

// tellModels brings what a launcher has to the stream that is open.
func (l *simLauncher) tellModels(d time.Duration) {
	if l.s.inc == nil {
		return
	}
	v := l.s.inc.views[l.key]
	if v == nil || !v.Connected || !l.reachable() {
		return // it is asked for them when the stream is up again
	}
	inc, stream := l.s.inc, v.stream
	l.s.after(d, func() {
		if v.stream == stream && l.reachable() {
			v.Models, v.WhyNoModels, v.modelsAt = l.models(), "", time.Now()
			inc.changed(l.key)
		}
	})
}

// hears is what a stream that is up tells of models, at once or later.
func (v *simView) hears(l *simLauncher) {
	if v.modelsAt = time.Now(); l.s.lateModels == 0 {
		v.Models = l.models()
		return
	}
	l.s.lateModels--
	v.WhyNoModels, v.ModelsLost = "it has not answered yet", time.Now()
	l.tellModels(l.s.between("late models", 10*time.Millisecond, 2*decide.Patience))
}

// refusesWithout says why a swap is refused that is to make an instance.
func (l *simLauncher) refusesWithout(in *launcherapi.SwapIn) error {
	if in.ModelCache != launcherapi.ModelCacheRequire {
		l.s.violated("an instance of %v is asked for that may find its model by itself", in.Args)
	}
	if l.s.lacks[l.node][in.Args[0]] {
		return launcher.Invalidf("body.args", "cannot serve the model %s from the store", in.Args[0])
	}
	return nil
}

// recordedWithout looks at a record that is new: who waits for a model is not bound
// before that is whole, as far as its launcher has said.
func (s *sim) recordedWithout(l *simLauncher, b podmeta.Binding, pod *corev1.Pod) {
	form, problems := s.asks(pod)
	v := s.viewOf(l)
	if len(problems) > 0 || v == nil || !v.Connected || time.Since(v.since) < justNow || time.Since(v.modelsAt) < justNow || time.Since(v.told[b.Instance]) < justNow {
		return
	}
	name := modelref.FromArgs(form.Args)
	there, known := v.Instances[b.Instance]
	if waitsFor(name) && !v.Has(name) && (!known || launcher.State(there.State).Ended()) {
		s.violated("requester %s is bound, and its launcher does not have its model whole", b.Name)
	}
}

// toldMissing looks at a requester that is told that its model is missing.
func (s *sim) toldMissing(inc *incarnation, pod *corev1.Pod) {
	form, problems := s.asks(pod)
	l := s.launcherFor(pod.Spec.NodeName, form)
	if len(problems) > 0 || l == nil {
		return
	}
	v := inc.views[string(l.UID)]
	switch name := modelref.FromArgs(form.Args); {
	case v == nil || !v.Connected || time.Since(v.modelsAt) < justNow:
	case !waitsFor(name):
		s.violated("requester %s is told to wait for its model, and its cache says onMissing: Fail", pod.Name)
	case v.Models == nil && time.Since(v.ModelsLost) < decide.Patience/2:
		s.violated("requester %s is told that its model is missing, and its launcher was not asked for long", pod.Name)
	case v.Has(name):
		s.violated("requester %s is told that its model is missing, and its launcher has it whole", pod.Name)
	}
}

// waitsForModel says that a requester that is not bound has to wait for its model on
// the launcher that would serve it.
func (s *sim) waitsForModel(l *simLauncher, args []string, instance string) bool {
	i := l.all[instance]
	there := i != nil && !launcher.State(i.State).Ended() && i.State != string(launcher.Stopping)
	name := modelref.FromArgs(args)
	return !there && waitsFor(name) && s.lacks[l.node][name.Model]
}

func TestARequesterGoesOnOnceItsModelIsThere(t *testing.T) {
	script := []simEvent{
		{at: time.Second, what: "model goes", arg: 2 << 3}, // everywhere, for long
		{at: 3 * time.Second, what: "create", arg: 2},
	}
	for seed := range uint64(12) {
		out := simulate(t, seed, script, decide.Tables, false)
		assert.Empty(t, out.wrong, "seed %d", seed)
		assert.True(t, out.decided["model missing"], "seed %d", seed)
		assert.Equal(t, 1, out.served, "seed %d: it comes when all is mended", seed)
	}
}
