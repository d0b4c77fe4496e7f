package binding

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/dualpods/internal/podcache"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
)

// cachedPod is a Pod of the API server as the controllers' caches have it. Pods share parts.
type cachedPod struct {
	*corev1.Pod
	content [sha256.Size]byte // when it came
}

func contentOf(pod *corev1.Pod) [sha256.Size]byte {
	text, err := pod.Marshal()
	if err != nil {
		panic(err)
	}
	return sha256.Sum256(text)
}

// cached returns a version of a Pod as caches have it.
func (a *simAPI) cached(pod *corev1.Pod) *corev1.Pod {
	if known, ok := a.compact[pod]; ok {
		return known.Pod
	}
	compact := pod.DeepCopy()
	podcache.Compact(compact)
	a.compact[pod] = cachedPod{compact, contentOf(compact)}
	return compact
}

// checkCached looks for Pods of the caches that somebody has written to.
func (s *sim) checkCached() {
	for _, known := range s.api.compact {
		if contentOf(known.Pod) != known.content {
			s.violated("Pod %s was written to in the cache, and other Pods may share the part", known.Name)
		}
	}
}

// TestSharedPartsAreNeverWritten runs schedules in which the controller writes all that it
// writes to Pods. Each schedule of TestNoScheduleBreaksWhatMustHold makes the same check.
func TestSharedPartsAreNeverWritten(t *testing.T) {
	script := []simEvent{{at: 3 * time.Second, what: "create"}, {at: 20 * time.Second, what: "sleep by hand"}, {at: 40 * time.Second, what: "delete"}}
	for seed := range uint64(simComposed) {
		assert.Empty(t, simulate(t, seed, script, decide.Tables, false).wrong)
	}
}

func TestWriteToASharedPartIsFound(t *testing.T) {
	s := &sim{}
	s.api = newSimAPI(s)
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Env: []corev1.EnvVar{{Name: "A", Value: "b"}}}}},
		}
	}
	one := s.api.cached(pod("one"))
	s.api.cached(pod("other"))
	s.checkCached()
	assert.Empty(t, s.wrong)
	one.Spec.Containers[0].Env[0].Value = "written"
	s.checkCached()
	assert.Len(t, s.wrong, 2, "both Pods share it")
}
