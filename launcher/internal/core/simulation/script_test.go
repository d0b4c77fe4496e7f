package simulation

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// script is what happens to a simulated launcher.
type script struct {
	seed   uint64
	budget launcherapi.Budget
	steps  []step
	end    time.Duration // of the faults; 0: two seconds after the last step
}

// step is one thing that happens. What each kind of step reads is what its line in
// draws sets.
type step struct {
	at   time.Duration // after the beginning of the script
	what string        // a key of acts

	request string // name of a client's request, and of the model that it is for
	keyed   bool   // it comes with its name as idempotency key
	persist bool   // its client asks again when the launcher is back
	id      string // of an instance
	gpus    []string
	share   string // of each GPU's memory
	port    int
	pinned  bool
	budget  launcherapi.Budget // of the launcher that is started next
	odd     string             // of the engine that is made
	engine  string             // empty: vLLM
	stored  string             // its model is the store's, by that model_cache; empty: it is not
	start   string             // its start_method
	threads string             // a value of preloadVariable
	level   int
	out     string
	canary  bool
	dry     bool
	prepare bool          // it waits for go
	hold    time.Duration // for so long; 0: the launcher's time
	until   bool          // it waits for commit
	limit   time.Duration // of a swap; of a fault: how long it lasts
	n       int           // a number of calls, of GiB or of seconds; 1: engines wait for the disk that stalls
	after   bool          // a kill comes after the effect of its call
	again   int           // the next life is killed too, at that call; 0: not
	damage  string        // what is damaged while the launcher is dead
}

func (s step) String() string {
	words := []string{fmt.Sprintf("%9.3fs %s", s.at.Seconds(), s.what)}
	add := func(show bool, format string, args ...any) {
		if show {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	add(s.id != "", "%s", s.id)
	add(s.request != "", "(%s)", s.request)
	add(len(s.gpus) > 0, "on %s", strings.Join(s.gpus, "+"))
	add(s.share != "", "with %s of it", s.share)
	add(s.port != 0, "port %d", s.port)
	add(s.pinned, "pinned")
	add(s.stored != "", "model of the store, model_cache %s", s.stored)
	add(s.start != "", "by %s", s.start)
	add(s.threads != "", "with %s threads", s.threads)
	add(s.odd != "", "[engine: %s]", s.odd)
	add(s.engine != "", "of %s", s.engine)
	add(s.out != "", "out %s", s.out)
	add(s.level != 0, "level %d", s.level)
	add(s.canary, "canary")
	add(s.dry, "dry run")
	add(s.prepare || s.until, "%s", s.halves())
	add(s.limit != 0, "for at most %s", s.limit)
	add(s.n != 0, "%d", s.n)
	add(s.after, "after its effect")
	add(s.again != 0, "and again at call %d", s.again)
	add(s.damage != "", "damage to the file of %s", s.damage)
	add(s.budget != launcherapi.Budget{}, "%+v", s.budget)
	add(s.keyed, "keyed")
	add(s.persist, "asks again")
	return strings.Join(words, " ")
}

// kinds of steps, how often each comes, and what it reads.
var kinds = []struct {
	what   string
	weight int
	draw   func(*drawing, *step)
}{
	{"create", 10, (*drawing).create},
	{"delete", 5, (*drawing).known},
	{"delete all", 1, nil},
	{"sleep", 6, func(d *drawing, s *step) { d.known(s); s.level = d.n(3) }},
	{"wake", 6, (*drawing).known},
	{"swap in new", 14, func(d *drawing, s *step) { d.create(s); d.swap(s) }},
	{"swap in sleeping", 14, func(d *drawing, s *step) { d.known(s); d.swap(s) }},
	{"swap out", 3, func(d *drawing, s *step) { s.gpus = d.gpus(); d.swap(s) }},
	{"retry", 5, (*drawing).earlier},
	{"call off", 3, (*drawing).earlier},
	{"client goes away", 3, (*drawing).earlier},

	{"crash", 3, (*drawing).known},
	{"crash at next call", 3, (*drawing).known},
	{"hang", 4, (*drawing).lasting},
	{"hang for good", 2, (*drawing).known},
	{"refuse", 3, (*drawing).lasting},
	{"cannot reload", 2, (*drawing).lasting},
	{"wake in part", 2, (*drawing).lasting},
	{"sleep in part", 1, (*drawing).lasting},
	{"wake garbled", 2, (*drawing).known},
	{"wake mute", 1, (*drawing).known},
	{"answer late", 3, func(d *drawing, s *step) { d.lasting(s); s.n = 1 + d.n(30) }},
	{"be stubborn", 2, (*drawing).known},
	{"cannot be killed", 2, (*drawing).lasting},
	{"memory comes late", 3, func(d *drawing, s *step) { d.lasts(s); s.n = 1 + d.n(4) }},
	{"memory is lost", 1, (*drawing).lasts},
	{"driver lists nobody", 1, (*drawing).lasts},
	{"driver hangs", 2, func(d *drawing, s *step) { d.lasts(s); s.gpus = d.gpus()[:1] }},
	{"stranger", 3, func(d *drawing, s *step) { d.lasts(s); s.gpus = d.gpus()[:1]; s.n = 5 + d.n(70) }},
	{"preloaders die", 1, (*drawing).lasts},
	{"preloaders hang", 1, (*drawing).lasts},
	{"pull the model", 1, nil},
	{"remove the model", 1, nil},
	{"disk full", 3, (*drawing).lasts},
	{"disk stalls", 3, func(d *drawing, s *step) { d.lasts(s); s.n = d.n(2) }},
	{"port taken", 3, func(d *drawing, s *step) { d.lasts(s); s.port = 9000 + d.n(2) }},
	{"no descriptors", 2, (*drawing).lasts},
	{"loads take long", 2, func(d *drawing, s *step) { d.lasts(s); s.n = 5 + d.n(90) }},
	{"kill", 7, (*drawing).kill},
	{"copy of the folder", 1, nil},
	{"clock is set", 1, func(d *drawing, s *step) { s.n = one(d, -600, -60, -5, 5, 60, 600) }},
	{"close", 2, func(d *drawing, s *step) { s.limit = d.between(time.Millisecond, 2*time.Second) }},
}

// theme is what some scripts have much of.
type theme struct {
	much   []string // kinds of steps
	budget launcherapi.Budget
	pinned bool // many instances are pinned
	damage bool // many kills come with damage to a file
	full   bool // more sleep on a GPU than its budget allows, and none may be evicted
	stored bool // many instances read the model of the store
	forked bool // many instances are forked
	wakes  bool // somebody wakes the sleeper of the other GPU while a swap makes room
	// spoiled: the first two instances wake with wrong answers, or with none.
	spoiled bool
	silent  bool // the engines wait for the disk for long, and one of them is to wake then
}

var themes = []theme{
	{}, {}, {},
	{much: []string{"swap in new", "create", "delete"}},
	{much: []string{"swap in sleeping", "wake", "sleep"}},
	{much: []string{"swap in new", "swap in sleeping", "memory comes late", "call off", "delete"}},
	{much: []string{"swap in sleeping", "hang", "answer late", "refuse"}},
	{much: []string{"swap in sleeping", "answer late", "memory comes late"}},
	{much: []string{"swap in sleeping", "wake", "sleep", "cannot reload", "wake in part", "sleep in part"}},
	{much: []string{"swap in sleeping", "wake", "sleep"}, spoiled: true},
	{much: []string{"swap in sleeping", "wake", "sleep", "refuse", "answer late"}, spoiled: true},
	{much: []string{"kill", "retry", "swap in new"}},
	{much: []string{"kill", "sleep", "swap in sleeping"}},
	{much: []string{"kill", "swap in new", "wake"}, damage: true},
	{much: []string{"kill", "disk full", "sleep", "wake"}},
	{much: []string{"disk stalls", "create", "sleep", "wake", "swap in new", "swap in sleeping", "delete"}},
	{much: []string{"disk stalls", "kill", "sleep", "swap in new", "swap in sleeping"}},
	{much: []string{"sleep", "wake", "swap in sleeping"}, silent: true},
	{much: []string{"kill", "no descriptors", "delete", "cannot be killed"}},
	{much: []string{"stranger", "swap in new", "swap in sleeping"}},
	{much: []string{"driver hangs", "swap in new", "swap in sleeping", "delete"}},
	{much: []string{"port taken", "swap in new", "create"}},
	{much: []string{"close", "create", "swap in new"}},
	{much: []string{"crash", "crash at next call", "swap in sleeping"}},
	{much: []string{"swap in new", "sleep", "wake"}, budget: launcherapi.Budget{MaxInstances: 2}, wakes: true},
	{much: []string{"swap in new", "swap in sleeping", "sleep", "wake"}, budget: launcherapi.Budget{MaxHostSleeperBytes: 15 * gib}},
	{much: []string{"swap in new", "delete"}, budget: launcherapi.Budget{MinResidency: launcherapi.Duration(10 * time.Second)}},
	{much: []string{"clock is set", "kill", "swap in new", "loads take long"}},
	{much: []string{"kill", "create", "loads take long"}},
	{much: []string{"clock is set", "kill", "swap in new", "swap in sleeping"}, budget: launcherapi.Budget{MinResidency: launcherapi.Duration(10 * time.Second)}},
	{much: []string{"delete", "kill", "cannot be killed"}},
	{much: []string{"swap in new", "create", "sleep"}, budget: launcherapi.Budget{MaxSleepersPerGPU: 1}, pinned: true, full: true},
	{much: []string{"remove the model", "pull the model", "kill", "create", "swap in new", "delete"}, stored: true},
	{much: []string{"preloaders die", "preloaders hang", "kill", "create", "swap in new", "delete"}, forked: true},
	{much: []string{"preloaders hang", "call off", "client goes away", "close", "swap in new", "delete"}, stored: true, forked: true},
}

// drawing draws a script.
type drawing struct {
	*rand.Rand
	requests []string
	theme    theme
}

func (d *drawing) n(below int) int { return d.IntN(below) }

func (d *drawing) between(least, most time.Duration) time.Duration {
	return least + time.Duration(d.Int64N(int64(most-least)))
}

func one[T any](d *drawing, of ...T) T { return of[d.n(len(of))] }

func (d *drawing) known(s *step)   { s.id = one(d, "a", "b", "c", "d") }
func (d *drawing) lasts(s *step)   { s.limit = d.between(time.Second, 2*time.Second) << d.n(6) }
func (d *drawing) lasting(s *step) { d.known(s); d.lasts(s) }

func (d *drawing) gpus() []string {
	return one(d, []string{"g0"}, []string{"g0"}, []string{"g0"}, []string{"g1"}, []string{"g1"}, []string{"g0", "g1"})
}

func (d *drawing) earlier(s *step) {
	if len(d.requests) > 0 {
		s.request = one(d, d.requests...)
	}
}

func (d *drawing) named(s *step) {
	s.request = fmt.Sprintf("r%d", len(d.requests)+1)
	d.requests = append(d.requests, s.request)
}

func (d *drawing) create(s *step) {
	d.known(s)
	s.gpus = d.gpus()
	s.share = one(d, "0.9", "0.9", "0.5", "0.4", "0.3")
	s.pinned = d.n(10) == 0 || d.theme.pinned && d.n(2) == 0
	if d.n(4) == 0 {
		s.port = 9000 + d.n(2)
	}
	if d.n(12) == 0 {
		s.odd = one(d, "liar", "refusing", "stubborn", "dies of its first call", "dies while it loads")
	}
	if d.theme.stored && d.n(3) > 0 {
		s.stored = one(d, launcherapi.ModelCacheAuto, launcherapi.ModelCacheRequire)
	}
	if d.theme.forked && d.n(4) > 0 || d.n(10) == 0 {
		s.start, s.threads = one(d, launcherapi.StartAuto, launcherapi.StartAuto, launcherapi.StartFork), one(d, "", "", "2")
	}
	if s.what == "create" {
		d.named(s)
	} else if d.n(6) == 0 {
		s.id = "" // the launcher makes one
	}
}

func (d *drawing) swap(s *step) {
	d.named(s)
	s.keyed = d.n(2) == 0
	s.persist = s.keyed && d.n(2) == 0
	s.out = one(d, "", "", "sleep", "stop")
	s.level = d.n(3)
	s.canary = d.n(6) == 0
	s.dry = d.n(15) == 0
	s.limit = one(d, 0, 0, 0, 3*time.Second, 8*time.Second, 20*time.Second)
}

// kill is at the n-th call of the launcher into the world, at once where n is 0.
func (d *drawing) kill(s *step) {
	s.n, s.after = d.n(40), d.n(2) == 0
	if d.n(3) == 0 {
		s.n = 0
	}
	s.limit = d.between(time.Millisecond, 3*time.Second)
	if d.n(5) == 0 {
		s.again = 1 + d.n(30)
	}
	if d.n(10) == 0 || d.theme.damage && d.n(2) == 0 {
		s.damage = one(d, "an instance", "a swap")
	}
}

// drawScript draws the script of a seed.
func drawScript(seed uint64) script {
	d := &drawing{Rand: rand.New(rand.NewPCG(seed, 0x686f74))}
	d.theme = themes[d.n(len(themes))]
	out := script{seed: seed, budget: d.budget()}
	weights, total := make([]int, len(kinds)), 0
	for n, k := range kinds {
		weights[n] = k.weight
		if slices.Contains(d.theme.much, k.what) {
			weights[n] = 4 * (k.weight + 3)
		}
		total += weights[n]
	}
	var at time.Duration
	if d.theme.wakes {
		out.steps = []step{
			{at: time.Millisecond, what: "create", request: "first", id: "b", gpus: []string{"g1"}, share: "0.3"},
			{at: 8 * time.Second, what: "sleep", id: "b"},
			{at: 8*time.Second + time.Millisecond, what: "create", request: "second", id: "c", gpus: []string{"g0"}, share: "0.9"},
		}
		at = 14 * time.Second
	}
	if d.theme.full {
		for n, id := range []string{"a", "b"} {
			out.steps = append(out.steps, step{at: time.Duration(1+n) * time.Second, what: "create", request: "first of " + id, id: id, gpus: []string{"g1"}, share: "0.3", pinned: true})
		}
		out.steps = append(out.steps, step{at: 12 * time.Second, what: "sleep", id: "a"}, step{at: 14 * time.Second, what: "sleep", id: "b"})
		at = 16 * time.Second
	}
	if d.theme.spoiled {
		for n, id := range []string{"a", "b"} {
			out.steps = append(out.steps, step{at: time.Duration(1+n) * time.Second, what: "create", request: "first of " + id, id: id, gpus: []string{fmt.Sprintf("g%d", n)}, share: "0.4"})
		}
		out.steps = append(out.steps, step{at: 10 * time.Second, what: one(d, "wake garbled", "wake mute"), id: "a"}, step{at: 10 * time.Second, what: "wake garbled", id: "b"})
		at = 10 * time.Second
	}
	if d.theme.silent {
		for n, id := range []string{"a", "b"} {
			out.steps = append(out.steps, step{at: time.Duration(1+n) * time.Second, what: "create", request: "first of " + id, id: id, gpus: []string{fmt.Sprintf("g%d", n)}, share: "0.3"})
		}
		at = 14 * time.Second
		out.steps = append(out.steps, step{at: 12 * time.Second, what: "sleep", id: "a"},
			step{at: at, what: "disk stalls", limit: d.between(15*time.Second, 75*time.Second), n: 1}, step{at: at + time.Millisecond, what: "wake", id: "a"})
	}
	for range 4 + d.n(22) {
		at += d.between(time.Millisecond, 30*time.Millisecond) << d.n(9)
		n, x := 0, d.n(total)
		for x >= weights[n] {
			x -= weights[n]
			n++
		}
		s := step{at: at, what: kinds[n].what}
		if kinds[n].draw != nil {
			kinds[n].draw(d, &s)
		}
		out.steps = append(out.steps, s)
		if d.theme.wakes && s.what == "swap in new" {
			at += d.between(time.Millisecond, 2*time.Second)
			out.steps = append(out.steps, step{at: at, what: "wake", id: "b"})
		}
	}
	if d.theme.damage { // of one that may sleep nothing is known any more, and it never says anything again
		id := one(d, "a", "b", "c", "d")
		for _, s := range []step{{what: "sleep", id: id}, {what: "kill", limit: 2 * time.Second, damage: "an instance"}, {what: "hang for good", id: id}} {
			at += d.between(time.Millisecond, 2*time.Second)
			s.at = at
			out.steps = append(out.steps, s)
		}
	}
	out.end = at + d.between(2*time.Second, 20*time.Second)
	if d.theme.silent {
		out.end += time.Minute
	}
	others := &drawing{Rand: rand.New(rand.NewPCG(seed, 0x737472))}
	out.steps = others.drawStranger(out.steps)
	others = &drawing{Rand: rand.New(rand.NewPCG(seed, 0x636f6e))}
	out.steps = others.drawConfiguration(out.steps)
	others = &drawing{Rand: rand.New(rand.NewPCG(seed, 0x66756c))}
	out.steps = others.drawFullDisk(out.steps)
	out.steps = halvesOf(seed).drawHalves(out.steps)
	out.steps = restartedOf(seed).drawRestarted(out.steps)
	return out
}

func (d *drawing) budget() launcherapi.Budget {
	b := d.theme.budget
	if d.n(2) == 0 {
		return b
	}
	b.MaxSleepersPerGPU = cmp.Or(b.MaxSleepersPerGPU, one(d, 0, 1, 2))
	b.MaxInstances = cmp.Or(b.MaxInstances, one(d, 0, 0, 2, 3))
	b.MinResidency = cmp.Or(b.MinResidency, launcherapi.Duration(one(d, 0, 0, 4*time.Second, 10*time.Second)))
	b.MaxHostSleeperBytes = cmp.Or(b.MaxHostSleeperBytes, one(d, 0, 0, 15*gib, 25*gib))
	return b
}
