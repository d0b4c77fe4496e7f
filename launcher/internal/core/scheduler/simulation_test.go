package scheduler

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/test/helpers/schedules"
)

// simulation is a machine with GPUs and models, clients that ask for them, and what disturbs
// them. In a healthy one nothing fails, and all models have the same priority.
type simulation struct {
	mu    sync.Mutex // never held while the fleet's lock is taken
	draws schedules.Draws

	fleet   *fleet
	s       *Scheduler
	turn    time.Duration
	stays   time.Duration // min_residency
	healthy bool
	crowd   bool // each model has clients that ask all the time; all is healthy
	pace    int  // how much faster everything is
	began   time.Time
	clients sync.WaitGroup

	open     map[*request]bool
	running  map[*Action]map[string]bool // GPUs of the actions that run
	attempts map[string][]time.Time      // of actions, by model
	asked    map[string]time.Time        // when the last request of each model ended
	names    int                         // models that were ever made
	wrong    []string
	story    []string

	answered, longest int64 // requests, and the longest wait as a part of its bound, in percent
}

// request is a client's request.
type request struct {
	model   string
	entered time.Time
	ended   time.Time // zero: it is open
	ticket  *Ticket
}

// slack is how long what has changed may go unnoticed: the scheduler looks again after a pause.
const slack = 2 * longestPause

// roughTime is how long clients ask and things go wrong.
const roughTime = 4 * time.Minute

// TestNoScheduleBreaksTheScheduler plays machines on which clients, policies, failures, strangers,
// reloads and other clients meet; SEEDS says how many.
func TestNoScheduleBreaksTheScheduler(t *testing.T) {
	var answered, longest atomic.Int64
	t.Cleanup(func() {
		t.Logf("%d requests were let through; the longest wait was %d%% of its bound", answered.Load(), longest.Load())
	})
	play := func(t *testing.T, seed uint64) []string {
		sim := playSeed(t, seed)
		answered.Add(sim.answered)
		for old := longest.Load(); sim.longest > old && !longest.CompareAndSwap(old, sim.longest); old = longest.Load() {
		}
		return sim.wrong
	}
	schedules.Play(t, schedules.FromEnvironment(t, standardSeeds), play, func(t *testing.T, seed uint64, wrong []string) string {
		lines := 120
		if os.Getenv("LOG") != "" {
			lines = 1 << 20
		}
		sim := playSeed(t, seed)
		return fmt.Sprintf("seed %d: %s\n%s", seed, strings.Join(wrong, "; "), strings.Join(sim.story[max(0, len(sim.story)-lines):], "\n"))
	})
}

func playSeed(t *testing.T, seed uint64) *simulation {
	t.Helper()
	sim := &simulation{draws: schedules.Draws{Seed: seed}, open: map[*request]bool{}, running: map[*Action]map[string]bool{}, attempts: map[string][]time.Time{}, asked: map[string]time.Time{}}
	synctest.Test(t, func(*testing.T) { sim.play() })
	return sim
}

func (sim *simulation) draw(kind string, below int) int {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	return int(sim.draws.Draw(kind, uint64(below)))
}

func (sim *simulation) chance(kind string, percent int) bool { return sim.draw(kind, 100) < percent }

func (sim *simulation) between(kind string, from, to time.Duration) time.Duration {
	return from + time.Duration(sim.draw(kind, int(to-from)))
}

// takes is the next time of a kind of transition.
func (sim *simulation) takes(kind string, from, to time.Duration) time.Duration {
	return sim.between(kind, from, to) / time.Duration(sim.pace)
}

func (sim *simulation) log(format string, args ...any) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	sim.story = append(sim.story, fmt.Sprintf("%9.3f ", time.Since(sim.began).Seconds())+fmt.Sprintf(format, args...))
}

func (sim *simulation) breaks(format string, args ...any) {
	sim.log("WRONG "+format, args...)
	sim.mu.Lock()
	defer sim.mu.Unlock()
	sim.wrong = append(sim.wrong, fmt.Sprintf(format, args...))
}

// build makes the machine.
func (sim *simulation) build() {
	sim.began = time.Now()
	sim.crowd = sim.chance("crowd", 20)
	sim.healthy = sim.crowd || sim.chance("healthy", 30)
	sim.pace = 1 + 4*sim.draw("pace", 2)
	gpus := 1 + sim.draw("gpus", 4)
	sim.fleet = newFleet(gpus)
	sim.fleet.residue = uint64(sim.draw("residue", 3)) * gib
	sim.fleet.drain = sim.takes("drain", time.Second, 10*time.Second)
	for range 2 + sim.draw("models", 6) {
		sim.fleet.models = append(sim.fleet.models, sim.newModel())
	}
	if sim.chance("turn", 80) {
		sim.turn = sim.takes("turn", time.Second, 30*time.Second)
	}
	if sim.chance("residency", 30) {
		sim.stays = sim.takes("residency", time.Second, 20*time.Second)
	}
	sim.s = New(Options{Fleet: watched{sim.fleet, sim}, MaxWaiting: 50, Turn: sim.turn, MinResidency: sim.stays, Logger: slog.New(slog.DiscardHandler)})
	sim.s.Run()
	sim.fleet.with(func() { sim.fleet.kick = sim.s.Kick })
	sim.log("%d GPUs, turn %s, min residency %s, drain %s, healthy %t", gpus, sim.turn, sim.stays, sim.fleet.drain, sim.healthy)
}

func (sim *simulation) newModel() *instance {
	sim.names++
	m := Model{Name: fmt.Sprintf("m%d", sim.names)}
	if sim.chance("wide", 25) && len(sim.fleet.gpus) > 1 {
		m.Count = 2
	}
	i := newInstance(m)
	i.needs = []uint64{20, 30, 40, 60, 78}[sim.draw("needs", 5)] * gib
	if sim.chance("known", 70) {
		i.Bytes = i.needs
	}
	if sim.chance("bound", 15) {
		for n := range i.Count {
			i.GPUs = append(i.GPUs, sim.fleet.gpus[(sim.draw("bound to", len(sim.fleet.gpus)-i.Count+1))+n].UUID)
			if n == 0 && i.Count == 2 {
				i.GPUs = []string{sim.fleet.gpus[0].UUID}
			}
		}
	}
	i.start, i.wake = sim.takes("start", 2*time.Second, 30*time.Second), sim.takes("wake", 500*time.Millisecond, 4*time.Second)
	i.rest = sim.takes("rest", 200*time.Millisecond, 2*time.Second)
	sim.configure(i)
	sim.log("%s: %d GPUs %v, %d GiB known %t, at once %d, priority %d, pinned %t, preload %t, sleeps after %s, stops after %s", i.Name, i.Count, i.GPUs, i.needs/gib, i.Bytes > 0,
		i.Concurrency, i.Priority, i.Pinned, i.Preload, i.SleepAfter, i.StopAfter)
	return i
}

// configure draws what a reload may change.
func (sim *simulation) configure(i *instance) {
	i.changedAt = time.Now()
	i.Concurrency = []int{0, 0, 0, 1, 3}[sim.draw("concurrency", 5)]
	i.Preload = sim.chance("preload", 10)
	i.SleepAfter, i.StopAfter = 0, 0
	if sim.chance("sleeps", 40) {
		i.SleepAfter = sim.between("sleeps", 2*time.Second, time.Minute)
	}
	if sim.chance("stops", 30) {
		i.StopAfter = sim.between("stops", 5*time.Second, 3*time.Minute)
	}
	if !sim.healthy {
		i.Priority = []int{0, 0, 0, 1, 2}[sim.draw("priority", 5)]
		i.Pinned = sim.chance("pinned", 10)
	}
}

func (sim *simulation) play() {
	sim.build()
	end := time.Now().Add(roughTime)
	clients := 2 + sim.draw("clients", 8)
	if sim.crowd {
		clients = len(sim.fleet.models) * (1 + 2*sim.draw("clients of each", 2))
	}
	for n := range clients {
		sim.clients.Go(func() { sim.client(n, end) })
	}
	if !sim.healthy {
		sim.clients.Go(func() { sim.disturb(end) })
	}
	sim.clients.Go(func() { sim.count(end) })
	<-time.After(time.Until(end))
	sim.calmDown()
	sim.clients.Wait()
	<-time.After(heldBackFor + time.Second) // no model is held back any more
	sim.askEach()
	<-time.After(10 * time.Minute) // all policies have had their time
	looks, actions := sim.fleet.looked(), len(sim.fleet.did())
	<-time.After(10 * time.Minute)
	if more, did := sim.fleet.looked()-looks, sim.fleet.did(); more > 0 || len(did) > 0 {
		sim.breaks("it is not idle at the end: %d looks, and %v after %d", more, did, actions)
	}
	sim.checkPreloads()
	sim.s.Close()
}

// calmDown ends what disturbs.
func (sim *simulation) calmDown() {
	sim.log("calm")
	sim.fleet.with(func() {
		for n := range sim.fleet.gpus {
			sim.fleet.gpus[n].ForeignBytes = 0
		}
		for _, i := range sim.fleet.models {
			i.failing, i.Pinned, i.Priority, i.changedAt = 0, false, 0, time.Now()
		}
	})
}

// modelNames returns the models that there are.
func (sim *simulation) modelNames() (names []string) {
	sim.fleet.mu.Lock()
	defer sim.fleet.mu.Unlock()
	for _, i := range sim.fleet.models {
		if !i.removed {
			names = append(names, i.Name)
		}
	}
	return names
}

// client asks until the end: for one model mostly, or for any.
func (sim *simulation) client(n int, end time.Time) {
	me := fmt.Sprintf("client %d/", n)
	idle := []time.Duration{10 * time.Millisecond, time.Second, 10 * time.Second, time.Minute}[sim.draw(me+"idle", 4)]
	favourite, loyal := sim.draw(me+"favourite", 100), sim.draw(me+"loyal", 101)
	if sim.crowd {
		idle, favourite, loyal = 10*time.Millisecond, n, 100
	}
	for {
		<-time.After(sim.between(me+"thinks", time.Millisecond, 2*idle))
		names := sim.modelNames()
		if !time.Now().Before(end) || len(names) == 0 {
			return
		}
		r := &request{model: names[favourite%len(names)]}
		if !sim.chance(me+"loyal", loyal) {
			r.model = names[sim.draw(me+"model", len(names))]
		}
		patience := 24 * time.Hour
		if sim.chance(me+"leaves", 10) {
			patience = sim.between(me+"leaves", time.Millisecond, 20*time.Second)
		}
		_ = sim.ask(r, patience, sim.takes(me+"takes", 10*time.Millisecond, 8*time.Second)) // refusals are checked at the end
	}
}

// disturb has things go wrong until the end.
func (sim *simulation) disturb(end time.Time) {
	for {
		<-time.After(sim.between("disturbs", 100*time.Millisecond, 10*time.Second))
		if !time.Now().Before(end) {
			return
		}
		what, which, gpu := sim.draw("what", 8), sim.draw("which", 100), sim.draw("GPU", len(sim.fleet.gpus))
		foreign, fails := uint64(sim.draw("foreign", 70))*gib, 1+sim.draw("fails", 6)
		var added *instance
		if what == 6 {
			added = sim.newModel()
		}
		f := sim.fleet
		names := sim.modelNames()
		if len(names) == 0 {
			return
		}
		sim.log("disturbs %d %s", what, names[which%len(names)])
		f.mu.Lock()
		i := f.find(names[which%len(names)])
		switch what {
		case 0:
			f.gpus[gpu].ForeignBytes = foreign
		case 1:
			f.gpus[gpu].ForeignBytes = 0
		case 2:
			i.failing = fails
		case 3:
			f.kill(i)
		case 4: // a client uses the API
			a := Action{Kind: Sleep, Model: i.Name}
			if i.State == launcher.Sleeping {
				a = Action{Kind: Wake, Model: i.Name, GPUs: i.On, Out: []string{"all"}[:which%2]}
			}
			go func() { _ = f.carryOut(a) }()
		case 5:
			f.kill(i)
			i.removed, i.leftAt = true, time.Now()
		case 6:
			f.models = append(f.models, added)
		case 7:
			f.mu.Unlock()
			changed := *i
			sim.configure(&changed)
			f.mu.Lock()
			i.Retired = i.State != "" && which < 30
			i.Concurrency, i.Preload, i.SleepAfter, i.StopAfter, i.Priority, i.Pinned, i.changedAt = changed.Concurrency, changed.Preload, changed.SleepAfter, changed.StopAfter, changed.Priority, changed.Pinned, changed.changedAt
		}
		f.change()
		f.mu.Unlock()
	}
}
