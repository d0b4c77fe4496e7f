package decide

import "hotseat.dev/hotseat/dualpods"

// reaching: the launcher, and the kubelet of the node. The rows are in the order in which these come
// about. If several are missing, the requester is told of the first.
var reaching = TableOf[Staying]{
	Name:     "reaching",
	Sentence: "The requester has no launcher that answers, or the kubelet has not said which GPUs it has",
	Sees:     func(s *seen) *Staying { return s.staying },
	Rows: []RowOf[Staying]{
		{"no launcher yet", "not bound; no launcher of the configuration that has what the requester needs, in the namespace of the requester, is on the node, or only closed ones are, and the controller can make none now: a DaemonSet makes it, it has not been placed, the launcher that is there is of an earlier template (it is replaced, or kept because of its node's taints), or the configuration is missing, malformed or not for this node",
			(*Staying).launcherComes, Tell, func(s *Staying) Step { return lackingStep(s.Lacking) }},
		{"no launcher", "not bound; no launcher of the configuration that has what the requester needs, in the namespace of the requester, is on the node, or only closed ones are",
			(*Staying).launcherMissing, CreateLauncher, say("node %s has no launcher of %s", (*Staying).nodeName, func(s *Staying) string { return s.Form.LauncherConfig })},
		on((*Staying).candidate, RowOf[Launched]{"launcher going", "not bound; the launcher is being deleted or has ended",
			(*Launched).launcherGoing, Tell, inform(LauncherGoing, "launcher %s of its node is being deleted or has ended: the requester waits for the next one", (*Launched).launcherName)}),
		on((*Staying).candidate, RowOf[Launched]{"launcher starting", "not bound; the launcher's container does not run",
			(*Launched).launcherStarting, Tell, func(l *Launched) Step { return lackingStep(l.Launcher.Waits) }}),
		on((*Staying).launched, RowOf[Launched]{"launcher just lost", "the launcher answered until a moment ago",
			(*Launched).launcherJustLost, Retry, (*Launched).untilSilent}),
		on((*Staying).launched, RowOf[Launched]{"launcher silent", "the launcher does not answer",
			(*Launched).launcherSilent, Tell, warn(LauncherSilent, "launcher %s does not answer: %s", (*Launched).launcherName, (*Launched).launcherWhy)}),
		{"kubelet just asked", "not bound, or bound ahead; the kubelet is asked which GPUs it gave the requester, and has not said, for 10 s at most",
			(*Staying).kubeletJustAsked, Retry, again((*Staying).untilToldGPUs, say("which GPUs the kubelet gave it is not known yet: %s", (*Staying).kubeletWhy))},
		{"kubelet silent", "not bound, or bound ahead; the kubelet has not said it for longer",
			(*Staying).kubeletHasNotAnswered, Tell, again((*Staying).untilToldGPUs, warn(KubeletSilent, "which GPUs the kubelet gave it cannot be told: %s", (*Staying).kubeletWhy))},
	},
}

// launcherComes reports whether there is no launcher, and the controller can make none now.
func (s *Staying) launcherComes() bool { return s.launcherMissing() && s.Lacking != nil }

// launcherMissing reports whether there is no launcher for a requester that nobody is bound to.
func (s *Staying) launcherMissing() bool { return s.isUnbound() && s.Launched == nil }

// kubeletJustAsked reports whether the kubelet may say soon which GPUs a requester has.
func (s *Staying) kubeletJustAsked() bool {
	return s.kubeletHasNotAnswered() && s.Now.Sub(s.Kubelet.Since) < Patience
}

// lackingStep tells the requester what it waits for.
func lackingStep(w *dualpods.LauncherWait) Step {
	reason := LauncherStarting
	if w.Missing {
		reason = LauncherMissing
	}
	return Step{Why: w.Why, Reason: reason, Warn: w.Stuck}
}
