package binding

import (
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/requesterapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

const (
	simNodes  = 2
	simGPUs   = 2 // of a node
	simModels = 4
)

// launchersOf says whose launchers serve a model: a DaemonSet makes those of
// "each", the controller makes those of "demand".
func launchersOf(model int) string {
	if model == simModels-1 {
		return "demand"
	}
	return "each"
}

// setUp makes nodes with a launcher each, and what requesters name.
func (s *sim) setUp() {
	for n := range simNodes {
		node := fmt.Sprintf("node-%d", n)
		s.api.putNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{simLabel: "yes"}}})
		s.addLauncher(node, "each")
		s.addAgent(node)
	}
	for n := range simModels {
		s.putConfig(n, "first")
	}
	if s.chance("strangers", 15) {
		for n := range simNodes {
			s.addStranger(fmt.Sprintf("node-%d", n), uint64(n)+s.draw("stranger", 5))
		}
	}
}

func (s *sim) putConfig(model int, edition string) {
	config := &v1alpha1.InferenceServerConfig{
		ObjectMeta: metav1.ObjectMeta{Name: modelName(model), Namespace: "ns"},
		Spec: v1alpha1.InferenceServerConfigSpec{LauncherConfigName: launchersOf(model), ModelServerConfig: v1alpha1.ModelServerConfig{
			Port: 8000, Args: []string{"org/" + modelName(model), "--seed=" + edition},
		}},
	}
	if simLabelled(model) {
		config.Spec.ModelServerConfig.Labels = map[string]v1alpha1.LabelValue{"model": v1alpha1.LabelValue(modelName(model))}
	}
	if edition == wrongEdition {
		options := "org/twice"
		config.Spec.ModelServerConfig.Options = &options
	}
	s.api.putConfig(config)
}

// wrongEdition makes an input that cannot be used.
const wrongEdition = "wrong"

func modelName(model int) string { return fmt.Sprintf("model-%d", model) }

// simLabelled says that a model's requesters ask for a label. Without one, a gate alone says that
// they serve.
func simLabelled(model int) bool { return model%2 == 0 }

// patchOf is the server patch that gives the same as the model's config.
func patchOf(model int, edition string) string {
	if edition == wrongEdition {
		return "spec: [this is no Pod]"
	}
	labels := ""
	if simLabelled(model) {
		labels = fmt.Sprintf(`"labels": {"model": %q}, `, modelName(model))
	}
	return fmt.Sprintf(`{"metadata": {%s"annotations": {%q: %q}}, "spec": {"containers": [{"name": %q, "command": ["vllm", "serve"], "args": [%q, %q]}]}}`,
		labels, podmeta.AnnotationLauncherConfig, launchersOf(model), podmeta.ServingContainer, "org/"+modelName(model), "--seed="+edition)
}

func nodeGPUs(node string) (gpus []string) {
	for n := range simGPUs {
		gpus = append(gpus, fmt.Sprintf("GPU-%s-%d", node, n))
	}
	return gpus
}

// number makes names and addresses.
func (s *sim) number(kind string) int {
	s.numbers[kind]++
	return s.numbers[kind]
}

// address is one that no Pod has had.
func (s *sim) address() string {
	n := s.number("address")
	return fmt.Sprintf("10.1.%d.%d", n/200, n%200+1)
}

// launcherOn is a node's launcher Pod of a LauncherConfig, and not one that has
// the labels of one.
func (s *sim) launcherOn(node, config string) *corev1.Pod {
	for _, pod := range s.api.pods {
		if strings.HasPrefix(pod.Name, launcherPrefix) && pod.Spec.NodeName == node && pod.Labels[podmeta.LabelLauncherConfig] == config {
			return pod
		}
	}
	return nil
}

// addLauncher makes a launcher Pod of a LauncherConfig.
func (s *sim) addLauncher(node, config string) {
	if s.api.nodes[node] == nil || !s.selects(node) || s.launcherOn(node, config) != nil {
		return
	}
	name := fmt.Sprintf(launcherPrefix+"%s-%d", node, s.number("launcher"))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "ns", UID: types.UID(name), CreationTimestamp: metav1.Now(),
			Labels:          map[string]string{podmeta.LabelComponent: podmeta.ComponentLauncher, podmeta.LabelLauncherConfig: config, podmeta.LabelModelNodeGroup: "all"},
			OwnerReferences: []metav1.OwnerReference{simOwner(config)},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: podmeta.ServingContainer, Image: simImage}}},
	}
	if config == "demand" {
		mountData(&pod.Spec)
	} else {
		key, value := simForeignRecord(node)
		pod.Annotations = map[string]string{key: value}
	}
	s.api.putPod(pod)
	s.after(s.between("launcher runs", 100*time.Millisecond, time.Second), func() {
		pod := s.api.pods[name]
		if pod == nil || pod.DeletionTimestamp != nil || s.api.nodes[node] == nil {
			return
		}
		l := s.newLauncher(name, name, node, s.address(), nodeGPUs(node))
		s.note("launcher %s runs", name)
		s.api.changePod(name, func(p *corev1.Pod) { runs(p, l.ip) })
	})
}

func runs(p *corev1.Pod, ip string) {
	p.Status.Phase, p.Status.PodIP = corev1.PodRunning, ip
	all := func(containers []corev1.Container) (statuses []corev1.ContainerStatus) {
		for _, c := range containers {
			statuses = append(statuses, corev1.ContainerStatus{
				Name: c.Name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
			})
		}
		return statuses
	}
	p.Status.InitContainerStatuses, p.Status.ContainerStatuses = all(p.Spec.InitContainers), all(p.Spec.Containers)
}

// programIs is what the kubelet says of the container of a Pod's program. The container that
// waits for a sidecar goes on.
func programIs(p *corev1.Pod, state corev1.ContainerState) {
	program := podmeta.ProgramOf(p)
	status := []corev1.ContainerStatus{{Name: program.Name, State: state}}
	if program.Name == podmeta.SidecarContainer {
		p.Status.InitContainerStatuses = status
	} else {
		p.Status.ContainerStatuses = status
	}
}

// waitsForImage is what the kubelet says of a Pod whose image cannot be pulled.
func waitsForImage(p *corev1.Pod) {
	if p.DeletionTimestamp == nil && !podmeta.Finished(p) {
		programIs(p, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}})
	}
}

// ended is what the kubelet says of a Pod that has ended for good.
func ended(p *corev1.Pod) {
	p.Status.Phase = corev1.PodFailed
	p.Status.ContainerStatuses = nil
	programIs(p, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}})
	if p.DeletionTimestamp != nil {
		zero := int64(0)
		p.DeletionGracePeriodSeconds = &zero
	}
}

// die ends a launcher and its engines.
func (l *simLauncher) die() {
	if l.dead {
		return
	}
	l.lose(0)
	l.dead = true
	l.end()
	for _, id := range sortedKeys(l.all) {
		l.s.died(l, l.all[id], "its launcher ended")
	}
	l.all = map[string]*simInstance{}
	l.s.note("launcher %s has ended", l.pod)
}

// simProgram is a requester program.
type simProgram struct {
	s         *sim
	uid       types.UID
	pod       string
	container string
	node      string
	ip        string
	gpus      []string
	was       []string // that the kubelet gave it before; nil: none
	lie       []string // what it says instead
	mute      string   // why it cannot tell
	placed    time.Time
	up        bool
	began     time.Time // the last time; zero: it has not run
	hung      bool
	probed    bool   // the kubelet's probes are simulated
	odd       string // what is wrong with its answers: one of odd…
	asked     int
	dead      bool // for good
	proxy     requesterapi.Proxy
	heldFor   string // the instance that it holds connections for
	drained   chan struct{}
	delayed   time.Time // the end of its shutdown delay
}

func (p *simProgram) address() string { return p.ip + ":8081" }

// ran reports whether the program has begun once.
func (p *simProgram) ran() bool { return !p.began.IsZero() }

// simOddity is what is wrong with a program.
type simOddity struct {
	lies   bool          // it names the first GPUs of the node, or
	others bool          // GPUs of the node that are not its own, or
	mute   time.Duration // how long it cannot tell its GPUs; 0: for good
}

// oddly has a program be odd where it is its turn to be.
func (p *simProgram) oddly() {
	if len(p.s.odd) == 0 {
		return
	}
	how := p.s.odd[0]
	p.s.odd = p.s.odd[1:]
	switch p.mute = noDriver; {
	case how.lies:
		p.lie, p.mute = nodeGPUs(p.node)[:len(p.gpus)], ""
	case how.others:
		p.lie, p.mute = slices.DeleteFunc(nodeGPUs(p.node), func(gpu string) bool { return slices.Contains(p.gpus, gpu) }), ""
	case how.mute > 0:
		p.s.after(how.mute, func() { p.mute = "" })
	}
	p.s.note("%s says that it has %v %s", p.pod, p.lie, p.mute)
}

// there is the program's Pod; nil: it is gone.
func (p *simProgram) there() *corev1.Pod {
	if pod := p.s.api.pods[p.pod]; pod != nil && pod.UID == p.uid {
		return pod
	}
	return nil
}

// simSet makes a requester again under its name when that has gone.
type simSet struct {
	model, gpus int
	gate, patch bool
	left        int // how often
}

// simAgain stands in the UIDs of Pods, behind their names, which others had before.
const simAgain = "~"

// create makes a requester.
func (s *sim) create(model, gpus int, gate, patch bool) (name string) {
	n := s.number("requester")
	if s.chance("set", 25) {
		name = fmt.Sprintf("set-%d", n)
		s.sets[name] = &simSet{model, gpus, gate, patch, 2}
		s.createAs(name, "", types.UID(name), s.sets[name])
		return name
	}
	name = fmt.Sprintf("req-bbb%c%c", 'b'+n/10, "cdfghjklmn"[n%10])
	s.createAs(name, "req-", types.UID(name), &simSet{model, gpus, gate, patch, 0})
	return name
}

// comesAgain has a set make a requester again.
func (s *sim) comesAgain(name string) {
	set := s.sets[name]
	if set == nil || set.left == 0 {
		return
	}
	s.after(s.between("set", time.Millisecond, 200*time.Millisecond), func() {
		if s.api.pods[name] == nil && set.left > 0 {
			set.left--
			s.createAs(name, "", types.UID(fmt.Sprintf("%s%s%d", name, simAgain, set.left)), set)
		}
	})
}

func (s *sim) createAs(name, generated string, uid types.UID, of *simSet) {
	model, gpus, gate, patch := of.model, of.gpus, of.gate, of.patch
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, GenerateName: generated, Namespace: "ns", UID: uid, CreationTimestamp: metav1.Now(),
			Annotations: map[string]string{podmeta.AnnotationInferenceServerConfig: modelName(model)},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: podmeta.ServingContainer, Image: "requester",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{podmeta.ResourceGPU: *resource.NewQuantity(int64(gpus), resource.DecimalSI)}},
		}}},
	}
	if crc32.ChecksumIEEE([]byte(uid))%2 == 0 {
		asSidecar(&pod.Spec)
	}
	if crc32.ChecksumIEEE([]byte(uid))%3 == 0 {
		pod.Annotations[podmeta.AnnotationOnExit] = string(podmeta.OnExitRestart)
	}
	if gate {
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: podmeta.ReadinessGate}}
	}
	if s.policy {
		pod.Finalizers = []string{podmeta.FinalizerRequester}
	}
	if patch {
		pod.Annotations = map[string]string{podmeta.AnnotationServerPatch: patchOf(model, "first")}
	}
	s.api.putPod(pod)
	s.after(s.between("scheduler", time.Millisecond, 20*time.Millisecond), s.schedule)
}

// asSidecar has a requester run its program in a sidecar.
func asSidecar(spec *corev1.PodSpec) {
	program := spec.Containers[0]
	program.Name, program.RestartPolicy = podmeta.SidecarContainer, new(corev1.ContainerRestartPolicyAlways)
	spec.InitContainers = []corev1.Container{program}
	spec.Containers = []corev1.Container{{Name: podmeta.ServingContainer, Image: "requester", Args: []string{"wait"}}}
}

// gpusAsked is how many GPUs a requester asks for.
func gpusAsked(pod *corev1.Pod) int {
	n, _ := podmeta.GPUs(podmeta.ProgramOf(pod).Container.Resources.Limits)
	return n
}

// free are the GPUs of a node that no Pod has: one that is there and has not
// ended has its own.
func (s *sim) free(node string) (gpus []string) {
	for _, gpu := range nodeGPUs(node) {
		taken := false
		for _, p := range s.programs {
			pod := s.api.pods[p.pod]
			taken = taken || slices.Contains(p.gpus, gpu) && pod != nil && pod.UID == p.uid && !podmeta.Finished(pod)
		}
		if !taken {
			gpus = append(gpus, gpu)
		}
	}
	return gpus
}

// schedule is the scheduler, and the kubelet's allocation of GPUs.
func (s *sim) schedule() {
	var waiting []*corev1.Pod
	for _, name := range sortedKeys(s.api.pods) {
		if pod := s.api.pods[name]; pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
			waiting = append(waiting, pod)
		}
	}
	slices.SortFunc(waiting, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, pod := range waiting {
		want := gpusAsked(pod)
		for _, node := range sortedKeys(s.api.nodes) {
			free := s.free(node)
			if s.api.nodes[node].Spec.Unschedulable || len(free) < want {
				continue
			}
			s.place(pod, node, free[:want])
			break
		}
	}
}

func (s *sim) place(pod *corev1.Pod, node string, gpus []string) {
	p := &simProgram{s: s, placed: time.Now(), uid: pod.UID, pod: pod.Name, container: podmeta.ProgramOf(pod).Name, node: node, ip: s.address(), gpus: gpus}
	s.programs[pod.UID] = p
	s.note("%s is on %s with %v", pod.Name, node, gpus)
	s.api.changePod(pod.Name, func(p *corev1.Pod) { p.Spec.NodeName = node })
	pulling := s.admit(p, pod) + s.between("kubelet", 50*time.Millisecond, 500*time.Millisecond)
	if s.latePods > 0 {
		s.latePods--
		pulling += s.between("late container", time.Second, 20*time.Second)
	}
	if s.slowPulls > 0 {
		s.slowPulls--
		pulling += 3 * time.Minute
		s.after(pulling-3*time.Minute, func() { s.api.changeThis(pod, waitsForImage) })
	}
	s.after(pulling, func() {
		if now := p.there(); now == nil || now.DeletionTimestamp != nil || p.dead {
			p.dead = true
			return
		}
		s.api.changePod(pod.Name, func(o *corev1.Pod) { runs(o, p.ip) })
		p.oddly()
		s.after(s.between("program", 0, 60*time.Millisecond), p.begin)
	})
}

// begin starts the program, for the first time or again.
func (p *simProgram) begin() {
	if p.dead {
		return
	}
	p.up, p.began = true, time.Now()
	p.proxy = requesterapi.Proxy{State: requesterapi.StateUnbound, CanHold: p.canHold(), Instance: fmt.Sprintf("%s-%d", p.pod, p.s.number("process"))}
}

// restartProgram is what the kubelet does when the container ends. It tells of an
// end that lasts.
func (s *sim) restartProgram(p *simProgram, d time.Duration) {
	p.end()
	s.disturb(2 * time.Second)
	s.after(300*time.Millisecond, func() {
		if pod := s.api.pods[p.pod]; !p.up && !p.dead && pod != nil && pod.UID == p.uid {
			s.api.changePod(p.pod, func(o *corev1.Pod) {
				programIs(o, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}})
			})
		}
	})
	s.after(d, func() {
		p.begin()
		if !p.dead && p.there() != nil {
			s.api.changePod(p.pod, func(o *corev1.Pod) { runs(o, p.ip) })
		}
	})
}

// end is the end of the container.
func (p *simProgram) end() {
	delete(p.s.doomed, p.uid)
	p.up, p.delayed = false, time.Time{}
	p.proxy = requesterapi.Proxy{State: requesterapi.StateUnbound}
}

// podDeleted is what kubelets do when the deletion of a Pod is asked for.
func (s *sim) podDeleted(pod *corev1.Pod) {
	s.note("%s is being deleted", pod.Name)
	s.leaves[pod.UID] = time.Now()
	if pod.Spec.NodeName == "" {
		return // no kubelet has it
	}
	p := s.programs[pod.UID]
	if p != nil && s.endsInOrder(pod, p) {
		return
	}
	grace := s.between("terminate", 20*time.Millisecond, 4*time.Second)
	if p != nil && p.hung {
		grace = 30 * time.Second
	}
	if p != nil {
		p.toldToEnd()
	}
	s.after(grace, func() { s.endContainers(pod) })
}

// endContainers ends a Pod's containers for good.
func (s *sim) endContainers(pod *corev1.Pod) {
	if p := s.programs[pod.UID]; p != nil {
		p.end()
		p.dead = true
	}
	if l := s.launchers[string(pod.UID)]; l != nil {
		l.die()
	}
	s.api.changeThis(pod, ended)
	s.after(s.between("scheduler", time.Millisecond, 20*time.Millisecond), s.schedule)
}

// podGone is what happens once a Pod is gone.
func (s *sim) podGone(pod *corev1.Pod) {
	if l := s.launchers[string(pod.UID)]; l != nil {
		l.die()
	}
	if simIsLauncher(pod) && pod.Labels[podmeta.LabelLauncherConfig] == "each" {
		s.after(s.between("daemonset", 50*time.Millisecond, time.Second), func() { s.addLauncher(pod.Spec.NodeName, "each") })
	}
	s.after(s.between("scheduler", time.Millisecond, 20*time.Millisecond), s.schedule)
	s.comesAgain(pod.Name)
}

// target is the instance that a requester program carries traffic to.
func (p *simProgram) target() (*simLauncher, *simInstance) {
	for _, key := range sortedKeys(p.s.launchers) {
		l := p.s.launchers[key]
		if l.dead || l.ip != p.proxy.Address {
			continue
		}
		for _, i := range l.all {
			if i.Port == int(p.proxy.Port) {
				return l, i
			}
		}
		return l, nil
	}
	return nil, nil
}

func awake(i *simInstance) bool { return i != nil && i.State == string(launcher.Awake) }
