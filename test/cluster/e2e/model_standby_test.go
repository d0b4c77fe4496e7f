//go:build cluster && clusterlong

package e2e

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// withStandby is a Model whose entry a has a GPU, and whose standby has a processor.
const withStandby = `
apiVersion: hotseat.dev/v1alpha1
kind: Model
metadata: {name: llama}
spec:
  url: hf://org/llama
  scaleDownDelaySeconds: 3
specs:
- name: a
  resourceProfile: e2e-gpu
  args: [--gpu-memory-utilization=0.4]
- name: standby
  resourceProfile: e2e-processor
  args: [--seed=1]
  minReplicas: 1
  targetRequests: 0
`

func (s *site) entryPods(model, entry string) (living []corev1.Pod) {
	s.t.Helper()
	for _, p := range s.modelPods(model) {
		if p.Labels[podmeta.LabelModelEntry] == entry && p.DeletionTimestamp.IsZero() {
			living = append(living, p)
		}
	}
	return living
}

// onlyAnswers says that all chats were answered, and how many there were at least.
func onlyAnswers(t *testing.T, answers map[string]int, least int) {
	t.Helper()
	assert.Equal(t, []string{"200"}, slices.Collect(maps.Keys(answers)), "%v", answers)
	assert.GreaterOrEqual(t, answers["200"], least)
}

func TestStandbyServesWhileNoOtherEntryDoes(t *testing.T) {
	s := newPool(t, nil)
	s.engineImage()
	s.declare(withStandby)
	s.serves("llama", "standby (1)")
	stop := s.chats("llama", s.frontDoor(), 4)
	s.serves("llama", "a (1)")
	s.eventually("the standby rests", func() bool { return len(s.entryPods("llama", "standby")) == 0 })
	was := s.entryPods("llama", "a")
	require.Len(t, was, 1)

	// The replica dies under load.
	s.kubectl("delete", "pod/"+was[0].Name, "--grace-period=0", "--force")
	s.eventually("another Pod of a serves, and the standby rests", func() bool {
		now := s.entryPods("llama", "a")
		return len(now) == 1 && now[0].UID != was[0].UID && s.model("llama").Status.Serving == "a (1)" && len(s.entryPods("llama", "standby")) == 0
	})
	answers := stop()
	t.Logf("answers: %v", answers)
	onlyAnswers(t, answers, 100)

	// While no standby can start, the last replica stays.
	s.kubectlEdit("mdl/llama", "s/seed=1/sim-crash-at-load=exit:3/")
	was = s.entryPods("llama", "a")
	s.eventually("the standby has failed", func() bool {
		f := s.entry("llama", "standby").LastFailure
		return f != nil && f.Reason == "EngineFailed"
	})
	s.eventually("the Model says that the last replica stays", func() bool {
		c := meta.FindStatusCondition(s.model("llama").Status.Conditions, v1alpha1.ConditionScalingLimited)
		return c != nil && c.Status == "True" && strings.Contains(c.Message, "the last replica stays")
	})
	status, text := s.chat("llama")
	assert.Equal(t, 200, status, text)
	assert.Equal(t, was[0].UID, s.entryPods("llama", "a")[0].UID)
	s.kubectlEdit("mdl/llama", "s/sim-crash-at-load=exit:3/seed=1/")
	s.serves("llama", "standby (1)")
	s.eventually("a has gone", func() bool { return len(s.entryPods("llama", "a")) == 0 })
}

// group is a Model whose entries a, b and c are scaled up together. a and c are late.
const group = `
apiVersion: hotseat.dev/v1alpha1
kind: Model
metadata: {name: llama}
spec:
  url: hf://org/llama
  resourceProfile: e2e-gpu
  scaleDownDelaySeconds: 3
specs:
- {name: a, simultaneousScaleUpGroup: g, args: [--gpu-memory-utilization=0.4, --sim-load-time=1m]}
- {name: b, simultaneousScaleUpGroup: g, args: [--gpu-memory-utilization=0.4]}
- {name: c, simultaneousScaleUpGroup: g, args: [--gpu-memory-utilization=0.4, --sim-load-time=2m]}
`

func TestFirstMemberOfAGroupThatIsReadyServes(t *testing.T) {
	s := newPool(t, nil)
	s.declare(group)
	s.eventually("the Model is observed", func() bool { return s.model("llama").Status.ObservedGeneration > 0 })
	var mu sync.Mutex
	served, made := map[string]bool{}, map[string]bool{}
	unfollow := s.followAll(func(p *corev1.Pod, _ bool) {
		mu.Lock()
		defer mu.Unlock()
		made[p.Labels[podmeta.LabelModelEntry]] = true
		if p.Labels[podmeta.LabelServes] != "" {
			served[p.Labels[podmeta.LabelModelEntry]] = true
		}
	}, client.MatchingLabels{podmeta.LabelModel: "llama"})
	seen := func(of map[string]bool) []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Sorted(maps.Keys(of))
	}
	defer unfollow()
	status, text := s.chat("llama")
	require.Equal(t, 200, status, text)
	began := time.Now()
	s.eventually("the others are taken back", func() bool { return len(s.entryPods("llama", "a"))+len(s.entryPods("llama", "c")) == 0 })
	took := time.Since(began)
	t.Logf("the losers were taken back %s after the first answer", took)
	assert.Less(t, took, 5*time.Second)
	s.serves("llama", "b (1)")
	assert.Equal(t, []string{"a", "b", "c"}, seen(made))
	assert.Equal(t, []string{"b"}, seen(served))
	for _, name := range []string{"a", "b", "c"} {
		assert.Nil(t, s.entry("llama", name).LastFailure, name)
	}

	// b sleeps then, and is asked alone.
	s.eventually("it goes to zero", func() bool { return len(s.modelPods("llama")) == 0 })
	s.eventually("it sleeps", func() bool { return s.entry("llama", "b").SleepsOn != "" })
	mu.Lock()
	clear(made)
	mu.Unlock()
	status, text = s.chat("llama")
	require.Equal(t, 200, status, text)
	s.serves("llama", "b (1)")
	assert.Equal(t, []string{"b"}, seen(made))
}
