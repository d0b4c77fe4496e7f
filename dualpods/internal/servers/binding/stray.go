package binding

import (
	"slices"
	"time"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// carrier returns a requester whose program carries traffic to an instance, or may; empty: there is
// none. The controller unbinds it first, as after its node was gone for a while. A program that does
// not answer may carry traffic if its Pod was there when the instance woke. A launcher serves
// requesters of its own namespace alone: the word of programs in others does not count.
func (w *world) carrier(l *launcherPod, i launcherapi.Instance) (first string) {
	for uid, pod := range w.pods {
		said := w.spi[uid]
		_, record := w.boundTo(dualpods.IdentityOf(pod))
		silent := said == nil && running(pod) && record == nil && !i.StateSince.Before(pod.CreationTimestamp.Time)
		carries := said != nil && said.Proxy.State != requesterapi.StateUnbound && said.Proxy.Address == l.pod.Status.PodIP && int(said.Proxy.Port) == i.Port
		name := pod.Namespace + "/" + pod.Name
		if pod.Namespace == l.pod.Namespace && (silent || carries) && (first == "" || name < first) {
			first = name
		}
	}
	return first
}

// putStraysToRest begins to put the instances of a launcher to rest that no record is of. again is
// when to try once more with one that did not rest though told to.
func (c *Controller) putStraysToRest(n *nodeWork, w *world, l *launcherPod, view nodeview.View) (again time.Duration) {
	surplus := w.surplusOf(l, view)
	for id, i := range view.Instances {
		if l.holder(id) != "" {
			continue
		}
		sleep, remove := n.calls.instanceTroubles(l, id, launcher.State(i.State))
		stray := decide.Stray{Instance: i, Unreadable: w.mayServe(l, id), Carried: w.carrier(l, i) != "", NeverSleeps: decide.NeverSleeps(&i, sleep.Count)}
		if slices.Contains(surplus, id) {
			stray.Surplus = l.of.Name
		}
		step := stray.Step()
		if step.Do == decide.Nothing {
			continue
		}
		if pause := map[decide.Action]decide.Trouble{decide.Sleep: sleep, decide.DeleteInstance: remove}[step.Do].Until.Sub(w.now); pause > 0 {
			again = dualpods.Sooner(again, pause)
			continue
		}
		if n.calls.underWay(sleepKey(l, id), view.Revision) || n.calls.underWay(deleteKey(l, id), view.Revision) {
			continue
		}
		c.log.Info("step", "node", n.name, "launcher", l.pod.Name, "instance", id, "rule", step.Rule, "do", string(step.Do), "why", step.Why)
		if err := c.callLauncher(n, l, id, step.Do, nil, &decide.Observation{}); err != nil {
			c.log.Error(err, "cannot put a stray instance to rest", "launcher", l.pod.Name, "instance", id)
		}
	}
	return again
}
