package binding

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

// happen has an event happen.
func (s *sim) happen(e simEvent) {
	long := time.Duration(e.arg%9000+100) * time.Millisecond
	switch e.what {
	case "create":
		gpus := 1
		if e.arg/7%8 == 0 {
			gpus = 2
		}
		name := s.create(int(e.arg%simModels), gpus, e.arg/64%3 == 0, e.arg/256%4 == 0)
		if e.arg>>16%6 == 1 {
			s.namesNone(name, int(e.arg%simModels), e.arg/1024%2 == 0)
		}
	case "create together":
		s.create(int(e.arg%simModels), 1, e.arg/64%3 == 0, e.arg/256%4 == 0)
		s.create(int(e.arg/8%simModels), 1, e.arg/128%3 == 0, e.arg/256%4 == 0)
	case "create anywhere":
		s.namesNone(s.create(int(e.arg%simModels), 1, e.arg/64%3 == 0, true), int(e.arg%simModels), e.arg/1024%2 == 0)
	case "delete", "force", "vanish", "restart program", "hang program", "end program", "touch", "lie", "disguise", "end by kubelet", "end and forget", "unready by hand":
		if name, ok := pick(s.targets(), e.arg); ok {
			s.happenTo(e, s.api.pods[name], long)
		}
	case "create on demand":
		s.create(simModels-1, 1, e.arg/64%3 == 0, e.arg/256%4 == 0)
	case "create and move":
		name := s.createLate(e)
		s.after(50*time.Millisecond+long/3, func() { s.move(name) })
	case "create a liar":
		s.odd = append(s.odd, simOddity{others: true})
		s.createLate(e)
	case "hold GPU":
		if l, ok := pick(s.livingLaunchers(), e.arg); ok {
			for _, gpu := range l.gpus[e.arg/16%simGPUs:] {
				l.hold(gpu, 5*long)
			}
		}
	case "policy":
		s.policy = true
	case "no service":
		s.service = false
	case "slow call":
		s.slowCalls = append(s.slowCalls, long)
	case "slow order":
		s.slowOrders = append(s.slowOrders, long)
	case "late swap": // of one that leaves before; its GPU is another's by then
		s.slowCalls = append(s.slowCalls, 10*time.Second)
		name := s.create(int(e.arg%simModels), 1, false, false)
		s.after(1500*time.Millisecond, func() { s.api.deletePod(name, 0) })
		s.after(6*time.Second, func() { s.create(int((e.arg+1)%simModels), 1, false, false) })
	case "odd programs":
		s.odd = append(s.odd, simOddity{lies: e.arg/4%3 == 0, mute: time.Duration(e.arg%2) * long})
	case "damage record":
		if name, ok := pick(s.bound(true), e.arg); ok {
			s.damage(name, long)
		}
	case "hang and delete", "lose both", "hang and edit", "silence and vanish":
		if name, ok := pick(s.bound(e.what != "hang and edit"), e.arg); ok {
			s.happenTwice(e, s.api.pods[name], long)
		}
	case "reinstall":
		s.reinstall()
	case "kill controller":
		s.inc.killAt = s.steps + 1 + int(e.arg%24)
	case "edit config":
		s.putConfig(int(e.arg%simModels), fmt.Sprintf("edition-%d", e.arg%5))
	case "reseat":
		s.reseat(e)
	case "break input", "mend input":
		s.happenToInput(e)
	case "silence kubelet":
		if name, ok := pick(sortedKeys(s.api.nodes), e.arg); ok {
			s.silence(name, []string{kubeletRefuses, kubeletHangs, kubeletUnasked}[e.arg/8%3])
			if e.arg%2 > 0 { // else for long
				s.after(long, func() { s.answers(name) })
			}
		}
	case "refuse sleep":
		if one, ok := pick(s.instances(launcher.Awake), e.arg); ok {
			_, i := one()
			i.sleepless = true
			s.note("(%s does not sleep any more)", i.InstanceID)
		}
	case oddBind, oddProxy, oddRefusal, oddUnready, oddStays:
		for _, p := range s.programs {
			if p.odd != oddStays { // which stays, for the next call may be minutes away
				p.odd = e.what
			}
		}
	case "slow pulls":
		s.slowPulls++
	case "late containers":
		s.latePods += 1 + int(e.arg%3)
	case "unselect":
		if name, ok := pick(sortedKeys(s.api.nodes), e.arg); ok {
			s.label(name, false)
			if e.arg/4%2 > 0 { // else for long
				s.after(5*long, func() { s.label(name, true) })
			}
		}
	case "stranger":
		s.addStranger("node-0", e.arg)
	case "restart launcher", "kill launcher", "silence launcher", "delete launcher", "hold launcher", "vanish launcher", "end launcher", "evict launcher":
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
	case "model goes", "models go", "model comes", "models unheard":
		s.happenToModels(e, long)
	case "fall behind", "wake unheard":
		s.happenToTheNext(e)
	case loseLabels:
		s.loseLabels()
	case "cordon", "delete node", "forget node", "node comes back":
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
	case "disguise":
		s.disguise(pod.Name, e.arg)
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
	case "end by kubelet":
		if pod.DeletionTimestamp == nil {
			s.endsByKubelet(pod, p, e.arg/8%simEnds)
		}
	case "unready by hand":
		p.becomesUnready()
	case "end and forget":
		s.endsAndForgets(pod, p, e.arg/8%2 > 0)
	case "lie":
		s.lie(p, e.arg/simModels)
	}
}

// disguise has somebody make something else of a requester that the controller
// holds: its input is gone, or it has the labels of a launcher.
func (s *sim) disguise(name string, how uint64) {
	if !slices.Contains(s.api.pods[name].Finalizers, podmeta.FinalizerRequester) {
		return
	}
	s.api.changePod(name, func(p *corev1.Pod) {
		if how/8%2 == 0 {
			delete(p.Annotations, podmeta.AnnotationInferenceServerConfig)
			delete(p.Annotations, podmeta.AnnotationServerPatch)
			return
		}
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels[podmeta.LabelComponent], p.Labels[podmeta.LabelLauncherConfig] = podmeta.ComponentLauncher, "each"
	})
}

// happenTwice has something happen to a requester that is served, and soon
// something else.
func (s *sim) happenTwice(e simEvent, pod *corev1.Pod, long time.Duration) {
	first := simEvent{what: []string{"hang program", "restart program"}[e.arg/2%2], arg: e.arg}
	second, soon := func() { s.api.deletePod(pod.Name, 30) }, long/30
	switch e.what {
	case "hang and delete":
		first.what = "hang program"
	case "hang and edit":
		first, soon = simEvent{what: "hang program"}, long // for good
		second = func() { s.edit(pod, fmt.Sprintf("edition-%d", e.arg%5)) }
	case "silence and vanish": // and its GPU goes to one of another launcher
		if l, _ := s.programs[pod.UID].target(); l != nil {
			s.happenToLauncher(simEvent{what: "silence launcher", arg: e.arg}, l, long)
		}
		first = simEvent{what: []string{"vanish", "end program"}[e.arg/16%2]}
		second = func() { s.create(int(e.arg/64%2)*(simModels-1), 1, false, false) }
	case "lose both":
		l, _ := s.programs[pod.UID].target()
		if l == nil {
			return
		}
		second = func() { s.happenToLauncher(simEvent{what: "vanish launcher", arg: e.arg}, l, long) }
		if e.arg/8%3 == 0 { // nothing can be written for long
			first = simEvent{what: "API down", arg: 7000 + e.arg%2000}
			s.happen(first)
		}
	}
	s.happenTo(first, pod, long)
	s.after(soon, second)
}

// noDriver is why a program cannot tell its GPUs.
const noDriver = "no driver answers"

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
		p.mute = noDriver
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
	if e.what == "break input" && e.arg/8%2 == 0 {
		s.api.dropConfig(s.api.pods[name].Annotations[podmeta.AnnotationInferenceServerConfig])
		return
	}
	s.edit(s.api.pods[name], edition)
}

// edit changes what a requester asks for.
func (s *sim) edit(pod *corev1.Pod, edition string) {
	model := 0
	if _, err := fmt.Sscanf(pod.Annotations[podmeta.AnnotationInferenceServerConfig], "model-%d", &model); err == nil {
		s.putConfig(model, edition)
		return
	}
	for m := range simModels {
		if strings.Contains(pod.Annotations[podmeta.AnnotationServerPatch], modelName(m)) {
			model = m
		}
	}
	s.api.changePod(pod.Name, func(p *corev1.Pod) { p.Annotations[podmeta.AnnotationServerPatch] = patchOf(model, edition) })
}

func (s *sim) happenToLauncher(e simEvent, l *simLauncher, long time.Duration) {
	switch e.what {
	case "restart launcher", "kill launcher":
		l.lose(time.Duration(e.arg%50) * time.Millisecond)
		l.down = true
		clear(l.early)
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
	case "end launcher":
		l.endContainer(e.arg, long)
	case "evict launcher":
		l.evict()
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
			go l.wakeByHand(i)
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
	node := s.api.nodes[name]
	s.api.dropNode(name)
	if e.what == "node comes back" { // its machine went on, and so did its Pods
		s.disturb(long + 3*time.Second)
		s.after(long, func() { s.api.putNode(node.DeepCopy()) })
		return
	}
	if e.what == "forget node" { // somebody deletes the object alone; its machine goes on
		s.after(5*time.Second+long, func() { s.endNode(name) })
		return
	}
	s.endNode(name)
}

// endNode ends the machine of a node that was deleted.
func (s *sim) endNode(name string) {
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
	s.slowCalls, s.slowOrders, s.odd = nil, nil, nil
	s.failStart, s.api.down, s.api.flaky, s.inc.killAt = 0, false, 0, 0
	for _, node := range sortedKeys(s.kubelets) {
		s.answers(node)
	}
	s.lateModels = 0
	for _, node := range sortedKeys(s.lacks) {
		for model := range simModels {
			s.hasModel(node, model, true)
		}
	}
	for _, l := range s.launchers {
		l.down, l.silent = false, false
		l.beginAgain(nil)
		s.api.changePod(l.pod, func(p *corev1.Pod) {
			p.Finalizers = slices.DeleteFunc(p.Finalizers, func(f string) bool { return f == heldBy })
		})
	}
	for _, key := range sortedKeys(s.api.pods) {
		if p := s.programs[s.api.pods[key].UID]; p != nil {
			if p.hung = false; p.odd != oddStays {
				p.odd = ""
			}
			if s.chance("stops lying", 50) && !p.honest() && p.up {
				s.lie(p, 11)
			}
		}
	}
	for _, name := range sortedKeys(s.api.nodes) {
		s.uncordon(name)
		s.label(name, true)
	}
}
