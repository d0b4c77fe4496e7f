package binding

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

// simEvent is something that happens to the simulated world.
type simEvent struct {
	at   time.Duration
	what string
	arg  uint64 // which object, how long: what it means depends on the event
}

func (e simEvent) String() string { return fmt.Sprintf("%v %s (%d)", e.at, e.what, e.arg) }

// simChances says what scripts are made of.
var simChances = []struct {
	what   string
	weight int
}{
	{"create", 30}, {"delete", 16}, {"force", 5}, {"vanish", 4}, {"kill controller", 12}, {"edit config", 3},
	{"restart launcher", 4}, {"kill launcher", 3}, {"silence launcher", 3}, {"delete launcher", 3}, {"kill engine", 6},
	{"fail starts", 3}, {"API down", 3}, {"API flaky", 3}, {"restart program", 4}, {"hang program", 4},
	{"end program", 2}, {"touch", 3}, {"cordon", 2}, {"delete node", 1}, {"sleep by hand", 3}, {"wake by hand", 2}, {"delete by hand", 3}, {"lie", 3},
	{"break input", 3}, {"mend input", 2}, {"hold launcher", 1}, {"vanish launcher", 3}, {"slow pulls", 1}, {"sleep and kill", 2}, {"silence kubelet", 2},
}

// simThemes are what some scripts have much of.
var simThemes = [][]string{
	{}, {}, {},
	{"kill engine", "sleep by hand", "delete by hand", "kill controller"},
	{"break input", "mend input", "edit config", "fail starts"},
	{"lie", "restart program", "hang program", "delete"},
	{"silence launcher", "restart launcher", "delete launcher", "hold launcher", "vanish launcher"},
	{"cordon", "slow pulls", "create"},
	{"fail starts", "kill controller", "delete", "kill engine"},
	{"hang program", "delete", "force", "vanish"},
	{"hang program", "restart program", "vanish launcher"},
	{"sleep and kill", "kill launcher", "kill controller"},
	{"end program", "create"},
	{"silence kubelet", "kill controller", "create"},
	{"API flaky", "API down", "kill engine", "lie"},
}

// drawScript makes the script of a seed.
func drawScript(seed uint64) (script []simEvent) {
	s := &sim{seed: seed, draws: map[string]uint64{}}
	chances, total := slices.Clone(simChances), 0
	theme := simThemes[s.draw("theme", uint64(len(simThemes)))]
	for n := range chances {
		if slices.Contains(theme, chances[n].what) {
			chances[n].weight = 4 * (chances[n].weight + 3)
		}
		total += chances[n].weight
	}
	at := time.Duration(0)
	for range 3 + s.draw("events", 22) {
		at += s.between("gap", time.Millisecond, 40*time.Millisecond) << s.draw("gaps", 8)
		x := int(s.draw("what", uint64(total)))
		for _, c := range chances {
			if x -= c.weight; x < 0 {
				script = append(script, simEvent{at, c.what, s.draw("arg", 1<<20)})
				break
			}
		}
	}
	return append([]simEvent{{at: time.Millisecond, what: "create", arg: s.draw("arg", 1<<20)}}, script...)
}

// pick is one of some things, nothing where there is none.
func pick[T any](from []T, arg uint64) (one T, ok bool) {
	if len(from) == 0 {
		return one, false
	}
	return from[arg%uint64(len(from))], true
}

func (s *sim) requesters() (names []string) {
	for _, name := range sortedKeys(s.api.pods) {
		if podmeta.IsRequester(s.api.pods[name]) {
			names = append(names, name)
		}
	}
	return names
}

// targets are the requesters, and those that are served more often.
func (s *sim) targets() []string {
	all := s.requesters()
	for _, name := range s.requesters() {
		if p := s.programs[s.api.pods[name].UID]; p != nil && p.proxy.Ready {
			all = append(all, name, name)
		}
	}
	return all
}

func (s *sim) livingLaunchers() (all []*simLauncher) {
	for _, key := range sortedKeys(s.launchers) {
		if !s.launchers[key].dead {
			all = append(all, s.launchers[key])
		}
	}
	return all
}

// instances are those in one of these states.
func (s *sim) instances(states ...launcher.State) (all []func() (*simLauncher, *simInstance)) {
	for _, l := range s.livingLaunchers() {
		for _, id := range sortedKeys(l.all) {
			if i := l.all[id]; slices.Contains(states, launcher.State(i.State)) {
				all = append(all, func() (*simLauncher, *simInstance) { return l, i })
			}
		}
	}
	return all
}

// happen has an event happen.
func (s *sim) happen(e simEvent) {
	long := time.Duration(e.arg%9000+100) * time.Millisecond
	switch e.what {
	case "create":
		gpus := 1
		if e.arg/7%8 == 0 {
			gpus = 2
		}
		s.create(int(e.arg%simModels), gpus, e.arg/64%3 == 0, e.arg/256%4 == 0)
	case "delete", "force", "vanish", "restart program", "hang program", "end program", "touch", "lie":
		if name, ok := pick(s.targets(), e.arg); ok {
			s.happenTo(e, s.api.pods[name], long)
		}
	case "kill controller":
		s.inc.killAt = s.steps + 1 + int(e.arg%24)
	case "edit config":
		s.putConfig(int(e.arg%simModels), fmt.Sprintf("edition-%d", e.arg%5))
	case "break input", "mend input":
		s.happenToInput(e)
	case "silence kubelet":
		if name, ok := pick(sortedKeys(s.api.nodes), e.arg); ok {
			if s.kubelets[name] == kubeletAnswers {
				s.kubeletsBy[name] = time.Now()
			}
			s.kubelets[name] = []string{kubeletRefuses, kubeletHangs}[e.arg/8%2]
			if e.arg%2 > 0 { // else for long
				s.after(long, func() { s.kubelets[name] = kubeletAnswers })
			}
		}
	case "slow pulls":
		s.slowPulls++
	case "restart launcher", "kill launcher", "silence launcher", "delete launcher", "hold launcher", "vanish launcher":
		if l, ok := pick(s.livingLaunchers(), e.arg); ok {
			s.happenToLauncher(e, l, long)
		}
	case "kill engine", "sleep by hand", "wake by hand", "delete by hand", "sleep and kill":
		s.happenToEngine(e)
	case "fail starts":
		s.failStart += int(e.arg%3) + 1
		if e.arg/4%3 == 0 { // for long
			s.failStart += 100
		}
	case "API down":
		s.disturb(long)
		s.api.down = true
		s.after(long, func() { s.api.down = false })
	case "API flaky":
		s.disturb(long)
		s.api.flaky = 30
		s.after(long, func() { s.api.flaky = 0 })
	case "cordon", "delete node":
		s.happenToNode(e, long)
	}
}

func (s *sim) happenTo(e simEvent, pod *corev1.Pod, long time.Duration) {
	p := s.programs[pod.UID]
	switch e.what {
	case "delete":
		s.api.deletePod(pod.Name, 30)
	case "force":
		s.api.deletePod(pod.Name, 0)
	case "vanish": // with its finalizers taken off by hand
		s.byHand[pod.UID] = true
		s.api.deletePod(pod.Name, 0)
		s.api.changePod(pod.Name, func(p *corev1.Pod) { p.Finalizers = nil })
	case "touch": // somebody writes to it, so that the controller's write meets a conflict
		s.api.changePod(pod.Name, func(p *corev1.Pod) {
			p.Annotations["touched"] = fmt.Sprint(e.arg)
		})
	}
	if p == nil || !p.up || p.dead {
		return
	}
	switch e.what {
	case "restart program":
		s.restartProgram(p, time.Duration(e.arg%1500)*time.Millisecond)
	case "hang program":
		p.hung = true
		if e.arg%3 > 0 { // else for long
			s.disturb(long + 5*time.Second)
			s.after(long, func() { p.hung = false })
		}
	case "end program":
		s.endContainers(pod)
	case "lie":
		s.lie(p, e.arg/simModels)
	}
}

// lie has a requester program say something else of its GPUs.
func (s *sim) lie(p *simProgram, how uint64) {
	was := p.mute
	p.lie, p.mute = nil, ""
	switch how % 6 {
	case 0, 1:
		p.lie = nodeGPUs(p.node)[:len(p.gpus)]
	case 2:
		p.lie = append(slices.Clone(p.gpus[1:]), "GPU-of-nobody")
	case 3:
		if p.lie = slices.Clone(p.gpus[1:]); len(p.lie) == 0 {
			p.lie = nodeGPUs(p.node)
		}
	case 4:
		p.mute = "no driver answers"
	}
	s.note("%s says that it has %v %s", p.pod, p.lie, p.mute)
	if was == "" || p.mute != "" || how/8%2 == 0 { // a driver may come while the program runs
		s.restartProgram(p, 100*time.Millisecond)
	}
}

// happenToInput breaks what a requester asks for, or mends it.
func (s *sim) happenToInput(e simEvent) {
	edition := wrongEdition
	if e.what == "mend input" {
		edition = "first"
	}
	name, ok := pick(s.requesters(), e.arg)
	if !ok {
		return
	}
	model := int(e.arg / 32 % simModels)
	switch {
	case s.api.pods[name].Annotations[podmeta.AnnotationServerPatch] != "":
		s.api.changePod(name, func(p *corev1.Pod) { p.Annotations[podmeta.AnnotationServerPatch] = patchOf(model, edition) })
	case e.what == "break input" && e.arg/8%2 == 0:
		s.api.dropConfig(s.api.pods[name].Annotations[podmeta.AnnotationInferenceServerConfig])
	default:
		if _, err := fmt.Sscanf(s.api.pods[name].Annotations[podmeta.AnnotationInferenceServerConfig], "model-%d", &model); err == nil {
			s.putConfig(model, edition)
		}
	}
}

func (s *sim) happenToLauncher(e simEvent, l *simLauncher, long time.Duration) {
	switch e.what {
	case "restart launcher", "kill launcher":
		l.lose(time.Duration(e.arg%50) * time.Millisecond)
		l.down = true
		if e.what == "kill launcher" { // with its engines
			for _, id := range sortedKeys(l.all) {
				l.move(l.all[id], launcher.Failed, "its launcher was killed")
			}
		}
		back := time.Duration(e.arg%2500+100) * time.Millisecond
		s.disturb(back + 4*time.Second)
		s.after(back, func() { l.down = false })
	case "silence launcher":
		l.silent = true
		l.lose(6 * time.Second)
		s.disturb(long + 10*time.Second)
		if e.arg%2 > 0 { // else for long
			s.after(long, func() { l.silent = false })
		}
	case "hold launcher": // somebody else's finalizer keeps the Pod
		s.api.changePod(l.pod, func(p *corev1.Pod) { p.Finalizers = append(p.Finalizers, heldBy) })
		s.disturb(5 * time.Second)
		s.api.deletePod(l.pod, 30)
	case "vanish launcher":
		s.disturb(5 * time.Second)
		l.die()
		s.api.deletePod(l.pod, 0)
		s.api.changePod(l.pod, func(p *corev1.Pod) { p.Finalizers = nil })
	case "delete launcher":
		s.disturb(5 * time.Second)
		s.api.deletePod(l.pod, 30)
	}
}

func (s *sim) happenToEngine(e simEvent) {
	states := map[string][]launcher.State{
		"kill engine":    {launcher.Starting, launcher.Awake, launcher.FallingAsleep, launcher.Sleeping, launcher.Waking},
		"sleep by hand":  {launcher.Awake},
		"sleep and kill": {launcher.Awake},
		"wake by hand":   {launcher.Sleeping},
		"delete by hand": {launcher.Starting, launcher.Awake, launcher.FallingAsleep, launcher.Sleeping, launcher.Waking, launcher.Failed},
	}
	one, ok := pick(s.instances(states[e.what]...), e.arg)
	if !ok {
		return
	}
	l, i := one()
	if e.what != "kill engine" && (!l.reachable() || e.what != "delete by hand" && i.SwapID != "") {
		return
	}
	s.note("(%s on %s)", i.InstanceID, l.pod)
	switch e.what {
	case "kill engine":
		l.set(i, func(v *launcherapi.Instance) { v.State, v.Reason = string(launcher.Failed), "its engine was killed" })
	case "sleep by hand":
		go l.fallAsleep(i)
	case "sleep and kill":
		go l.fallAsleep(i)
		s.after(time.Duration(e.arg%2000)*time.Millisecond, func() {
			if !i.gone && i.State != string(launcher.Stopping) {
				l.set(i, func(v *launcherapi.Instance) { v.State, v.Reason = string(launcher.Failed), "its engine was killed" })
			}
		})
	case "wake by hand":
		if l.turns[i.GPUUUIDs[0]] == nil {
			go l.wakeUp(i)
		}
	case "delete by hand":
		go l.stop(i)
	}
}

func (s *sim) happenToNode(e simEvent, long time.Duration) {
	name, ok := pick(sortedKeys(s.api.nodes), e.arg)
	if !ok {
		return
	}
	if e.what == "cordon" {
		node := s.api.nodes[name].DeepCopy()
		node.Spec.Unschedulable = true
		s.api.putNode(node)
		if e.arg/4%2 > 0 { // else for long
			s.after(long, func() { s.uncordon(name) })
		}
		return
	}
	s.disturb(3 * time.Second)
	s.api.dropNode(name)
	for _, pod := range sortedKeys(s.api.pods) { // the Pod garbage collector, and the end of the machine
		if s.api.pods[pod].Spec.NodeName == name {
			gone := s.api.pods[pod]
			if p := s.programs[gone.UID]; p != nil {
				p.end()
				p.dead = true
			}
			if l := s.launchers[string(gone.UID)]; l != nil {
				l.die()
			}
			s.after(s.between("garbage", 10*time.Millisecond, 2*time.Second), func() { s.api.deletePod(pod, 0) })
		}
	}
}

func (s *sim) uncordon(name string) {
	if node := s.api.nodes[name]; node != nil && node.Spec.Unschedulable {
		node = node.DeepCopy()
		node.Spec.Unschedulable = false
		s.api.putNode(node)
		s.schedule()
	}
}

// heldBy is a finalizer of somebody else.
const heldBy = "example.com/hold"

// heal ends all faults, and some of what was wrong with requesters.
func (s *sim) heal() {
	s.note("--- all is mended")
	s.disturb(5 * time.Second)
	s.healed = true
	s.failStart, s.api.down, s.api.flaky, s.inc.killAt = 0, false, 0, 0
	s.kubelets = map[string]string{}
	for _, l := range s.launchers {
		l.down, l.silent = false, false
		s.api.changePod(l.pod, func(p *corev1.Pod) {
			p.Finalizers = slices.DeleteFunc(p.Finalizers, func(f string) bool { return f == heldBy })
		})
	}
	for _, key := range sortedKeys(s.api.pods) {
		if p := s.programs[s.api.pods[key].UID]; p != nil {
			p.hung = false
			if s.chance("stops lying", 50) && !p.honest() && p.up {
				s.lie(p, 11)
			}
		}
	}
	for _, name := range sortedKeys(s.api.nodes) {
		s.uncordon(name)
	}
}
