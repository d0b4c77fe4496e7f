//go:build cluster

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/requesterapi"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// shown is what a version of a requester's Pod tells others.
type shown struct {
	label, serving, gated, gate, container, ready, leaving bool
}

// relayed is the label that the servers of these tests have relayed.
const relayed = "example.com/model"

// byHand is why a gate is shut that somebody else than the controller has shut.
const byHand = "ByHand"

func shownBy(p *corev1.Pod) shown {
	_, label := p.Labels[relayed]
	var status podmeta.Status
	_ = json.Unmarshal([]byte(p.Annotations[podmeta.AnnotationStatus]), &status) // none: it does not serve
	return shown{
		label: label, serving: status.State == "Serving" || podmeta.GateOpen(p), gated: len(p.Spec.ReadinessGates) > 0, gate: podmeta.GateOpen(p),
		container: conditionOf(p, corev1.ContainersReady).Status == corev1.ConditionTrue, ready: ready(p), leaving: p.DeletionTimestamp != nil,
	}
}

func conditionOf(p *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

// readiness follows all Pods of a namespace, requesters and launchers, in the order
// in which the API server took their versions, and holds each against what
// spec/binding.md promises of labels, gate and readiness.
type readiness struct {
	mu    sync.Mutex
	bound map[string]map[types.UID]bool // by launcher: whom it has records of
	pods  map[types.UID]shown           // requesters, as they were told last
	seen  map[string]int                // how often something was seen to happen
	wrong []string
}

// followReadiness follows the Pods of the namespace until stop.
func (s *site) followReadiness() (r *readiness, stop func()) {
	s.t.Helper()
	r = &readiness{bound: map[string]map[types.UID]bool{}, pods: map[types.UID]shown{}, seen: map[string]int{}}
	return r, s.followAll(func(p *corev1.Pod, gone bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		switch {
		case p.Labels[podmeta.LabelComponent] == podmeta.ComponentLauncher:
			r.launcher(p, gone)
		case podmeta.IsRequester(p) && gone:
			delete(r.pods, p.UID)
		case podmeta.IsRequester(p):
			r.requester(p)
		}
	})
}

func (r *readiness) launcher(p *corev1.Pod, gone bool) {
	bindings, _ := podmeta.ReadBindings(p)
	r.bound[p.Name] = map[types.UID]bool{}
	for _, b := range bindings {
		r.bound[p.Name][b.RequesterUID] = !gone
	}
	for uid, is := range r.pods {
		r.check(!is.shows() || is.leaving || r.isBound(uid), p, "the record of a requester is gone that is shown as served")
	}
}

func (r *readiness) isBound(uid types.UID) bool {
	for _, to := range r.bound {
		if to[uid] {
			return true
		}
	}
	return false
}

// shows says that something of the controller's tells others to use it.
func (is shown) shows() bool { return is.label || is.serving || is.gate }

func (r *readiness) check(so bool, p *corev1.Pod, wrong string) {
	if !so {
		r.wrong = append(r.wrong, fmt.Sprintf("%s at %s: %s", p.Name, p.ResourceVersion, wrong))
	}
}

func (r *readiness) requester(p *corev1.Pod) {
	was, is := r.pods[p.UID], shownBy(p)
	r.pods[p.UID] = is
	bound := r.isBound(p.UID)
	r.check(!is.ready || is.container, p, "it is ready, and its container is not")
	r.check(is.leaving || bound || !is.shows() && !is.ready, p, "it is ready, or shown as served, and nobody is bound to it")
	for what, turns := range map[string][2]bool{
		"label": {was.label, is.label}, "gate": {was.gate, is.gate}, "container": {was.container, is.container}, "ready": {was.ready, is.ready},
	} {
		if turns[0] != turns[1] {
			r.seen[fmt.Sprintf("%s %s %t", p.Labels["app"], what, turns[1])]++
		}
	}
	if !was.label && is.label {
		r.check(!is.leaving && is.serving, p, "it gets the label, and does not serve")
	}
	if !was.gate && is.gate {
		r.check(!is.leaving, p, "its gate opens, and it leaves")
	}
	if is.gated && !is.gate && conditionOf(p, podmeta.ReadinessGate).Reason != byHand {
		r.check(!is.label && !is.serving, p, "it has its label, or says that it serves, and its gate is shut")
	}
}

// times is how often something of that app was seen to turn so.
func (r *readiness) times(app, what string, to bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[fmt.Sprintf("%s %s %t", app, what, to)]
}

// agree waits until the one requester of each app is served, and what each of its
// conditions and labels says is so.
func (s *site) agree(apps ...string) (pods []corev1.Pod) {
	s.t.Helper()
	for _, app := range apps {
		var is shown
		s.eventually(app+" is served, and all that tells of it agrees", func() bool {
			found := s.pods(app)
			if len(found) != 1 {
				return false
			}
			is = shownBy(&found[0])
			if is == (shown{label: true, serving: true, container: true, ready: true, gated: is.gated, gate: is.gated}) {
				pods = append(pods, found[0])
				return true
			}
			return false
		})
		s.answers(app)
	}
	return pods
}

// becomeUnready has somebody tell a requester program that it is not ready.
func (s *site) becomeUnready(ip string) {
	s.t.Helper()
	resp, err := s.order(ip, http.MethodPost, requesterapi.PathBecomeUnready, patience.Wait())
	require.NoError(s.t, err)
	require.NoError(s.t, resp.Body.Close())
	require.Equal(s.t, http.StatusOK, resp.StatusCode)
}

// asleep waits until the instance of an app begins to fall asleep, from a revision
// of the launcher on, and says whether its requester program was ready then.
func (s *site) asleep(app, ip string, since uint64) (wasReady bool) {
	s.t.Helper()
	ctx, stop := context.WithTimeout(s.t.Context(), patience.Wait())
	defer stop()
	for e, err := range s.launcher("launcher-node-1").Watch(ctx, &since) {
		require.NoError(s.t, err)
		if e.Object.Model == "org/"+app && e.Object.State == "falling_asleep" {
			proxy, err := s.proxy(ip)
			return err == nil && proxy.Ready // one that answers no more is not ready either
		}
	}
	require.Fail(s.t, "the model of "+app+" does not fall asleep")
	return false
}

// TestAtEachMomentOfALifeGateProbeAndLabelsSayWhatIsSo: two requesters, one of which
// lists the readiness gate, are served; their models are put to sleep by somebody,
// and woken; somebody shuts the gate of one, and tells the program of the other that
// it is not ready; their engines are killed, and they are replaced; they go.
func TestAtEachMomentOfALifeGateProbeAndLabelsSayWhatIsSo(t *testing.T) {
	s := newSite(t)
	followed, stop := s.followReadiness()
	defer stop()
	apps := []string{"gated", "plain"}
	for _, app := range apps {
		s.deploy(server{app: app, node: 1, gate: app == "gated", labels: map[string]string{relayed: app}}, 1)
	}
	s.agree(apps...)
	for _, app := range apps {
		_, err := s.launcher("launcher-node-1").Sleep(t.Context(), s.instance("launcher-node-1", app, "awake").InstanceID, launcherapi.SleepRequest{})
		require.NoError(t, err)
	}
	for _, app := range apps {
		s.eventually("the label of "+app+" is off while its model sleeps", func() bool { return followed.times(app, "label", false) == 1 })
	}
	pods := s.agree(apps...)
	assert.Equal(t, 1, followed.times("gated", "gate", false))

	s.kubectl("patch", "pod/"+pods[0].Name, "--subresource=status", "--patch",
		fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"False","reason":%q}]}}`, podmeta.ReadinessGate, byHand))
	s.eventually("the gate is open again", func() bool { return followed.times("gated", "gate", true) == 3 })
	containers := followed.times("plain", "container", false)
	// Again and again: the controller may mend it before the kubelet probes.
	s.eventually("the probe fails", func() bool {
		s.becomeUnready(pods[1].Status.PodIP)
		return followed.times("plain", "container", false) > containers
	})
	again := s.agree(apps...)
	for n := range apps {
		assert.Equal(t, pods[n].UID, again[n].UID)
		s.kill(s.instance("launcher-node-1", apps[n], "awake"))
	}
	for n, app := range apps {
		s.replaced(app, again[n])
	}
	pods = s.agree(apps...)

	list, err := s.launcher("launcher-node-1").List(t.Context())
	require.NoError(t, err)
	for n, app := range apps {
		s.scale(app, 0)
		assert.False(t, s.asleep(app, pods[n].Status.PodIP, list.Revision), "%s was unready before its model slept", app)
	}
	for _, app := range apps {
		s.gone(app)
	}
	s.free("launcher-node-1")
	stop()
	assert.Empty(t, followed.wrong)
	assert.Equal(t, []int{3, 4}, []int{followed.times("gated", "label", true), followed.times("gated", "gate", true)}, "up, up again, for the second requester; and after somebody shut it")
	assert.GreaterOrEqual(t, followed.times("plain", "ready", true), 3)
}
