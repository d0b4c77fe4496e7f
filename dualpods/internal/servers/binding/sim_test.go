package binding

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/test/helpers/schedules"
)

// sim is a small world around the real Controller, in simulated time: an API
// server, kubelets, launchers and requester programs. All that happens is drawn
// from a seed.
type sim struct {
	start  time.Time
	tables []decide.Table
	trace  bool

	mu          sync.Mutex // guards all that follows
	over        bool
	draws       schedules.Draws
	numbers     map[string]int // of objects, by kind
	lines       []string
	wrong       []string
	api         *simAPI
	launchers   map[string]*simLauncher // by UID of their Pods
	programs    map[types.UID]*simProgram
	inc         *incarnation
	read        []simRecord // as of readAt
	readAt      int         // version of the API server
	calm        time.Time   // faults are over by then
	stale       map[string]time.Time
	unrecorded  map[types.UID]time.Time // since when no record is of a requester
	steps       int                     // calls of controllers to anybody
	passes      int
	healed      bool
	writes      map[types.UID]int       // to the API server, for each requester
	failStart   int                     // how many engines are still to fail
	slowPulls   int                     // how many Pods are still to wait for their images
	latePods    int                     // how many are still to be admitted seconds before their containers run
	slowCalls   []time.Duration         // how long the next swaps take to come to their launchers
	slowOrders  []time.Duration         // the same of other calls
	odd         []simOddity             // what is wrong with the next programs from their beginning
	failures    map[types.UID]int       // of attempts, one after the other, since the requester was served
	serves      map[types.UID]time.Time // since when the status of requesters says that they are served
	evictions   map[string]simEviction  // by key of the swap that they are to make room for
	unbound     map[string]time.Time    // when an instance had a record last, by launcher and id
	doomed      map[types.UID]string    // requesters whose server died while it served, and how
	leaves      map[types.UID]time.Time // since when requesters do
	quiet       simQuiet
	awake       uint64             // how much memory of a GPU an engine has that is awake
	writeAhead  bool               // requesters are bound before their programs run
	sets        map[string]*simSet // that make Pods again under their names
	policy      bool               // the chart's policy gives requesters our finalizer when they are created
	service     bool               // all requesters are endpoints of a Service
	slices      map[types.UID]*simSlice
	knows       map[string]map[string]*simProgram // Pods that the kubelets of nodes have admitted, by name
	asksKubelet bool                              // nodes have an agent that asks the kubelet, and its word counts
	kubelets    map[string]string                 // what the kubelets of nodes do
	kubeletsBy  map[string]time.Time              // since when
	repaired    map[types.UID]time.Time           // when a record that somebody had damaged could be read again
	byHand      map[types.UID]bool                // Pods whose finalizers somebody took off, or whose records somebody damaged
	unheld      map[types.UID]bool                // requesters whose finalizers an uninstallation took off
	damaged     map[string]string                 // records that somebody damaged, as they were
	killing     simKilling
	unselected  map[string]time.Time       // nodes that the LauncherConfigs do not select any more, and since when
	lacks       map[string]map[string]bool // models that are not whole, by node
	edited      time.Time                  // when a configuration was put last
	lateModels  int                        // how many launchers are still to say late what models they have
}

func (s *sim) draw(kind string, below uint64) uint64 { return s.draws.Draw(kind, below) }

func (s *sim) between(kind string, from, to time.Duration) time.Duration {
	return s.draws.Between(kind, from, to)
}

func (s *sim) chance(kind string, percent uint64) bool { return s.draws.Chance(kind, percent) }

// locked does something while nobody else does.
func (s *sim) locked(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// after does something later.
func (s *sim) after(d time.Duration, do func()) {
	time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.over {
			return
		}
		do()
		s.check()
	})
}

func (s *sim) note(format string, args ...any) {
	if s.trace {
		s.lines = append(s.lines, fmt.Sprintf("%9.3fs  ", time.Since(s.start).Seconds())+fmt.Sprintf(format, args...))
	}
}

// violated notes what must never be.
func (s *sim) violated(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if !slices.Contains(s.wrong, line) && len(s.wrong) < 20 {
		s.wrong = append(s.wrong, line)
		s.note("VIOLATED  %s", line)
	}
}

// disturb says that nothing can be expected for that long.
func (s *sim) disturb(d time.Duration) {
	if until := time.Now().Add(d); until.After(s.calm) {
		s.calm = until
	}
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// incarnation is a controller process: all of its memory goes with it.
type incarnation struct {
	s       *sim
	ctx     context.Context // the life of the process
	cancel  context.CancelFunc
	dead    bool
	killAt  int // at which step it is killed
	ctrl    *Controller
	cache   *simCache
	slices  *simEndpoints
	views   map[string]*simView
	steps   map[string]int // in the pass, by node and requester
	dirty   map[string]bool
	working map[string]bool
	waiting map[string]time.Time
	faults  int // calls that failed
	born    time.Time
}

// boot starts a controller process.
func (s *sim) boot() {
	inc := &incarnation{
		s: s, born: time.Now(), steps: map[string]int{}, views: map[string]*simView{}, dirty: map[string]bool{}, working: map[string]bool{}, waiting: map[string]time.Time{},
	}
	inc.ctx, inc.cancel = context.WithCancel(context.Background())
	inc.slices = s.newEndpoints(inc)
	log := logr.New(&stepCounter{inc: inc})
	if s.trace {
		log = funcr.New(func(_, args string) {
			s.locked(func() {
				if !inc.dead {
					s.note("controller: %s", args)
				}
			})
		}, funcr.Options{})
	}
	inc.ctrl = New(inc.ctx, Options{
		API: &simClient{inc: inc}, Pods: inc.podsOf, Providers: inc, Requesters: &simRequesters{inc}, Recorder: events.NewFakeRecorder(0),
		LauncherPort: 8001, Access: simAccess, Drain: 2 * time.Second, Launchers: &simPool{inc}, Allocations: &simKubelets{inc}, Endpoints: inc.slices, AgentNamespace: "ns", WriteAhead: s.writeAhead, Keeper: s.keeper,
		Again: func(node string) { s.locked(func() { inc.enqueue(node) }) }, Now: time.Now, Observer: simObserver{inc}, RelayLog: inc.relayLog,
	}, log)
	inc.ctrl.opts.Recorder = silentRecorder{}
	inc.ctrl.tables = s.tables
	s.inc = inc
	inc.cache = s.api.newCache(inc)
	s.note("controller starts")
	for node := range s.api.nodesEver {
		inc.enqueue(node)
	}
	inc.enqueue("")
}

// relayLog takes its time, as with a log of many megabytes.
func (inc *incarnation) relayLog(ctx context.Context, o decide.Observation) error {
	var d time.Duration
	inc.s.locked(func() {
		if d = inc.s.between("log", 0, 20*time.Millisecond); inc.s.chance("long log", 20) {
			d = time.Hour
		}
	})
	sleep(ctx, d)
	return ctx.Err()
}

// kill ends the process, in the middle of whatever it does.
func (inc *incarnation) kill() {
	if inc.dead {
		return
	}
	inc.s.note("controller is killed")
	inc.dead = true
	inc.cancel()
	s := inc.s
	back := s.between("boot", 20*time.Millisecond, 3*time.Second)
	s.disturb(back + 3*time.Second)
	s.after(back, s.boot)
}

// enqueue has a node looked at.
func (inc *incarnation) enqueue(node string) {
	if inc == nil || inc.dead {
		return
	}
	inc.dirty[node] = true
	if !inc.working[node] {
		inc.working[node] = true
		go inc.work(node)
	}
}

func (inc *incarnation) work(node string) {
	s := inc.s
	for {
		s.mu.Lock()
		if inc.dead || !inc.dirty[node] {
			inc.working[node] = false
			s.mu.Unlock()
			return
		}
		delete(inc.dirty, node)
		maps.DeleteFunc(inc.steps, func(key string, _ int) bool { return strings.HasPrefix(key, node+" ") })
		s.passes++
		if s.passes > 1500 {
			s.violated("the controller never rests: %d passes", s.passes)
			s.passes = -1 << 40
			inc.dead = true
		}
		pause := s.between("pass "+node, 10*time.Microsecond, 300*time.Microsecond)
		s.mu.Unlock()
		sleep(inc.ctx, pause)
		s.mu.Lock()
		before := inc.snapshot(node)
		s.mu.Unlock()
		result, err := inc.reconcile(node)
		s.mu.Lock()
		if err == nil {
			inc.checkPass(node, before)
			inc.checkAskedAhead(node, before, result.RequeueAfter)
		}
		switch {
		case err != nil:
			inc.again(node, 20*time.Millisecond+pause)
		case result.RequeueAfter > 0:
			inc.again(node, result.RequeueAfter+pause)
		}
		s.check()
		s.mu.Unlock()
	}
}

// again has a node looked at later, at the earliest time that was asked for.
func (inc *incarnation) again(node string, d time.Duration) {
	at := time.Now().Add(d)
	if there, ok := inc.waiting[node]; ok && there.Before(at) {
		return
	}
	inc.waiting[node] = at
	inc.s.after(d, func() {
		if inc.waiting[node].Equal(at) {
			delete(inc.waiting, node)
			inc.enqueue(node)
		}
	})
}

// kept is what the process keeps of a node; nil: nothing.
func (inc *incarnation) kept(node string) *nodeWork {
	inc.ctrl.mu.Lock()
	defer inc.ctrl.mu.Unlock()
	return inc.ctrl.nodes[node]
}

func (inc *incarnation) reconcile(node string) (result reconcile.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			inc.s.locked(func() { inc.s.violated("a pass panics: %v", p) })
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return inc.ctrl.Reconcile(inc.ctx, reconcile.Request{NamespacedName: client.ObjectKey{Name: node}})
}

// call is a call of the controller to somebody: it takes time, it may fail, and
// the controller may die before it, during it and after it. effect is called
// with the lock held.
func (inc *incarnation) call(ctx context.Context, who string, effect func() error) error {
	s := inc.s
	s.mu.Lock()
	if inc.dead || ctx.Err() != nil {
		s.mu.Unlock()
		return context.Canceled
	}
	s.steps++
	if inc.killAt > 0 && s.steps >= inc.killAt {
		inc.killAt = 0
		if s.chance("kill before", 30) {
			inc.kill()
			s.mu.Unlock()
			return context.Canceled
		}
		s.after(s.between("kill at", 0, 20*time.Millisecond), inc.kill)
	}
	there, back := s.between("there "+who, 100*time.Microsecond, 5*time.Millisecond), s.between("back "+who, 100*time.Microsecond, 5*time.Millisecond)
	s.mu.Unlock()
	sleep(ctx, there)
	s.mu.Lock()
	if s.over || ctx.Err() != nil && s.chance("lost "+who, 50) {
		s.mu.Unlock()
		return context.Canceled
	}
	err := effect()
	if err != nil {
		inc.faults++
	}
	s.check()
	s.mu.Unlock()
	sleep(ctx, back)
	if ctx.Err() != nil {
		return context.Canceled
	}
	return err
}

// outcome of a run.
type simOutcome struct {
	wrong, lines []string
	passes       int
	writes       map[types.UID]int // to the API server, for each requester
	allowed      map[types.UID]int // as many as an actuation needs
	served       int
	decided      map[string]bool // rows that a decision of a controller was by
	acted        map[string]bool // those of them whose steps it has taken
	killed       bool            // the controller, after the step of the row
}

// simulate runs one script.
func simulate(t *testing.T, seed uint64, script []simEvent, tables []decide.Table, trace bool) simOutcome {
	return simulateKilled(t, seed, script, tables, trace, "")
}

// simulateKilled runs one script, and kills the controller the first time that it
// has taken the step of a row; empty: it goes by the script alone.
func simulateKilled(t *testing.T, seed uint64, script []simEvent, tables []decide.Table, trace bool, row string) simOutcome {
	var out simOutcome
	synctest.Test(t, func(*testing.T) {
		s := &sim{
			start: time.Now(), tables: tables, trace: trace, draws: schedules.Draws{Seed: seed}, numbers: map[string]int{}, launchers: map[string]*simLauncher{},
			programs: map[types.UID]*simProgram{}, stale: map[string]time.Time{}, unrecorded: map[types.UID]time.Time{}, writes: map[types.UID]int{}, doomed: map[types.UID]string{}, leaves: map[types.UID]time.Time{}, sets: map[string]*simSet{}, slices: map[types.UID]*simSlice{}, knows: map[string]map[string]*simProgram{}, kubelets: map[string]string{}, kubeletsBy: map[string]time.Time{}, byHand: map[types.UID]bool{}, repaired: map[types.UID]time.Time{}, damaged: map[string]string{},
			lacks: map[string]map[string]bool{}, unselected: map[string]time.Time{},
			failures: map[types.UID]int{}, serves: map[types.UID]time.Time{}, evictions: map[string]simEviction{}, unbound: map[string]time.Time{},
			killing: simKilling{after: row, decided: map[string]bool{}, acted: map[string]bool{}},
		}
		s.locked(func() {
			s.api = newSimAPI(s)
			s.asksKubelet = s.chance("asks kubelet", 50)
			s.writeAhead = s.chance("write ahead", 60)
			s.service = s.chance("service", 60)
			s.policy = s.chance("policy", 50)
			if s.awake = simBig; s.chance("small models", 35) {
				s.awake = simSmall
			}
			s.setUp()
			s.boot()
			for _, e := range script {
				s.after(e.at, func() {
					s.note("--- %s", e)
					s.happen(e)
				})
			}
		})
		end, broken := time.Second, false
		if len(script) > 0 {
			end += script[len(script)-1].at
		}
		sleep(context.Background(), end)
		s.locked(s.calmDown)
		if s.locked(func() { broken = len(s.wrong) > 0 }); !broken {
			sleep(context.Background(), stillFor)
			s.locked(s.checkStill)
		}
		s.locked(s.heal)
		if s.locked(func() { broken = len(s.wrong) > 0 }); !broken {
			sleep(context.Background(), 25*time.Minute)
		}
		synctest.Wait()
		s.locked(func() {
			if !broken {
				s.checkRest()
			}
			s.checkCached()
			out = simOutcome{s.wrong, s.lines, s.passes, s.writes, s.allowed(), s.served(), s.killing.decided, s.killing.acted, s.killing.killed}
			s.over = true
			s.inc.dead = true
			s.inc.cancel()
			for _, l := range s.launchers {
				l.end()
			}
		})
		s.inc.ctrl.Close()
	})
	return out
}
