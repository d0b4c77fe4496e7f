package binding

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/requesterapi"
)

func TestGraceIsThatOfThePod(t *testing.T) {
	of := func(seconds int64) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &seconds}}
	}
	assert.Equal(t, 30*time.Second, graceOf(&corev1.Pod{}))
	assert.Equal(t, 5*time.Second, graceOf(of(5)))
	assert.Zero(t, graceOf(of(-1)))
	assert.Equal(t, requesterapi.MaxDrain, graceOf(of(1<<62)))
}

func TestGraceEndsAtTheDeletionTimestamp(t *testing.T) {
	assert.Zero(t, graceEnds(&corev1.Pod{}))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: now}}}
	assert.Equal(t, now, graceEnds(pod))
}
