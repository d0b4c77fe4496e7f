package binding

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
)

// ofOneThatIsServed has the record of a served requester be damaged for 9 s.
var ofOneThatIsServed = []simEvent{{at: 3 * time.Second, what: "create", arg: 8}, {at: 20 * time.Second, what: "damage record", arg: 8999}}

func TestARequesterWhoseRecordIsDamagedIsServedOn(t *testing.T) {
	out := simulate(t, 1, ofOneThatIsServed, decide.Tables, false)
	assert.Empty(t, out.wrong)
	assert.Equal(t, 1, out.served)
}

func TestALauncherThatGoesIsNotKeptByADamagedRecord(t *testing.T) {
	script := append(ofOneThatIsServed[:2:2], simEvent{at: 21 * time.Second, what: "delete launcher"}, simEvent{at: 22 * time.Second, what: "delete launcher", arg: 1})
	assert.Empty(t, simulate(t, 1, script, decide.Tables, false).wrong)
}

func TestARequesterWhoseRecordIsDamagedIsReplacedOnceTheContainerOfItsLauncherHasEnded(t *testing.T) {
	lines := steps(t, ofOneThatIsServed[1], simEvent{at: 21 * time.Second, what: "end launcher", arg: 10}) // for long
	deleted := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, "API server: controller deletes ") })
	require.Positive(t, deleted)
	var at float64
	_, err := fmt.Sscanf(lines[deleted], "%fs", &at)
	require.NoError(t, err)
	assert.Less(t, at, 29.0, "the record is restored later")
}

// damage has somebody damage the record of a requester that is served, and
// restore it later.
func (s *sim) damage(name string, d time.Duration) {
	uid := s.api.pods[name].UID
	at := slices.IndexFunc(s.records(), func(r simRecord) bool { return r.RequesterUID == uid })
	r := s.records()[at]
	launcherPod, key := r.on.Name, podmeta.AnnotationBindingPrefix+r.Instance
	was := s.api.pods[launcherPod].Annotations[key]
	if s.damaged[was] != "" {
		return // it is damaged already
	}
	damaged := strings.Replace(was, `"attempt"`, `"attempts"`, 1)
	s.damaged[damaged], s.byHand[uid] = was, true
	s.api.changePod(launcherPod, func(p *corev1.Pod) { p.Annotations[key] = damaged })
	s.after(d, func() {
		if pod := s.api.pods[launcherPod]; pod == nil || pod.DeletionTimestamp != nil || pod.Annotations[key] != damaged {
			return
		}
		another := slices.ContainsFunc(s.records(), func(r simRecord) bool {
			return r.RequesterUID == uid && (r.on.Name != launcherPod || podmeta.AnnotationBindingPrefix+r.Instance != key)
		})
		s.repaired[uid] = time.Now()
		if another || s.api.pods[name] == nil {
			s.removeRecord(launcherPod, r.Instance)
			return
		}
		s.api.changePod(launcherPod, func(p *corev1.Pod) { p.Annotations[key] = was })
	})
}

// removeRecord has somebody remove a record. If its launcher is silent, a controller that has not
// heard that launcher does not know of the instance.
func (s *sim) removeRecord(launcherPod, instance string) {
	if l := s.launchers[string(s.api.pods[launcherPod].UID)]; l != nil && !l.reachable() && l.all[instance] != nil {
		l.all[instance].byHand = true
	}
	s.api.changePod(launcherPod, func(p *corev1.Pod) { delete(p.Annotations, podmeta.AnnotationBindingPrefix+instance) })
}
