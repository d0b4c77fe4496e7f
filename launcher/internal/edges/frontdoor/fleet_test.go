package frontdoor

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/inference"
	"hotseat.dev/hotseat/launcher/internal/core/eventlog"
	"hotseat.dev/hotseat/launcher/internal/core/scheduler"
	"hotseat.dev/hotseat/launcher/internal/edges/catalogue"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// fakeInstances are instances whose verbs succeed at once. It records the calls.
type fakeInstances struct {
	mu       sync.Mutex
	all      []launcherapi.Instance
	calls    []string
	planFail error
	needs    int                     // GPUs of each model
	sleepers []launcherapi.GPUHolder // on the first GPU
}

func (f *fakeInstances) List() ([]launcherapi.Instance, uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.all), 1
}

func (f *fakeInstances) note(call string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call)
}

func (f *fakeInstances) Create(c launcher.CreateRequest) (launcherapi.Instance, error) {
	f.note("create " + c.ID)
	return launcherapi.Instance{InstanceID: c.ID}, nil
}

func (f *fakeInstances) Wake(id string, _ launcher.VerbRequest) (launcherapi.Instance, error) {
	f.note("wake " + id)
	return launcherapi.Instance{}, nil
}

func (f *fakeInstances) Sleep(id string, _ launcher.VerbRequest) (launcherapi.Instance, error) {
	f.note("sleep " + id)
	return launcherapi.Instance{}, nil
}

func (f *fakeInstances) Delete(_ context.Context, id string) (launcherapi.Instance, error) {
	f.note("delete " + id)
	return launcherapi.Instance{}, nil
}

func (f *fakeInstances) AwaitState(context.Context, string, launcher.State) (launcherapi.Instance, error) {
	return launcherapi.Instance{}, nil
}

func (f *fakeInstances) Plan(launcherapi.InstanceSpec) (gpus int, bytes uint64, err error) {
	return max(1, f.needs), 7, f.planFail
}

func (f *fakeInstances) Needs() map[string]map[string]uint64 { return nil }

func (f *fakeInstances) GPUs() launcherapi.GPUList {
	f.mu.Lock()
	defer f.mu.Unlock()
	return launcherapi.GPUList{GPUs: []launcherapi.GPU{{UUID: "GPU-0", MemoryTotalBytes: 80, Sleepers: f.sleepers}, {UUID: "GPU-1", MemoryTotalBytes: 80}}}
}

// observed records what is observed.
type observed struct {
	mu          sync.Mutex
	transitions []string
}

func (*observed) FrontDoorRequest(string)             {}
func (*observed) FrontDoorWait(string, time.Duration) {}
func (o *observed) FrontDoorTransition(kind, outcome string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.transitions = append(o.transitions, kind+" "+outcome)
}

// loaded reads a catalogue from the text of a configuration file.
func loaded(t *testing.T, text string) *catalogue.Catalogue {
	t.Helper()
	file := filepath.Join(t.TempDir(), "launcher.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	c, err := catalogue.Load(file, catalogue.Machine{Engines: []string{"vllm"}, Env: os.LookupEnv})
	require.NoError(t, err)
	return c
}

const catalogueText = `models:
- {name: a, aliases: [alias], options: a, priority: 3, sleep_after: {2: 1m}, stop_after: 1h}
- {name: b, options: b, restart: never}
- {name: c, options: c, preload: true, pinned: true}
selectors:
- {name: near, strategy: nearest, models: [c, b, a]}
- {name: spill, strategy: spillover, n: 2, models: [a, b]}
profiles:
- {name: night, pins: {near: b}}
`

// newDoor returns a front door that has not begun to serve.
func newDoor(t *testing.T, text string, instances ...launcherapi.Instance) (*FrontDoor, *fakeInstances) {
	t.Helper()
	fake := &fakeInstances{all: instances}
	offers, err := NewOffers(loaded(t, text), fake)
	require.NoError(t, err)
	return New(Options{
		Instances: fake, Offers: offers, Observer: &observed{}, MaxWaiting: 5, Feed: eventlog.New(1, 0), Handlers: func(string) http.Handler { return nil },
		Hold: time.Minute, Start: time.Hour, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}), fake
}

// instanceOf returns the instance of a model of the catalogue.
func instanceOf(f *FrontDoor, model string, state launcher.State) launcherapi.Instance {
	o := f.fleet.offers.Load().byName(model)
	return launcherapi.Instance{
		InstanceID: o.id, State: string(state), PID: 7, ServedModelNames: []string{model}, GPUUUIDs: []string{"GPU-0"}, Annotations: o.spec(nil).Annotations,
	}
}

func TestNearestModelIsTheOneThatAnswersSoonest(t *testing.T) {
	all := []catalogue.Candidate{{Model: "cold"}, {Model: "starting"}, {Model: "sleeping"}, {Model: "waking"}, {Model: "awake"}}
	states := map[string]launcher.State{"starting": launcher.Starting, "sleeping": launcher.Sleeping, "waking": launcher.Waking, "awake": launcher.Awake}
	for n := len(all); n > 0; n-- {
		assert.Equal(t, all[n-1].Model, nearest(all[:n], states).Model)
	}
	assert.Equal(t, "x", nearest([]catalogue.Candidate{{Model: "x"}, {Model: "y"}}, nil).Model, "the first one of equals")
}

func TestSpilloverFillsOneModelAfterTheOther(t *testing.T) {
	f, _ := newDoor(t, catalogueText)
	means, err := f.resolve("spill")
	require.NoError(t, err)
	var chosen []string
	for range 5 {
		c, _, err := f.enter(means)
		require.NoError(t, err)
		chosen = append(chosen, c.Model)
	}
	assert.Equal(t, []string{"a", "a", "b", "b", "a"}, chosen, "the fifth goes to the one with fewest")
}

func TestProfilePinsASelector(t *testing.T) {
	f, _ := newDoor(t, catalogueText)
	means, err := f.resolve("near")
	require.NoError(t, err)
	assert.Len(t, means.Candidates, 3)
	f.profile = "night"
	means, err = f.resolve("near")
	require.NoError(t, err)
	assert.Equal(t, "b", means.Candidates[0].Model)
	assert.Error(t, f.checkProfile("nihgt"))
}

func TestInstanceMadeByHandIsFoundByItsNameAwakeFirst(t *testing.T) {
	f, fake := newDoor(t, catalogueText)
	fake.all = []launcherapi.Instance{
		{InstanceID: "x", State: "sleeping", ServedModelNames: []string{"mine"}},
		{InstanceID: "y", State: "awake", ServedModelNames: []string{"mine", "a"}},
		{InstanceID: "m-a", State: "awake", ServedModelNames: []string{"other"}}, // without the annotation
	}
	for name, model := range map[string]string{"mine": "instance y", "other": "instance m-a", "a": "a"} {
		means, err := f.resolve(name)
		require.NoError(t, err)
		assert.Equal(t, model, means.Candidates[0].Model, name)
	}
	_, err := f.resolve("nothing")
	assert.Error(t, err)
}

func TestOffersNameEachModelThatIsRefused(t *testing.T) {
	fake := &fakeInstances{planFail: errors.New("no such option")}
	_, err := NewOffers(loaded(t, catalogueText), fake)
	require.Error(t, err)
	for _, name := range []string{"a", "b", "c"} {
		assert.ErrorContains(t, err, "model "+name+": no such option")
	}
	assert.ErrorContains(t, err, "launcher.yaml:3:22: model b", "where its command line stands")
	_, err = NewOffers(loaded(t, "models:\n- {name: a, options: a, gpus: 3}\n"), &fakeInstances{})
	assert.ErrorContains(t, err, "it needs 3 GPUs, and the launcher has 2")
}

func TestIDsDependOnTheNameAlone(t *testing.T) {
	assert.Equal(t, "m-org-a", idOf("org-a"))
	assert.Regexp(t, `^m-org-a\.[0-9a-f]{8}$`, idOf("org/a"))
	assert.Regexp(t, `^m-\.[0-9a-f]{8}$`, idOf("模型"))
	ids := map[string]bool{}
	for _, name := range []string{"org/a", "org-a", "org a", "/org-a", "模", "型", strings.Repeat("a", 200), strings.Repeat("a", 201)} {
		assert.False(t, ids[idOf(name)], name)
		ids[idOf(name)] = true
	}
}

func TestPatienceIsThatOfAStartUnlessAProcessSleeps(t *testing.T) {
	f, fake := newDoor(t, catalogueText)
	for state, want := range map[launcher.State]time.Duration{launcher.Sleeping: time.Minute, launcher.Awake: time.Minute, launcher.Starting: time.Hour, launcher.Failed: time.Hour} {
		fake.all = []launcherapi.Instance{instanceOf(f, "a", state)}
		assert.Equal(t, want, f.patience("a"), state)
	}
	fake.all[0].State, fake.all[0].PID = string(launcher.Sleeping), 0
	assert.Equal(t, time.Hour, f.patience("a"), "its process is started again")
	assert.Equal(t, time.Hour, f.patience("b"))
}

func TestFleetShowsModelsAsTheirInstancesAre(t *testing.T) {
	f, fake := newDoor(t, catalogueText)
	fake.all = []launcherapi.Instance{
		instanceOf(f, "a", launcher.Awake), instanceOf(f, "b", launcher.Failed),
		{InstanceID: "mine", State: "awake", ServedModelNames: []string{"mine"}},
	}
	models := looked(f)
	assert.Len(t, models, 4)
	assert.Equal(t, scheduler.Model{
		Name: "a", Priority: 3, Count: 1, State: launcher.Awake, On: []string{"GPU-0"}, SleepAfter: time.Minute, SleepLevel: 2, StopAfter: time.Hour,
	}, models["a"], "the catalogue binds it to no GPUs, so that it may move once it sleeps")
	assert.Empty(t, models["b"].On, "it may start anywhere")
	assert.False(t, models["b"].Preload, "restart: never")
	assert.True(t, models["c"].Preload)
	assert.True(t, models["c"].Pinned)
	assert.Equal(t, "awake", string(models["instance mine"].State))
	fake.all = []launcherapi.Instance{instanceOf(f, "a", launcher.Failed)}
	assert.True(t, looked(f)["a"].Preload, "it failed, and comes back")
	fake.all = []launcherapi.Instance{instanceOf(f, "a", launcher.Stopped)}
	assert.False(t, looked(f)["a"].Preload, "somebody has stopped it")
}

func looked(f *FrontDoor) map[string]scheduler.Model {
	_, list := f.fleet.Look()
	models := map[string]scheduler.Model{}
	for _, m := range list {
		models[m.Name] = m
	}
	return models
}

func TestReloadRetiresWhatChangedAlone(t *testing.T) {
	f, fake := newDoor(t, catalogueText)
	fake.all = []launcherapi.Instance{instanceOf(f, "a", launcher.Awake), instanceOf(f, "b", launcher.Awake), instanceOf(f, "c", launcher.Awake)}
	reload := func(text string) {
		offers, err := NewOffers(loaded(t, text), fake)
		require.NoError(t, err)
		f.Reload(offers)
	}
	reload("# Another order, another way to write the same, and policies.\nmodels:\n- {name: c, options: c}\n- {name: b, args: [b], start_method: exec, priority: 4}\n- {name: a, options: ' a '}\n")
	for name, m := range looked(f) {
		assert.False(t, m.Retired, name)
	}
	assert.Equal(t, 4, looked(f)["b"].Priority)
	reload("models:\n- {name: a, options: a}\n- {name: b, options: b --max-model-len 7}\n")
	models := looked(f)
	assert.False(t, models["a"].Retired)
	assert.True(t, models["b"].Retired, "it has changed")
	assert.True(t, models["instance m-c"].Retired, "it is gone")
	alike := []string{"- {name: org-a, options: a}\n", "- {name: org/a, options: a}\n"}
	reload("models:\n" + alike[0] + alike[1])
	fake.all = []launcherapi.Instance{instanceOf(f, "org-a", launcher.Awake), instanceOf(f, "org/a", launcher.Sleeping)}
	for _, text := range []string{alike[1] + alike[0], alike[1]} {
		reload("models:\n" + text)
		assert.False(t, looked(f)["org/a"].Retired, "names that are alike do not touch each other")
	}
}

func TestTransitionsAreObserved(t *testing.T) {
	f, fake := newDoor(t, catalogueText)
	require.NoError(t, f.fleet.Do(t.Context(), scheduler.Action{Kind: scheduler.Start, Model: "a", GPUs: []string{"GPU-0"}}))
	fake.all = []launcherapi.Instance{instanceOf(f, "a", launcher.Awake)}
	require.NoError(t, f.fleet.Do(t.Context(), scheduler.Action{Kind: scheduler.Stop, Model: "a"}))
	require.Error(t, f.fleet.Do(t.Context(), scheduler.Action{Kind: scheduler.Sleep, Model: "b"}))
	assert.Equal(t, []string{"create m-a", "sleep m-a", "delete m-a"}, fake.calls)
	assert.Equal(t, []string{"start done", "stop done", "sleep failed"}, f.opts.Observer.(*observed).transitions)
}

func TestModelWhoseIDIsTakenSaysSoAtOnce(t *testing.T) {
	f, fake := newDoor(t, catalogueText)
	mine := launcherapi.Instance{InstanceID: "m-a", State: "awake", ServedModelNames: []string{"mine"}}
	for _, c := range []struct {
		state, annotation string
		hindered, waits   bool
	}{
		{"awake", "", true, false},
		{"sleeping", "", true, false},
		{"failed", "", false, false},
		{"stopping", "", false, true},
		{"awake", "of a model that is gone", false, true},
	} {
		mine.State, mine.Annotations = c.state, nil
		if c.annotation != "" {
			mine.Annotations = map[string]string{launcherapi.AnnotationModel: c.annotation}
		}
		fake.all = []launcherapi.Instance{mine}
		a := looked(f)["a"]
		assert.Equal(t, c.hindered, a.Hindered != "", c)
		assert.Equal(t, c.waits, a.Busy, c)
	}
	mine.State, mine.Annotations = "awake", nil
	fake.all = []launcherapi.Instance{mine}
	f.sched.Run()
	defer f.Refuse()
	_, ticket, err := f.enter(catalogue.Target{Candidates: []catalogue.Candidate{{Model: "a"}}})
	require.NoError(t, err)
	<-ticket.Ready()
	require.EqualError(t, ticket.Err(), "the model a could not be made awake: its instance would be m-a, and somebody has made an instance with that id: delete that one, or give the model another name")
	assert.Zero(t, f.sched.Show("a").Failures)
	fake.mu.Lock()
	defer fake.mu.Unlock()
	assert.NotContains(t, fake.calls, "create m-a")
}

func TestWhatASleeperHoldsIsToldByModel(t *testing.T) {
	f, fake := newDoor(t, catalogueText)
	fake.all = []launcherapi.Instance{instanceOf(f, "a", launcher.Sleeping), instanceOf(f, "b", launcher.Sleeping)}
	fake.sleepers = []launcherapi.GPUHolder{{InstanceID: "m-a", Bytes: 3}, {InstanceID: "m-b", Bytes: 4}}
	gpus, _ := f.fleet.Look()
	assert.Equal(t, uint64(7), gpus[0].AsleepBytes)
	assert.Equal(t, map[string]uint64{"GPU-0": 3}, looked(f)["a"].Residue)
	assert.Equal(t, map[string]uint64{"GPU-0": 4}, looked(f)["b"].Residue)
}

// A request that was let through just before its model fell asleep waits until it is awake again.
func TestRequestWhoseModelFellAsleepIsNotHeldAtTheGate(t *testing.T) {
	f, fake := newDoor(t, "models:\n- {name: a, options: a}\n")
	become := func(state launcher.State) {
		i := instanceOf(f, "a", state)
		i.StateSince = time.Now()
		fake.mu.Lock()
		defer fake.mu.Unlock()
		fake.all = []launcherapi.Instance{i}
	}
	become(launcher.Awake)
	f.sched.Run()
	defer f.sched.Close()
	ticket, err := f.sched.Enter("a")
	require.NoError(t, err)
	defer ticket.Leave()
	<-ticket.Ready()
	become(launcher.Sleeping)
	q := &request{r: httptest.NewRequest(http.MethodPost, "/v1/completions", nil), chosen: catalogue.Candidate{Model: "a"}}
	q.signs = &inference.Signs{Writer: httptest.NewRecorder(), Request: q.r}
	served := make(chan *launcherapi.Instance)
	go func() {
		i, err := f.awaitInstance(q, ticket)
		assert.NoError(t, err)
		served <- i
	}()
	require.Eventually(t, func() bool {
		fake.mu.Lock()
		defer fake.mu.Unlock()
		return slices.Contains(fake.calls, "wake m-a")
	}, time.Minute, time.Millisecond)
	assert.Empty(t, served)
	become(launcher.Awake)
	f.sched.Kick()
	i := <-served
	require.NotNil(t, i)
	assert.Equal(t, "awake", i.State)
}
