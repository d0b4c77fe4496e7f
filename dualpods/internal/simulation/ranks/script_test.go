package ranks

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	program "hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/helpers/schedules"
)

// event is something that happens to the world.
type event struct {
	at   time.Duration
	what string
	arg  uint64 // which object, how long: what it means depends on the event
}

func (e event) String() string { return fmt.Sprintf("%v %s (%d)", e.at, e.what, e.arg) }

// chance is how often something is in scripts.
type chance struct {
	what   string
	weight int
}

// chances says what scripts are made of.
var chances = []chance{
	{"scale first", 10}, {"scale second", 12}, {"swap servers", 10}, {"sleep and wake", 14},
	{"delete requester", 7}, {"force requester", 5}, {"restart requester", 4},
	{"kill engine", 8}, {"fail starts", 5}, {"refuse swaps", 5}, {"replace serving", 3}, {"resize", 3}, {"delete instance", 3}, {"slow orders", 4},
	{"end launcher", 4}, {"lose swaps", 3}, {"restart launcher", 6}, {"silence launcher", 6}, {"replace launcher", 3},
	{"unready requester", 9}, {"crash loop", 4}, {"end requester", 3}, {"change policy", 2},
	{"API down", 3}, {"API flaky", 4}, {"kill controller", 6}, {"kill at step", 12},
}

// themes are what some scripts have much of.
var themes = [][]string{
	{}, {},
	{"sleep and wake", "swap servers"},
	{"sleep and wake", "kill at step", "slow orders"},
	{"kill at step", "swap servers"},
	{"kill engine", "kill at step", "slow orders"},
	{"restart launcher", "swap servers", "slow orders"},
	{"silence launcher", "delete requester", "force requester"},
	{"refuse swaps", "fail starts", "swap servers"},
	{"API flaky", "kill controller", "swap servers"},
	{"force requester", "delete requester", "kill at step"},
	{"unready requester", "kill controller", "crash loop"},
	{"crash loop", "kill engine", "kill at step"},
}

// drawScript makes the script of a seed.
func drawScript(seed uint64) (script []event) { return drawFrom(seed, chances, themes) }

func drawFrom(seed uint64, chances []chance, themes [][]string) (script []event) {
	d := &schedules.Draws{Seed: seed}
	weights, total := slices.Clone(chances), 0
	theme := themes[d.Draw("theme", uint64(len(themes)))]
	for n := range weights {
		if slices.Contains(theme, weights[n].what) {
			weights[n].weight = 3 * (weights[n].weight + 3)
		}
		total += weights[n].weight
	}
	at := d.Between("first", 500*time.Millisecond, 15*time.Second)
	for range 2 + d.Draw("events", 16) {
		at += d.Between("gap", time.Millisecond, 80*time.Millisecond) << d.Draw("gaps", 11)
		x := int(d.Draw("what", uint64(total)))
		for _, c := range weights {
			if x -= c.weight; x < 0 {
				script = append(script, event{at, c.what, d.Draw("arg", 1<<20)})
				break
			}
		}
	}
	return script
}

// pick is one of some things; ok is false if there is none.
func pick[T any](from []T, arg uint64) (one T, ok bool) {
	if len(from) == 0 {
		return one, false
	}
	return from[arg%uint64(len(from))], true
}

// happen makes an event happen.
func (w *world) happen(e event) {
	long := time.Duration(1+e.arg/64%1024) * 40 * time.Millisecond // up to 41 s
	switch e.what {
	case "scale first", "scale second":
		name := e.what[len("scale "):]
		w.scale(name, int32(e.arg%2))
	case "swap servers":
		w.scale("first", int32(e.arg%2))
		w.scale("second", 1-int32(e.arg%2))
	case "sleep and wake":
		name := []string{"first", "second"}[e.arg%2]
		w.scale(name, 0)
		w.after(5*time.Second+long/2, func() {
			if !w.calm {
				w.scale(name, 1)
			}
		})
	case "resize":
		w.editServing("second", func(s *v1alpha1.ModelServing) { s.Spec.Template.Roles[0].WorkerReplicas = new(int32(1 + e.arg%2)) })
	case "replace serving":
		w.replaceServing([]string{"first", "second"}[e.arg%2])
	case "crash loop":
		w.crashLoop += 2 + int(e.arg%6)
	case "change policy":
		w.setPolicy([]string{"first", "second"}[e.arg%2], e.arg/2)
	case "fail starts":
		w.failStarts += 1 + int(e.arg%3)
	case "refuse swaps":
		w.refusals += 1 + int(e.arg%4)
	case "change model", "change role", "change mode":
		w.group.happen(e)
	case "kill at call":
		w.proc.killAt = w.steps + 1 + int(e.arg)
	case "lose swaps":
		w.losesSwaps = []program.State{program.Awake, program.Starting}[e.arg%2]
	case "slow orders":
		w.slowOrders += 1 + int(e.arg%8)
	case "API down":
		w.api.down = true
		w.disturb(long + 2*time.Second)
		w.after(long, func() { w.api.down = false })
	case "API flaky":
		w.api.flaky = 10 + e.arg%50
		w.disturb(long + 2*time.Second)
		w.after(long, func() { w.api.flaky = 0 })
	case "kill controller":
		w.proc.kill()
	case "kill at step":
		w.proc.killAt = w.steps + 1 + int(e.arg%60)
	default:
		w.happenToPods(e)
		w.happenToLaunchers(e, long)
	}
}

func (w *world) happenToPods(e event) {
	pod, ok := pick(slices.DeleteFunc(w.api.pods(), func(p *corev1.Pod) bool { return !podmeta.IsRequester(p) }), e.arg)
	if !ok {
		return
	}
	switch e.what {
	case "delete requester":
		w.api.remove(pod, 30)
	case "force requester":
		w.api.forceDelete(pod)
	case "unready requester":
		if p := w.programs[pod.UID]; p != nil {
			p.sicken(time.Duration(1+e.arg/64%256) * time.Second)
		}
	case "end requester":
		if w.programs[pod.UID] != nil && !podmeta.Finished(pod) {
			w.endPod(pod)
		}
	case "restart requester":
		if p := w.programs[pod.UID]; p != nil && p.up {
			w.disturb(3 * time.Second)
			p.restart(time.Duration(50+e.arg%2000) * time.Millisecond)
		}
	}
}

func (w *world) happenToLaunchers(e event, long time.Duration) {
	alive := slices.DeleteFunc(sorted(w.launchers), func(uid string) bool { return w.launchers[uid].dead || w.launchers[uid].down })
	uid, ok := pick(alive, e.arg)
	if !ok {
		return
	}
	l := w.launchers[uid]
	pod := w.api.pod(l.pod)
	back := time.Duration(100+e.arg/8%2500) * time.Millisecond
	switch e.what {
	case "kill engine", "delete instance":
		if at, ok := w.engine(e.arg); ok && e.what == "kill engine" {
			at.l.fails(at)
		} else if ok {
			go w.locked(func() { at.l.stop(at) })
		}
	case "end launcher":
		l.restartContainer(back, 0)
	case "restart launcher":
		w.disturb(back + 10*time.Second)
		l.restartProgram(back)
	case "silence launcher":
		w.disturb(long + 10*time.Second)
		l.silent = true
		l.lose(6 * time.Second)
		w.after(long, func() { l.silent = false })
	case "replace launcher":
		w.disturb(20 * time.Second)
		w.api.remove(pod, 30)
	}
}

// loseSwap has the launcher of a worker end with all that it knows, and the controller with it, as the
// entry loads or waits for its commit.
func (w *world) loseSwap(of *start, as program.State) {
	if worker := w.truth.swaps[of.attempts[1]]; worker != nil && w.losesSwaps == as && worker.l.answers() {
		w.losesSwaps = ""
		w.proc.kill()
		clear(worker.l.swaps)
		worker.l.restartContainer(w.Between("back", 100*time.Millisecond, 3*time.Second), w.Between("kubelet", 0, 20*time.Second))
	}
}

// engine picks one whose processes run.
func (w *world) engine(arg uint64) (*engine, bool) {
	var all []*engine
	for _, uid := range sorted(w.launchers) {
		for _, id := range sorted(w.launchers[uid].all) {
			if e := w.launchers[uid].all[id]; e.runs() && e.State != string(program.Sleeping) {
				all = append(all, e)
			}
		}
	}
	return pick(all, arg/4)
}
