package binding

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

// endContainer ends a launcher's container with all that is in it. The kubelet
// tells, and starts it again after that time or, where it backs off, once all is
// mended; or it starts it again at once, and nothing but the count tells.
func (l *simLauncher) endContainer(how uint64, back time.Duration) {
	s := l.s
	var lost []*simInstance
	for _, id := range sortedKeys(l.all) {
		lost = append(lost, l.all[id])
	}
	if how/4%2 > 0 { // what the launcher has on disk is lost too
		lost = nil
	}
	l.die()
	l.ended = true
	if how/8%4 == 0 {
		s.disturb(4 * time.Second)
		s.after(s.between("restart at once", 50*time.Millisecond, 500*time.Millisecond), func() { l.beginAgain(lost) })
		return
	}
	s.disturb(2 * time.Second)
	tells := s.between("kubelet tells", time.Millisecond, 300*time.Millisecond)
	s.after(tells, func() {
		l.containerIs(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}})
	})
	s.after(tells+s.between("kubelet backs off", time.Millisecond, time.Second), func() {
		l.containerIs(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 5m0s restarting failed container"}})
	})
	if how%2 > 0 { // else for long
		s.after(tells+time.Second+back, func() { l.beginAgain(lost) })
	}
}

// evict has the kubelet end the launcher's Pod for good, and whoever made the Pod
// delete it some time later.
func (l *simLauncher) evict() {
	s := l.s
	s.disturb(5 * time.Second)
	l.die()
	s.after(s.between("kubelet tells", time.Millisecond, 300*time.Millisecond), func() {
		s.api.changePod(l.pod, func(p *corev1.Pod) {
			ended(p)
			p.Status.Reason = "Evicted"
		})
	})
	s.after(s.between("its maker deletes it", 400*time.Millisecond, 3*time.Second), func() { s.api.deletePod(l.pod, 0) })
}

// kept says that the kubelet has the launcher's Pod still, and is not to end it.
func (l *simLauncher) kept() bool {
	pod := l.s.api.pods[l.pod]
	return l.ended && l.s.launchers[l.key] == l && pod != nil && pod.DeletionTimestamp == nil && !podmeta.Finished(pod) && l.s.api.nodes[l.node] != nil
}

// containerIs has the kubelet tell how the launcher's container is.
func (l *simLauncher) containerIs(state corev1.ContainerState) {
	if l.kept() {
		l.s.api.changePod(l.pod, func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State = state
			p.Status.ContainerStatuses[0].RestartCount++
		})
	}
}

// beginAgain starts the launcher's container again. It knows what it had.
func (l *simLauncher) beginAgain(lost []*simInstance) {
	if !l.kept() {
		return
	}
	next := l.s.newLauncher(l.key, l.pod, l.node, l.ip, l.gpus)
	next.rev, next.port = l.rev, l.port
	for _, old := range lost {
		i := &simInstance{Instance: old.Instance, changed: make(chan struct{}), residue: old.residue}
		next.all[i.InstanceID] = i
		next.set(i, func(v *launcherapi.Instance) {
			v.State, v.Reason, v.SwapID = string(launcher.Failed), "its launcher ended", ""
		})
	}
	l.s.note("launcher %s runs again", l.pod)
	l.s.api.changePod(l.pod, func(p *corev1.Pod) {
		count := p.Status.ContainerStatuses[0].RestartCount
		runs(p, l.ip)
		p.Status.ContainerStatuses[0].RestartCount = count + 1
	})
}
