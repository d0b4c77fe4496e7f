package decide

import "hotseat.dev/hotseat/dualpods"

// reaching: the launcher, and the kubelet of the node.
var reaching = Table{
	Name:     "reaching",
	Sentence: "The requester has no launcher that answers, or the kubelet has not said which GPUs it has",
	Rows: []Row{
		{"no launcher yet", "not bound; no launcher of the configuration that has what the requester needs, in the namespace of the requester, is on the node, or only closed ones are, and the controller can make none now: a DaemonSet makes it, it has not been placed, the launcher that is there is of an earlier template (it is replaced, or kept because of its node's taints), or the configuration is missing, malformed or not for this node",
			(*Observation).launcherComes, Tell, func(o *Observation) Step { return lackingStep(o.Lacking) }},
		{"no launcher", "not bound; no launcher of the configuration that has what the requester needs, in the namespace of the requester, is on the node, or only closed ones are",
			(*Observation).launcherMissing, CreateLauncher, say("node %s has no launcher of %s", nodeName, func(o *Observation) string { return o.Form.LauncherConfig })},
		{"launcher going", "not bound; the launcher is being deleted or has ended",
			(*Observation).launcherGoing, Tell, inform(LauncherGoing, "launcher %s of its node is being deleted or has ended: the requester waits for the next one", launcherName)},
		{"launcher starting", "not bound; the launcher's container does not run",
			(*Observation).launcherStarting, Tell, func(o *Observation) Step { return lackingStep(o.Launcher.Waits) }},
		{"launcher just lost", "the launcher answered until a moment ago",
			(*Observation).launcherJustLost, Retry, untilSilent},
		{"launcher silent", "the launcher does not answer",
			(*Observation).launcherSilent, Tell, warn(LauncherSilent, "launcher %s does not answer: %s", launcherName, launcherWhy)},
		{"kubelet just asked", "not bound, or bound ahead; the kubelet is asked which GPUs it gave the requester, and has not said, for 10 s at most",
			(*Observation).kubeletJustAsked, Retry, again((*Observation).untilToldGPUs, say("which GPUs the kubelet gave it is not known yet: %s", kubeletWhy))},
		{"kubelet silent", "not bound, or bound ahead; the kubelet has not said it for longer",
			(*Observation).kubeletHasNotAnswered, Tell, again((*Observation).untilToldGPUs, warn(KubeletSilent, "which GPUs the kubelet gave it cannot be told: %s", kubeletWhy))},
	},
}

// launcherComes reports whether there is no launcher, and the controller can make none now.
func (o *Observation) launcherComes() bool { return o.launcherMissing() && o.Lacking != nil }

// launcherMissing reports whether there is no launcher for a requester that nobody is bound to.
func (o *Observation) launcherMissing() bool { return o.Record == nil && o.Launcher == nil }

// launcherGoing reports whether the launcher takes no more requesters.
func (o *Observation) launcherGoing() bool {
	return o.Record == nil && (o.Launcher.Deleting || o.Launcher.Dead)
}

// launcherStarting reports whether the launcher does not run yet.
func (o *Observation) launcherStarting() bool { return o.Record == nil && o.Launcher.Waits != nil }

// kubeletJustAsked reports whether the kubelet may say soon which GPUs a requester has.
func (o *Observation) kubeletJustAsked() bool {
	return o.kubeletHasNotAnswered() && o.Now.Sub(o.Kubelet.Since) < Patience
}

// lackingStep tells the requester what it waits for.
func lackingStep(w *dualpods.LauncherWait) Step {
	reason := LauncherStarting
	if w.Missing {
		reason = LauncherMissing
	}
	return Step{Why: w.Why, Reason: reason, Warn: w.Stuck}
}

// untilSilent looks again when people are to be told.
func untilSilent(o *Observation) Step {
	return Step{After: Patience - o.launcherLostFor(), Why: "the stream of launcher " + o.Launcher.Name + " broke off: " + o.Launcher.Why}
}
